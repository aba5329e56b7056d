"""Forecasting of the user's own sequences: at every step t, the target of step t + ahead.

The network sees the target's past among its inputs. The first `skipped` steps of a sequence or window have no loss:
there the state fills. The loss is that of regression. It is compared, on the same predicted test steps, with:

the mean of the training targets
persistence: the last value seen, y_t
linear autoregression: least squares, on the training part, from all inputs at the `skipped` (at least 1) last steps
and a constant; a missing value is the last one seen
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch

from ..._checks import check_integer
from ...errors import ArgumentError
from .plain_baselines import Baseline, season_of, smoothed_forecasts
from .regress import Numbers
from .table_task import modes_of


@dataclass(frozen=True)
class Forecast(Numbers):
    """Forecast columns of your own sequences, one or more steps ahead."""

    name: ClassVar[str] = "forecast"
    output = "all"
    sees_target: ClassVar[bool] = True

    ahead: int = 1  # type: ignore[misc]
    """How many steps ahead."""
    skipped: int = 16  # type: ignore[misc]
    """First steps of a sequence or window that have no loss; also the order of the linear autoregression."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("ahead", self.ahead, 1)
        check_integer("skipped", self.skipped, 0)
        if "interpolate" in modes_of(self.missing).values():
            raise ArgumentError(
                "Expected a way to fill in missing values that does not look ahead, but got interpolate, which takes "
                "the value after a gap. For a forecast use hold, indicator or skip."
            )

    def baselines(self) -> dict[str, float]:
        """Return the test losses of the mean, of persistence and of linear autoregression."""
        mean, deviation = self._target_scale
        train, test = (self._parts[part].rows[self._parts[part].counted] for part in ("train", "test"))
        persistent = (self._filled[test][:, : self.output_size] - mean) / deviation
        wanted = self._known("train").numpy()
        weights = np.linalg.lstsq(self._lags(train), wanted, rcond=None)[0]
        return {
            **super().baselines(),
            "persistence": self._test_loss(torch.from_numpy(persistent)),
            f"linear autoregression of order {self._order}": self._test_loss(
                torch.from_numpy(self._lags(test) @ weights)
            ),
        }

    def plain_baselines(self) -> list[Baseline]:
        """Return also persistence and, where the file is one series, seasonal naive and exponential smoothing."""
        mean, deviation = self._target_scale
        values = self._filled[:, : self.output_size]
        answers = {"persistence": (values - mean) / deviation}
        if len(self._table.sequences) == 1:
            known = int(max(at + steps for at, steps in self._pieces["train"]))
            season = season_of(values[:known, 0])
            if season is not None:
                back = season * -(-self.ahead // season) - self.ahead
                places = np.arange(len(values)) - back
                answers[f"seasonal naive, period {season}"] = (values[places.clip(0)] - mean) / deviation
            smooth = [smoothed_forecasts(column, known, self.ahead, season) for column in values.T]
            if all(column is not None for column in smooth):
                forecasts = np.stack(smooth, 1)  # type: ignore[arg-type]
                answers["exponential smoothing"] = (forecasts - mean) / deviation
        found = super().plain_baselines()
        for name, answer in answers.items():
            scores = {}
            for part in ("validation", "test"):
                rows, counted = self._parts[part].rows, self._parts[part].counted
                targets = self._parts[part].targets.numpy()
                counted = counted & self._counted_targets(targets)
                scores[part] = self._errors(answer[rows[counted]], targets[counted])
            if all(np.isfinite(score["loss"]) for score in scores.values()):
                found.append(Baseline(name, **scores))
        return found

    @property
    def _order(self) -> int:
        return max(1, self.skipped)

    @cached_property
    def _filled(self) -> np.ndarray:
        """Targets and features (R, O + I), a missing one being the last one seen in its sequence, at first the
        training mean."""
        table = self._table
        values = np.concatenate([table.targets, table.features], 1)
        values[~table.observed, self.output_size :] = np.nan
        means = np.concatenate([self._target_scale[0], self._scale[0]])
        place = np.arange(len(values))[:, None]
        known = np.where(np.isfinite(values), place, -1)
        starts = np.repeat(table.sequences.starts, table.sequences.lengths)[:, None]
        last = np.maximum.accumulate(known, 0)  # one of an earlier sequence is before its own start
        found = np.take_along_axis(values, last.clip(0), 0)
        return np.where(last >= starts, found, means)

    def _lags(self, rows: np.ndarray) -> np.ndarray:
        """Return what linear autoregression sees at these rows: (rows, 1 + order * I)."""
        mean, deviation = self._scale
        features = (self._filled[:, self.output_size :] - mean) / deviation
        lags = [features[rows - back] for back in range(self._order)]
        return np.concatenate([np.ones((len(rows), 1)), *lags], 1)
