"""The tasks of the papers and leaderboards that orthornn does not include, one per file."""

from __future__ import annotations

from .groups import Groups, ModularSums, Parity
from .music import Music
from .noisy_digits import NoisyDigits
from .piano_rolls import PianoRolls
from .pixel_mnist import PixelMNIST
from .speech import Speech

__all__ = ["Groups", "ModularSums", "Music", "NoisyDigits", "Parity", "PianoRolls", "PixelMNIST", "Speech"]
