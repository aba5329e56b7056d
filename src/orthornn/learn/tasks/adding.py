"""The adding problem (Mhammedi et al., 2017, section 5.2; Helfrich et al., 2018, section 5.2).

The input has two channels: uniform numbers from [0, 1), and zeros with two ones, one in each half. The output
wanted, after the last step, is the sum of the two marked numbers. Always answering 1, the mean of that sum,
has the mean squared error 2/12 = 1/6, the variance of two uniform numbers.

variant              training data                first marker        second marker       sum
mhammedi2017         a fresh batch every step     {0, .., T/2 - 1}    {T/2, .., T - 1}    u + v
mhammedi2017-code    a fresh batch every step     two different steps, anywhere           u + v
helfrich2018         100000 fixed, in epochs      {1, .., T/2 - 1}    {T/2, .., T - 1}    u + v
vorontsov2017        a fresh batch every step     {0, .., T/2 - 1}    {T/2, .., T - 1}    u + v
vorontsov2017-code   a fresh batch every step     {0, .., T/2 - 1}    {T/2, .., T - 1}    (u + v) / 2

Steps count from 0 and T/2 is rounded down. helfrich2018 prints the half-open intervals [1, T/2) and [T/2, T);
its 10000 test sequences are `test()`. It has no validation set: the one here is drawn separately. The variants
with -code are what the released code of that paper does instead; half the sum has the trivial baseline 1/24.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..._checks import check_integer
from ..fields import check_choices
from .objective import Objective
from .problem import Batch, Problem, in_batches
from .streams import stream
from .task import LARGEST, Task, batch_rows, judged

Variant = Literal["mhammedi2017", "mhammedi2017-code", "helfrich2018", "vorontsov2017", "vorontsov2017-code"]
_FIXED_SEED = 0  # fixed and held-out sequences do not depend on the seed of a run


@dataclass(frozen=True)
class Adding(Task):
    """Add the two marked numbers of a sequence."""

    name: ClassVar[str] = "adding"
    output = "last"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    T: int = 400
    """Steps of a sequence."""
    variant: Variant = "mhammedi2017"
    """Paper whose task this is; with -code, as its released code has it. helfrich2018 has a fixed training set, the
    others draw fresh batches."""
    train_size: int = 100_000
    """With --variant helfrich2018: sequences in the fixed training set; each takes 4 T bytes of memory."""
    validation_size: int = 1000
    """Sequences held out for validation."""
    test_size: int = 10_000
    """Sequences held out for the test."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_integer("T", self.T, 2 * self._first_step + 2, LARGEST)
        check_integer("train_size", self.train_size, 1, LARGEST)
        check_integer("validation_size", self.validation_size, 1, LARGEST)
        check_integer("test_size", self.test_size, 1, LARGEST)

    @property
    def steps(self) -> int:
        """T."""
        return self.T

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return the batches of the fixed set, or None where every batch is fresh."""
        return self.train_size // batch_size if self.variant == "helfrich2018" else None

    def problem(self) -> Problem:
        """Return fresh batches, or those of the fixed set: a number and its marker in, the sum out."""
        schema = {"input_size": 2, "output_size": 1, "input": "real", "output": "last", "says": "values"}
        held_out = (
            partial(self._held_out, "validation", self.validation_size),
            partial(self._held_out, "test", self.test_size),
        )
        return Problem(schema, self._train_batch, *held_out)

    def objective(self) -> Objective:
        """Return the mean squared error."""
        return _SquaredError(trivial=2 / 12 * self._scale**2, **judged(self))

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        if self.variant == "helfrich2018":
            values, marks = self._fixed
            rows = batch_rows(step, batch_size, self.train_size, seed)
            return self._arrange(values[rows.numpy()], marks[rows.numpy()])
        return self._arrange(*self._draw(stream("train", seed, step), batch_size))

    @property
    def _scale(self) -> float:
        return 0.5 if self.variant == "vorontsov2017-code" else 1.0

    @property
    def _first_step(self) -> int:
        return 1 if self.variant == "helfrich2018" else 0

    @cached_property
    def _fixed(self) -> tuple[np.ndarray, np.ndarray]:
        return self._draw(stream("train", _FIXED_SEED), self.train_size)

    def _draw(self, random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers (count, T) float32 and the two marked steps (count, 2) int64."""
        values = random.random((count, self.T), dtype=np.float32)
        half = self.T // 2
        marks = np.empty((count, 2), np.int64)
        if self.variant == "mhammedi2017-code":
            marks[:, 0] = random.integers(0, self.T, count)
            marks[:, 1] = (marks[:, 0] + random.integers(1, self.T, count)) % self.T
            return values, marks
        marks[:, 0] = random.integers(self._first_step, half, count)
        marks[:, 1] = random.integers(half, self.T, count)
        return values, marks

    def _held_out(self, purpose: str, size: int, batch_size: int) -> Iterator[Batch]:
        values, marks = self._draw(stream(purpose, _FIXED_SEED), size)
        return in_batches(size, batch_size, lambda own: self._arrange(values[own], marks[own]))

    def _arrange(self, values: np.ndarray, marks: np.ndarray) -> Batch:
        """Return inputs (T, B, 2) and targets (B, 1) from values (B, T) and marks (B, 2)."""
        # numpy, because at B=1 it takes half as long as torch
        sequences = np.arange(len(values))[:, None]
        inputs = np.zeros((values.shape[1], len(values), 2), np.float32)
        inputs[..., 0] = values.T
        inputs[marks, sequences, 1] = 1
        targets = values[sequences, marks].sum(1, keepdims=True) * np.float32(self._scale)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))


@dataclass(frozen=True)
class _SquaredError(Objective):
    """The mean squared error."""

    trivial_formula: ClassVar[str] = "the variance of the sum of two uniform numbers, 1/6 (of half the sum, 1/24)"

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, int]]:
        return {"loss": (float(self.loss(prediction, targets)) * len(targets), len(targets))}
