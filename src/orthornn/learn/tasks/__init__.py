"""Tasks: data, sizes, loss, metric and the loss of the trivial baseline; one task, one file."""

from __future__ import annotations

from .. import entry_points
from .adding import Adding
from .amplifier import Amplifier
from .characters import Characters
from .classify import Classify
from .copying import Copying
from .forecast import Forecast
from .objective import Objective
from .problem import Batch, Problem
from .registry import Tasks
from .regress import Regress
from .task import Task

__all__ = [
    "TASKS",
    "Adding",
    "Amplifier",
    "Batch",
    "Characters",
    "Classify",
    "Copying",
    "Forecast",
    "Objective",
    "Problem",
    "Regress",
    "Task",
]

TASKS = Tasks(Copying, Adding, Characters, Amplifier, Classify, Regress, Forecast)
"""The tasks by the name under which the command line and config.json know them."""
_MOVED = {
    "Groups": "groups",
    "ModularSums": "modular-sums",
    "Music": "music",
    "NoisyDigits": "noisy-digits",
    "Parity": "parity",
    "PianoRolls": "piano-rolls",
    "PixelMNIST": "pixel-mnist",
    "Speech": "speech",
}


def __getattr__(name: str) -> type[Task]:
    """Return a task that was here before the evidence became a package of its own, from there."""
    if name in _MOVED:
        return entry_points.load(entry_points.TASKS, _MOVED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
