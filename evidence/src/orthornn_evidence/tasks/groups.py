"""Words in a finite group: after each letter, the product of all letters so far.

A letter is an element of the group, or with ``tokens="generators"`` one of the few that generate it (with inverses and
the identity left out). The latest letter acts on the left. For groups that are not solvable, such as S5 and A5, the
problem is complete for NC1: networks whose transition does not depend on the input, or is diagonal, cannot solve it at
every length (Merrill et al., 2024). Parity is the group Z2, and sums modulo n are Z_n.

The loss is the cross-entropy in nats over all steps. The best answer that does not look at the letters knows how the
product is distributed after t letters: uniformly for elements, and as a walk on the group for generators. Both are
computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from orthornn._checks import check_choice, check_integer
from orthornn.learn.tasks import Batch, Objective, Problem
from orthornn.learn.tasks.streams import stream
from orthornn.learn.tasks.task import LARGEST, Task, judged

from .finite_groups import FiniteGroup, group_named

_HELD_OUT_SEED = 0


@dataclass(frozen=True)
class _OfWords(Objective):
    """The cross-entropy in nats, the mean over all steps."""

    trivial_formula: ClassVar[str] = "mean over t of the entropy of the product of t letters"

    task: _Words

    @property
    def trivial_loss(self) -> float:
        """The mean over t of the entropy of the product of t letters."""
        p = self._marginals()
        return float(-(p * np.log(np.where(p > 0, p, 1))).sum(1).mean())

    @property
    def trivial_metric(self) -> float:
        """The mean over t of the share of the most likely product."""
        return float(self._marginals().max(1).mean())

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction.flatten(0, 1), targets.flatten())

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, int]]:
        """Return loss; accuracy over all steps; accuracy_L, the share of words whose product of the first L letters is
        right.
        """
        hits = (prediction.argmax(-1) == targets).to(torch.float64)
        found = {
            "loss": (float(self.loss(prediction, targets)) * targets.numel(), targets.numel()),
            "accuracy": (float(hits.sum()), hits.numel()),
        }
        for length in self.task.test_lengths:
            if length <= len(hits):
                found[f"accuracy_{length}"] = (float(hits[length - 1].sum()), hits.shape[1])
        return found

    def _marginals(self) -> np.ndarray:
        order = self.task.finite_group.order
        if len(self.task.letters) == order:  # uniform letters: uniform from the first step on
            return np.full((1, order), 1 / order)
        return self.task.marginals(self.task.T)


class _Words(Task):
    """The common part of tasks of words; a subclass defines the group and the letters, and has the fields of `Groups`."""

    output = "all"
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    T: int
    start: int
    double_every: int
    test_length: int
    validation_size: int
    test_size: int

    def __post_init__(self) -> None:
        check_integer("T", self.T, 1, LARGEST)
        check_integer("start", self.start, 1, LARGEST)
        check_integer("double_every", self.double_every, 0, LARGEST)
        check_integer("test_length", self.test_length, self.T, LARGEST, "It is at least T.")
        check_integer("validation_size", self.validation_size, 1, LARGEST)
        check_integer("test_size", self.test_size, 1, LARGEST)
        assert self.finite_group is not None  # an unknown name raises here

    @property
    def finite_group(self) -> FiniteGroup:
        """The group."""
        raise NotImplementedError

    @property
    def letters(self) -> np.ndarray:
        """The elements that tokens stand for, int64 (I,)."""
        return np.arange(self.finite_group.order)

    @property
    def steps(self) -> int:
        """T."""
        return self.T

    @property
    def test_lengths(self) -> tuple[int, ...]:
        """T and its doubles up to `test_length`, and that."""
        lengths = [self.T]
        while lengths[-1] * 2 < self.test_length:
            lengths.append(lengths[-1] * 2)
        return tuple(dict.fromkeys([*lengths, self.test_length]))

    def marginals(self, steps: int) -> np.ndarray:
        """Return how the product of t + 1 letters is distributed, (steps, G)."""
        group, rows = self.finite_group, np.empty((steps, self.finite_group.order))
        now = np.zeros(group.order)
        now[group.identity] = 1
        for t in range(steps):
            after = np.zeros(group.order)
            for letter in self.letters:
                after[group.table[letter]] += now / len(self.letters)
            rows[t] = now = after
        return rows

    def problem(self) -> Problem:
        """Return fresh words of `length_at` a step, for validation words of T letters, for the test of `test_length`."""
        sizes = {"input_size": len(self.letters), "output_size": self.finite_group.order}
        return Problem(
            {**sizes, "input": "tokens", "output": "all", "says": "classes"},
            lambda step, batch_size, seed: self._batch(stream("train", seed, step), self.length_at(step), batch_size),
            lambda batch_size: self._held_out("validation", self.T, self.validation_size, batch_size),
            lambda batch_size: self._held_out("test", self.test_length, self.test_size, batch_size),
        )

    def objective(self) -> Objective:
        """Return the cross-entropy, and the accuracy at every step and after some lengths."""
        return _OfWords(self, **judged(self))

    def length_at(self, step: int) -> int:
        """Return the length of the words of a training step: `start`, doubled every `double_every` steps, up to T."""
        if not self.double_every:
            return self.T
        return min(self.T, self.start << min(step // self.double_every, 40))

    def _batch(self, random: np.random.Generator, steps: int, batch_size: int) -> Batch:
        tokens = random.integers(0, len(self.letters), (steps, batch_size))
        products = self.finite_group.after(self.letters[tokens])
        return Batch(torch.from_numpy(tokens), torch.from_numpy(products))

    def _held_out(self, purpose: str, steps: int, size: int, batch_size: int) -> Iterator[Batch]:
        check_integer("batch_size", batch_size, 1)
        for index, first in enumerate(range(0, size, batch_size)):
            yield self._batch(stream(purpose, _HELD_OUT_SEED, index), steps, min(batch_size, size - first))


@dataclass(frozen=True)
class Groups(_Words):
    """Name the product of a word in a finite group, after each letter."""

    name: ClassVar[str] = "groups"

    group: str = "S5"
    """Name of the group: S2 to S7 (permutations), A3 to A7 (even ones), Z1 to Z4096 (cyclic) or D3 to D2048 (dihedral)."""
    tokens: Literal["elements", "generators"] = "elements"
    """Letters of the words: all elements of the group, or a few that generate it."""
    T: int = 32
    """Letters of a word in training and validation."""
    start: int = 4
    """With --double-every: letters of the first training words."""
    double_every: int = 0
    """Updates after which the training words double in length, from --start up to --T; 0 for words of --T from the start."""
    test_length: int = 1024
    """Letters of a word in the test, at least --T."""
    validation_size: int = 200
    """Words held out for validation."""
    test_size: int = 200
    """Words held out for the test."""

    def __post_init__(self) -> None:
        check_choice("tokens", self.tokens, ("elements", "generators"))
        super().__post_init__()

    @property
    def finite_group(self) -> FiniteGroup:
        """The group of this name."""
        return group_named(self.group)

    @property
    def letters(self) -> np.ndarray:
        """All elements, or the generators."""
        return np.array(self.finite_group.generators) if self.tokens == "generators" else super().letters


@dataclass(frozen=True)
class Parity(_Words):
    """Tell whether the number of ones so far is odd: the group Z2."""

    name: ClassVar[str] = "parity"

    T: int = 40
    """Bits of a word in training and validation."""
    start: int = 4
    """With --double-every: bits of the first training words."""
    double_every: int = 0
    """Updates after which the training words double in length, from --start up to --T; 0 for words of --T from the start."""
    test_length: int = 256
    """Bits of a word in the test, at least --T."""
    validation_size: int = 200
    """Words held out for validation."""
    test_size: int = 200
    """Words held out for the test."""

    @property
    def finite_group(self) -> FiniteGroup:
        """Z2."""
        return group_named("Z2")


@dataclass(frozen=True)
class ModularSums(_Words):
    """Compute the sum of the digits so far, modulo a number: the group Z_n."""

    name: ClassVar[str] = "modular-sums"

    modulus: int = 5
    """Modulus n, from 1 to 4096; the digits are 0 to n - 1."""
    T: int = 40
    """Digits of a word in training and validation."""
    start: int = 4
    """With --double-every: digits of the first training words."""
    double_every: int = 0
    """Updates after which the training words double in length, from --start up to --T; 0 for words of --T from the start."""
    test_length: int = 256
    """Digits of a word in the test, at least --T."""
    validation_size: int = 200
    """Words held out for validation."""
    test_size: int = 200
    """Words held out for the test."""

    def __post_init__(self) -> None:
        check_integer("modulus", self.modulus, 1, 4096)
        super().__post_init__()

    @property
    def finite_group(self) -> FiniteGroup:
        """Z_n."""
        return group_named(f"Z{self.modulus}")
