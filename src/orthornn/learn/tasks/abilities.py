"""Abilities of some tasks: functions of a task that do nothing until a kind of task registers its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

from .plain_baselines import Baseline
from .problem import Batch
from .task import Task


@singledispatch
def baselines(task: Task) -> dict[str, float]:
    """Return the test loss of other simple answers, by name: what a network must beat to be worth its cost."""
    return {}


@singledispatch
def plain_baselines(task: Task) -> list[Baseline]:
    """Return plain methods, fitted on the training part, with their metrics; none for made data.

    Raises MissingPackageError without scikit-learn.
    """
    return []


@singledispatch
def warm_start(task: Task, model: Any) -> bool:
    """Set initial values of a model from the training data, in place; return whether it did."""
    return False


@singledispatch
def whole_series(task: Task, batch_size: int) -> Iterator[Batch]:
    """Return the test once more where it is cut into windows, as whole series from their first step on; else nothing."""
    return iter(())


@singledispatch
def stored(task: Task, folder: Path) -> Task:
    """Return a task with the same data, all of them in files: tables in memory are written into a folder."""
    return task


@singledispatch
def output_files(task: Task) -> list[str]:
    """Return the names of the files that `write_outputs` writes."""
    return []


@singledispatch
def write_outputs(task: Task, model: Any, folder: Path) -> list[str]:
    """Write what can be heard or seen of a trained network's outputs; return lines that describe it, with scores."""
    return []
