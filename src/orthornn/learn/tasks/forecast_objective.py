"""Forecasts as functions of a network's output and the targets: as of regression, or by quantiles.

The loss with quantiles is the pinball loss, 2 max(q e, (q - 1) e) with e = y - prediction, whose half is the absolute error
at q = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .forecast_metrics import pinball, scores
from .number_objective import NumberObjective
from .target_transform import in_units


@dataclass(frozen=True)
class ForecastObjective(NumberObjective):
    """The squared error, or the pinball loss.

    mean, deviation: Of each answer, (H C,). usual: What its absolute error is divided by in mase, (H C,). levels: The
        quantiles, ascending; none for a forecast of the mean. residuals: Of a plain method in training, for `errors`.
    """

    usual: np.ndarray = field(default_factory=lambda: np.ones(1))
    levels: tuple[float, ...] = ()
    residuals: np.ndarray | None = None

    @property
    def trivial_loss(self) -> float:
        """The loss of the training targets' mean, or of their quantiles, on the training targets, standardized."""
        if not self.levels:
            return NumberObjective.trivial_loss.fget(self)  # type: ignore[attr-defined]
        targets = self.known.numpy()
        return float(np.nanmean(pinball(np.nanquantile(targets, self.levels, 0).T[None], targets, self.levels)))

    def loss(self, output: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the mean squared error of the standardized targets, or the mean pinball loss."""
        if not self.levels:
            return super().loss(output, targets)
        rows, wanted = self.rows(output, targets)
        levels = torch.tensor(self.levels, dtype=rows.dtype, device=rows.device)
        errors = wanted.unsqueeze(-1) - rows.unflatten(-1, (wanted.shape[-1], len(levels)))
        return 2 * torch.maximum(levels * errors, (levels - 1) * errors)[~wanted.isnan()].mean()

    def metrics(self, output: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss, and in the targets' own units mse, mae, mape, smape, mase; with quantiles their coverage."""
        rows, wanted = self.rows(output, targets)
        found, known = (values.detach().double().cpu().numpy() for values in (rows, wanted))
        return self.sums(found, known)

    def sums(self, output: np.ndarray, targets: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the same of standardized arrays."""
        return scores(output, targets, self.mean, self.deviation, self.usual, self.levels, self.transform)

    def errors(self, output: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of standardized values (rows, H C), with the quantiles of `residuals`."""
        found = output.astype(np.float64)
        if self.levels:
            assert self.residuals is not None
            found = (found[..., None] + np.nanquantile(self.residuals, self.levels, 0).T).reshape(len(found), -1)
        return {name: total / count for name, (total, count) in self.sums(found, targets).items() if count}

    def in_units(self, output: Tensor) -> Tensor:
        """Return an output (..., O) in the targets' own units."""
        mean, deviation = (torch.from_numpy(scale).to(output) for scale in scales_of_outputs(self))
        return in_units(output * deviation + mean, self.transform)


def scales_of_outputs(objective: ForecastObjective) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of every output, those of an answer for each of its quantiles."""
    count = max(1, len(objective.levels))
    return np.repeat(objective.mean, count), np.repeat(objective.deviation, count)
