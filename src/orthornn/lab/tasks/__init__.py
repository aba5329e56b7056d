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
from .piano_rolls import PianoRolls
from .pixel_mnist import PixelMNIST
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
    "Parity",
    "PianoRolls",
    "PixelMNIST",
    "Regress",
    "Speech",
    "Task",
]

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        *(Copying, Adding, Groups, Parity, ModularSums, PixelMNIST, Characters, Speech, Music, Amplifier, PianoRolls),
        *(Classify, Regress, Forecast),
    )
}
"""The tasks by the name under which the command line and config.json know them."""
