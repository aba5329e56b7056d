"""Tasks: data, sizes, loss, metric and the loss of the trivial answer; one file a task."""

from __future__ import annotations

from .adding import Adding
from .base import Batch, Task
from .copying import Copying
from .pixel_mnist import PixelMNIST

__all__ = ["TASKS", "Adding", "Batch", "Copying", "PixelMNIST", "Task"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (Copying, Adding, PixelMNIST)}
"""The tasks by the name under which the command line and config.json know them."""
