"""The copying problem (Helfrich et al., 2018, section 5.1; Vorontsov et al., 2017, section 3; Arjovsky et al., 2016).

Classes 0 to 9. The input has T + 20 steps: ten symbols drawn uniformly from 1..8, then blanks (0), with the
marker 9 near the end. The output wanted is 0 until the marker, then the ten symbols in their order. The papers
place the marker differently, and the released code of Helfrich et al. as vorontsov2017:

    step                       0 .. 9    10 .. T+8   T+9   T+10   T+11 .. T+19
    input  (helfrich2018)      a_0..a_9      0        0      9         0
    input  (vorontsov2017)     a_0..a_9      0        9      0         0
    target (both)                 0          0        0     a_0    a_1 .. a_9

variant              differs from the paper in
helfrich2018
helfrich2018-code    the marker, one step earlier; 20000 fixed sequences, visited in order again and again, which the
                     paper leaves open
vorontsov2017
vorontsov2017-code   the input is one number, the class, in place of ten classes

With `variable` the marker comes after 1 to T steps, drawn uniformly for each sequence, and everything from the marker on
moves forward by the steps that are left; blanks follow. The answer then does not come at a fixed time.

The loss is the cross-entropy in nats over all T + 20 steps. Who does not look at the first ten steps can at
best be certain of the zeros and give each of the 8 symbols probability 1/8 at the end: 10 ln 8 / (T + 20).
"""

from __future__ import annotations

import math
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
from .task import LARGEST, Task, judged

_HELD_OUT_SEED = 0  # validation and test sequences do not depend on the seed of a run


Variant = Literal["helfrich2018", "helfrich2018-code", "vorontsov2017", "vorontsov2017-code"]
_FIXED_SIZE = 20_000  # training sequences of helfrich2018-code


@dataclass(frozen=True)
class Copying(Task):
    """Recall symbols across T steps; every training batch is fresh."""

    name: ClassVar[str] = "copying"
    output = "all"
    metric: ClassVar[str] = "recall"
    higher_is_better: ClassVar[bool] = True

    T: int = 100
    """Steps between the symbols and their recall."""
    variant: Variant = "helfrich2018"
    """Paper whose task this is; with -code, as its released code has it."""
    symbols: int = 8
    """Number of different symbols; there are two more classes."""
    items: int = 10
    """Number of symbols to remember."""
    variable: bool = False
    """Draw the steps between the symbols and their recall for each sequence, from 1 to T."""
    validation_size: int = 200
    """Sequences held out for validation."""
    test_size: int = 1000
    """Sequences held out for the test."""

    def __post_init__(self) -> None:
        check_integer("T", self.T, 1, LARGEST)
        check_choices(self)
        check_integer("symbols", self.symbols, 1, LARGEST)
        check_integer("items", self.items, 1, LARGEST)
        check_integer("validation_size", self.validation_size, 1, LARGEST)
        check_integer("test_size", self.test_size, 1, LARGEST)

    @property
    def steps(self) -> int:
        """T + 2 items."""
        return self.T + 2 * self.items

    def problem(self) -> Problem:
        """Return fresh batches, or those of the fixed set; inputs are classes, or numbers in vorontsov2017-code."""
        numbers, classes = self.variant == "vorontsov2017-code", self.symbols + 2
        schema = {
            "input_size": 1 if numbers else classes,
            "output_size": classes,
            "input": "real" if numbers else "tokens",
            "output": "all",
            "says": "classes",
        }
        held_out = (
            partial(self._held_out, "validation", self.validation_size),
            partial(self._held_out, "test", self.test_size),
        )
        return Problem(schema, self._train_batch, *held_out)

    def objective(self) -> Objective:
        """Return the cross-entropy, and the share of the symbols recalled."""
        trivial_loss = self.items * math.log(self.symbols) / self.steps
        asked = None if self.variable else self.items
        return _Recall(self.symbols, asked, trivial=trivial_loss, **judged(self))

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        if self.variant == "helfrich2018-code":
            rows = (np.arange(batch_size) + step * batch_size) % _FIXED_SIZE
            symbols, delays = self._fixed
            return self._arrange(symbols[:, rows], delays[rows])
        return self._arrange(*self._draw(stream("train", seed, step), batch_size))

    @cached_property
    def _fixed(self) -> tuple[np.ndarray, np.ndarray]:
        return self._draw(stream("train", _HELD_OUT_SEED), _FIXED_SIZE)

    def _draw(self, random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return symbols (items, count) int64 in 1..symbols, and the steps (count,) before their recall."""
        drawn = random.integers(1, self.symbols + 1, (self.items, count))
        delays = random.integers(1, self.T + 1, count) if self.variable else np.full(count, self.T)
        return drawn, delays

    def _arrange(self, drawn: np.ndarray, delays: np.ndarray) -> Batch:
        """Return the batch that asks for the symbols drawn, (items, B) int64, after so many steps, (B,)."""
        # numpy, because at B=1 it takes half as long as torch
        inputs, targets = np.zeros((2, self.steps, drawn.shape[1]), np.int64)
        inputs[: self.items] = drawn
        early = 0 if self.variant == "helfrich2018" else 1
        if self.variable:
            sequences, start = np.arange(drawn.shape[1]), self.items + delays
            inputs[start - early, sequences] = self.symbols + 1
            targets[start + np.arange(self.items)[:, None], sequences] = drawn
        else:
            inputs[-self.items - early] = self.symbols + 1
            targets[-self.items :] = drawn
        shown = torch.from_numpy(inputs)
        if self.variant == "vorontsov2017-code":
            shown = shown.unsqueeze(-1).to(torch.float32)
        return Batch(shown, torch.from_numpy(targets))

    def _held_out(self, purpose: str, size: int, batch_size: int) -> Iterator[Batch]:
        drawn, delays = self._draw(stream(purpose, _HELD_OUT_SEED), size)
        return in_batches(size, batch_size, lambda own: self._arrange(drawn[:, own], delays[own]))


@dataclass(frozen=True)
class _Recall(Objective):
    """The cross-entropy in nats, the mean over all steps. items: At the end, to recall; None where their place varies."""

    trivial_formula: ClassVar[str] = "items ln(symbols) / (T + 2 items)"

    symbols: int
    items: int | None

    @property
    def trivial_metric(self) -> float:
        """The recall of a guess."""
        return 1 / self.symbols

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction.flatten(0, 1), targets.flatten())

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, int]]:
        """Return loss and recall, the share of the symbols recalled (chance: 1 / symbols)."""
        if self.items is None:
            asked = targets != 0
            hits = prediction[asked].argmax(-1) == targets[asked]
        else:
            hits = prediction[-self.items :].argmax(-1) == targets[-self.items :]
        loss = float(self.loss(prediction, targets))
        return {
            "loss": (loss * targets.numel(), targets.numel()),
            "recall": (float(hits.sum()), hits.numel()),
        }
