"""A task of the tests alone: fixed sequences of whole numbers, each with a class, read scaled and in another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from orthornn.learn.tasks import Batch, Objective, Problem, Task
from orthornn.learn.tasks.task import batch_rows, judged

CLASSES = 4
ORDER = np.random.RandomState(5).permutation(9).tolist()


@dataclass(frozen=True)
class Labeled(Task):
    """Name the class of a sequence of nine numbers from 0 to 255; the training set is fixed and has epochs."""

    name: ClassVar[str] = "labeled"
    output = "last"
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    train_size: int = 30
    validation_size: int = 10
    test_size: int = 12
    steps = len(ORDER)

    @cached_property
    def raw(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Numbers (B, 9) and classes (B,) of every part."""
        random, parts = np.random.default_rng(7), {}
        for part in ("train", "validation", "test"):
            classes = np.arange(getattr(self, f"{part}_size")) % CLASSES
            parts[part] = random.integers(0, 20, (len(classes), self.steps)) + 50 * classes[:, None], classes
        return parts

    def problem(self) -> Problem:
        schema = {"input_size": 1, "output_size": CLASSES, "input": "real", "output": "last", "says": "classes"}
        return Problem(
            {**schema, "scale": 1 / 255, "order": ORDER},
            lambda step, size, seed: self._batch("train", batch_rows(step, size, self.train_size, seed).numpy()),
            lambda batch_size: self._batches("validation", self.validation_size, batch_size),
            lambda batch_size: self._batches("test", self.test_size, batch_size),
        )

    def objective(self) -> Objective:
        return Accuracy(trivial=float(np.log(CLASSES)), **judged(self))

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.train_size // batch_size

    def _batches(self, part: str, count: int, batch_size: int) -> Iterator[Batch]:
        for start in range(0, count, batch_size):
            yield self._batch(part, np.arange(start, min(start + batch_size, count)))

    def _batch(self, part: str, rows: np.ndarray) -> Batch:
        numbers, classes = (values[rows] for values in self.raw[part])
        shown = torch.from_numpy(numbers[:, ORDER]).float().T.contiguous() / 255
        return Batch(shown.unsqueeze(-1), torch.from_numpy(classes))


@dataclass(frozen=True)
class Accuracy(Objective):
    """The cross-entropy, and the share of sequences classified correctly."""

    trivial_formula: ClassVar[str] = "log 4"

    def loss(self, prediction, targets):
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction, targets):
        count = len(targets)
        right = float((prediction.argmax(-1) == targets).sum())
        return {"loss": (float(self.loss(prediction, targets)) * count, count), "accuracy": (right, count)}
