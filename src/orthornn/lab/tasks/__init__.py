"""Tasks: data, sizes, loss, metric and the loss of the trivial baseline; one task, one file."""

from __future__ import annotations

from .adding import Adding
from .amplifier import Amplifier
from .characters import Characters
from .classify import Classify
from .copying import Copying
from .forecast import Forecast
from .groups import Groups, ModularSums, Parity
from .music import Music
from .noisy_digits import NoisyDigits
from .piano_rolls import PianoRolls
from .pixel_mnist import PixelMNIST
from .registry import Tasks
from .regress import Regress
from .speech import Speech
from .task import Batch, Task

__all__ = [
    "TASKS",
    "Adding",
    "Amplifier",
    "Batch",
    "Characters",
    "Classify",
    "Copying",
    "Forecast",
    "Groups",
    "ModularSums",
    "Music",
    "NoisyDigits",
    "Parity",
    "PianoRolls",
    "PixelMNIST",
    "Regress",
    "Speech",
    "Task",
]

TASKS = Tasks(
    *(Copying, Adding, Groups, Parity, ModularSums, PixelMNIST, NoisyDigits, Characters, Speech, Music, Amplifier),
    *(PianoRolls, Classify, Regress, Forecast),
)
"""The tasks by the name under which the command line and config.json know them."""
