"""Regression as functions of a network's output and the targets, which are standardized; one that is not there is NaN.

The loss is the mean squared error of the standardized targets, over all that are there; `mse` is the same in the
targets' own units. The trivial baseline is the mean of the training targets. With a transform (target_transform.py), all
are those of transformed targets, but for the metrics in the targets' own units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .objective import Objective
from .problem import Batch
from .regression_metrics import own_scores, sums, with_r2
from .sequences import flat
from .target_transform import in_units


@dataclass(frozen=True)
class NumberObjective(Objective):
    """The squared error.

    mean, deviation: Of each output, (O,). known: The standardized training targets that enter the loss, float64 (rows, O).
    transform: Of the targets.
    """

    trivial_formula: ClassVar[str] = "the variance of the standardized training targets"

    mean: np.ndarray
    deviation: np.ndarray
    known: Tensor
    transform: str | None = None

    @property
    def trivial_loss(self) -> float:
        """The squared error of the training targets' mean, on the training targets, standardized."""
        return float((self.known - self.known.nanmean(0)).square().nanmean())

    def rows(self, output: Tensor, targets: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
        """Return output and targets row by row, (rows, O) each."""
        rows, wanted = flat(output, targets) if self.output == "all" else (output, targets)
        assert isinstance(wanted, Tensor)
        return rows, wanted

    def loss(self, output: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the mean squared error of the standardized targets."""
        rows, wanted = self.rows(output, targets)
        there = ~wanted.isnan()
        return (rows[there] - wanted[there]).square().mean()

    def summarized(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics with r2, where it is defined."""
        return with_r2(means)

    def mass(self, batch: Batch) -> float:
        """Return how many targets there are."""
        targets = batch.targets
        wanted = targets.data if isinstance(targets, PackedSequence) else targets
        return int((~wanted.isnan()).sum())

    def metrics(self, output: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss, and in the targets' own units mse, mae and what r2 needs, the means over the targets if there are
        several; see regression_metrics.py.
        """
        rows, wanted = self.rows(output, targets)
        squares = (rows - wanted).square().detach().double()
        mean, deviation = (torch.from_numpy(scale).to(squares.device) for scale in (self.mean, self.deviation))
        if self.transform is None:
            own = squares * deviation.square()
            errors, shifted = (values.detach().double() * deviation for values in (rows - wanted, wanted))
        else:
            said, true = (self.in_units(values.detach().double()) for values in (rows, wanted))
            errors, shifted = said - true, true - in_units(mean, self.transform)
            own = errors.square()
        there = ~wanted.isnan()  # a prediction that is NaN, unlike a target, is no missing value
        count = int(there.sum())
        return {
            "loss": (float(squares[there].sum()), count),
            "mse": (float(own[there].sum()), count),
            **sums(errors, shifted),
        }

    def errors(self, output: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of standardized values (rows, O)."""
        squares = np.square(output.astype(np.float64) - targets)
        said, true = (self.in_units(torch.from_numpy(values).double()).numpy() for values in (output, targets))
        own = squares * self.deviation**2 if self.transform is None else np.square(said - true)
        return {"loss": float(squares.mean()), "mse": float(own.mean()), **own_scores(said, true)}

    def in_units(self, output: Tensor) -> Tensor:
        """Return an output (..., O) in the targets' own units."""
        mean, deviation = (torch.from_numpy(scale).to(output) for scale in (self.mean, self.deviation))
        return in_units(output * deviation + mean, self.transform)
