"""The tasks of the papers and boards, beyond those of orthornn; one task, one file."""

from __future__ import annotations

from .groups import Groups, ModularSums, Parity
from .music import Music
from .noisy_digits import NoisyDigits
from .piano_rolls import PianoRolls
from .pixel_mnist import PixelMNIST
from .speech import Speech

__all__ = ["Groups", "ModularSums", "Music", "NoisyDigits", "Parity", "PianoRolls", "PixelMNIST", "Speech"]
