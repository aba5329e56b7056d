"""The base of every task.

A task is a frozen dataclass: its fields are its whole description, go into config.json and come back from it. From them it
makes a `Problem`, its data, and an `Objective`, which judges predictions. The data are functions of the description and of
(seed, step), so that a run can be resumed at any step, in the middle of an epoch, without the state of any generator.

T time, B batch, I input size, O output size, R rows. Everything is time-major. Sequences of one length are a plain
tensor (T, B, ...). Sequences of several lengths are a torch PackedSequence: its data are the rows that exist, so that
padding is nowhere, neither in the recurrence nor in a loss; a model's prediction at every step is then flat, (R, O).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ..._checks import check_integer
from ..._warnings import warn
from .objective import Objective
from .problem import Batch, Problem
from .streams import stream

__all__ = ["LARGEST", "Batch", "Task", "batch_rows", "epoch_order", "judged"]

LARGEST = 1 << 31  # of a number that determines how much data there are, so that a hostile description is an error


def _ability(name: str) -> Callable[..., Any]:
    return getattr(import_module(".abilities", __package__), name)


_FORMER: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "train_batch": ("problem().train", lambda task: task.problem().train),
    "validation": ("problem().validation", lambda task: task.problem().validation),
    "test": ("problem().test", lambda task: task.problem().test),
    "input": ("problem().schema['input']", lambda task: task.problem().schema["input"]),
    "input_size": ("problem().schema['input_size']", lambda task: task.problem().schema["input_size"]),
    "output_size": ("problem().schema['output_size']", lambda task: task.problem().schema["output_size"]),
    "preprocessing": ("problem().schema", lambda task: lambda: task.problem().schema),
    "loss": ("objective().loss", lambda task: task.objective().loss),
    "metrics": ("objective().metrics", lambda task: task.objective().metrics),
    "trivial_loss": ("objective().trivial_loss", lambda task: task.objective().trivial_loss),
    "trivial_metric": ("objective().trivial_metric", lambda task: task.objective().trivial_metric),
    "classes": ("table().classes", lambda task: task.table().classes),
    "baselines": ("abilities.baselines(task)", lambda task: partial(_ability("baselines"), task)),
    "plain_baselines": ("abilities.plain_baselines(task)", lambda task: partial(_ability("plain_baselines"), task)),
}


class Task(ABC):
    """A description of data, and of what a network is to learn from them.

    name: under which the command line and config.json know it.
    output: "all" (a prediction at every step) or "last" (one, after the last step).
    metric: the entry of the objective's `metrics` by which models are compared.
    higher_is_better: which way it goes.
    batch_size: sequences in an update, unless a run sets it otherwise.
    predicts_ahead: whether the targets are later values of its own inputs, which a network that reads the sequence backwards
        has seen.
    """

    name: ClassVar[str]
    output: ClassVar[Literal["all", "last"]]
    metric: ClassVar[str]
    higher_is_better: ClassVar[bool]
    batch_size: ClassVar[int] = 50
    predicts_ahead: ClassVar[bool] = False

    @abstractmethod
    def problem(self) -> Problem:
        """Return the data. DataError for what is wrong with them."""

    @abstractmethod
    def objective(self) -> Objective:
        """Return what judges a prediction."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """T: how many time steps a sequence has, the longest of the training set if they differ."""

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return how many batches make an epoch; None where every batch is fresh."""
        return None

    def summary_lines(self) -> list[str]:
        """Return lines that report what was read and how, for the user to see before training; none for made data."""
        return []

    def files(self) -> dict[str, Path]:
        """Return the files that the data come from, by names that do not depend on where they are.

        A run remembers their sums, so that a change is noticed when it is resumed. A task with a field `data` that
        names one file need not define this; one that reads several files of a folder must.
        """
        data = self.__dict__.get("data")
        path = Path(data).expanduser() if isinstance(data, str) and data else None
        return {path.name: path} if path is not None and path.is_file() else {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what former versions had here, with a warning."""
            if name not in _FORMER or (name == "classes" and not hasattr(self, "table")):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            where, found = _FORMER[name]
            warn(f"{type(self).__name__}.{name} is {where} now. Call it so.", DeprecationWarning)
            return found(self)


def judged(task: Task) -> dict[str, Any]:
    """Return what the objective of a task knows of it."""
    names = ("name", "output", "metric", "higher_is_better")
    return {name: getattr(task, name) for name in names}


@lru_cache(maxsize=8)
def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order (count,) int64 in which this epoch visits a fixed set of `count` sequences."""
    return torch.from_numpy(stream("order", seed, epoch).permutation(count))


def batch_rows(step: int, batch_size: int, count: int, seed: int) -> Tensor:
    """Return which of `count` fixed sequences step `step` sees: (B,) int64.

    An epoch is a permutation from (seed, epoch) cut into count // batch_size batches; what is left over, less
    than one batch and other sequences every time, is not seen in that epoch.
    """
    _check_batch(batch_size, count)
    epoch, place = divmod(step, count // batch_size)
    return epoch_order(count, seed, epoch)[place * batch_size : (place + 1) * batch_size]


def _check_batch(batch_size: int, count: int) -> None:
    advice = f"The training set has {count} sequences. Pass batch_size, --batch-size."
    check_integer("batch_size", batch_size, 1, count, advice)
