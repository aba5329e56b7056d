"""Forecasting of the user's own sequences: at every step t, the target of step t + ahead, or of t + 1 to t + horizons.

The network sees the target's past among its inputs, and of columns that are known ahead also the values at the steps that
it forecasts. The first `skipped` steps of a sequence or window have no loss:
there the state fills. Where a sequence is divided by time, validation and test begin with the steps before them, which are
known when the forecast is made; what is predicted is theirs only. The loss is that of regression, or with `quantiles` the
pinball loss, 2 max(q e, (q - 1) e) with e = y - prediction, whose half is the absolute error at q = 1/2.

On the same predicted test steps: the mean of the training targets; persistence, the last value seen, y_t; linear
autoregression by least squares from all inputs at the `skipped` (at least 1) last steps and a constant, where a missing value
is the last one seen; and the plain methods of plain_baselines.py. With quantiles a method without any of its own has those
of its errors in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice, check_integer
from ...errors import ArgumentError
from .forecast_metrics import pinball, scores
from .linear_start import start_linear
from .plain_baselines import Baseline, last_steps, season_of, smoothed_forecasts
from .regress import Numbers
from .splits import PARTS
from .table_options import modes_of
from .target_transform import in_units, transformed

LARGEST_HORIZON = 10_000
LARGEST_EMBEDDING = 4096


@dataclass(frozen=True)
class Forecast(Numbers):
    """Forecast columns of your own sequences, one or more steps ahead."""

    name: ClassVar[str] = "forecast"
    output = "all"
    sees_target: ClassVar[bool] = True
    predicts_ahead = True

    ahead: int = 1  # type: ignore[misc]
    """Steps ahead to forecast."""
    skipped: int = 16  # type: ignore[misc]
    """First steps of a sequence or window, which have no loss; also the order of the linear autoregression."""
    horizons: int | None = None
    """Number of steps to forecast at once, from the next one on. Default: only the step at --ahead."""
    quantiles: str | None = None
    """Quantiles of each forecast, separated by commas, such as 0.1,0.5,0.9. Default: the mean."""
    known: str | None = None  # type: ignore[misc]
    """Columns whose values are known ahead, such as prices or a calendar, separated by commas; the network also reads
    them at the steps to forecast. Default: none."""
    embedding: int | None = None  # type: ignore[misc]
    """Size of a trained vector for each of several series, which the network reads at every step; the series are then
    divided by time, unless --split-by is given. Default: no vectors."""
    new_series: Literal["error", "mean"] = "error"  # type: ignore[misc]
    """Vector of a series that training did not have: an error, or the mean of all vectors."""
    history: bool = True
    """Let validation and test begin with the steps before them, if sequences are divided by time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("ahead", self.ahead, 1)
        check_integer("skipped", self.skipped, 0)
        check_choice("new_series", self.new_series, ("error", "mean"))
        if self.embedding is not None:
            check_integer("embedding", self.embedding, 1, LARGEST_EMBEDDING)
        elif self.new_series != "error":
            raise ArgumentError(
                f"Expected new_series only with embedding, without which there are no vectors of series, but got "
                f"{self.new_series!r} alone. Leave it out, or give an embedding."
            )
        if self.horizons is not None:
            check_integer("horizons", self.horizons, 1, LARGEST_HORIZON)
            if self.ahead != 1:
                raise ArgumentError(f"Expected horizons or ahead, but got {self.horizons} and {self.ahead}. Name one.")
        _ = self.levels
        if "interpolate" in modes_of(self.missing).values():
            raise ArgumentError(
                "Expected a way to fill in missing values that does not look ahead, but got interpolate, which takes "
                "the value after a gap. For a forecast use hold, indicator or skip."
            )

    @property
    def leads(self) -> tuple[int, ...]:
        """How many steps ahead the forecasts are."""
        return (self.ahead,) if self.horizons is None else tuple(range(1, self.horizons + 1))

    @property
    def context(self) -> int:  # type: ignore[override]
        """Steps before a stretch of validation or test that its first windows begin with."""
        return self.skipped + self.leads[0] if self.history else 0

    @property
    def levels(self) -> list[float]:
        """The quantiles, ascending; none for a forecast of the mean."""
        try:
            found = [float(word) for word in (self.quantiles or "").split(",") if word.strip()]
        except ValueError:
            found = [float("nan")]
        names = {f"{level:g}" for level in found}
        ascending = sorted(set(found)) == found and len(names) == len(found)
        if not all(0 < level < 1 for level in found) or not ascending or (self.quantiles and not found):
            raise ArgumentError(
                f"Expected ascending quantiles between 0 and 1, separated by commas, but got {self.quantiles!r}. Give some "
                f"such as 0.1,0.5,0.9."
            )
        return found

    @property
    def output_size(self) -> int:
        """The targets, for each of the steps ahead, for each quantile."""
        return len(self.output_names)

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs: `demand` for one step ahead, `demand+3`, `demand+3 q0.9`."""
        ends = [f" q{level:g}" for level in self.levels] or [""]
        return [
            f"{column}{f'+{lead}' if self.horizons else ''}{end}"
            for lead in self.leads
            for column in self.target_columns
            for end in ends
        ]

    def answers(self, targets: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what is to be predicted at these rows of one sequence: (rows, H C), the nearest step first."""
        return np.concatenate([targets[rows + lead] for lead in self.leads], 1)

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing with a name, a mean and a deviation for each output, and the quantiles."""
        mean, deviation = (np.repeat(scale, max(1, len(self.levels))).tolist() for scale in self._scales[:2])
        targets = {"target_scale": deviation, "target_offset": mean, "labels": self.output_names}
        levels = {"quantiles": self.levels} if self.levels else {}
        return {**super().preprocessing(), **targets, **levels}

    def in_units(self, prediction: Tensor) -> Tensor:
        """Return a prediction (..., O) of a model in the targets' own units."""
        scales = (np.repeat(scale, max(1, len(self.levels))) for scale in self._scales[:2])
        mean, deviation = (torch.from_numpy(scale).to(prediction) for scale in scales)
        return in_units(prediction * deviation + mean, self.target_transform)

    @property
    def trivial_loss(self) -> float:
        """The loss of the training targets' mean, or of their quantiles, on the training targets, standardized."""
        if not self.levels:
            return super().trivial_loss
        targets = self._known("train").numpy()
        return float(np.nanmean(pinball(np.nanquantile(targets, self.levels, 0).T[None], targets, self.levels)))

    def baselines(self) -> dict[str, float]:
        """Return the test losses of the mean, of persistence and of linear autoregression."""
        if self.levels:
            return {}
        mean, deviation, _ = self._scales
        train, test = (self._parts[part].rows[self._parts[part].counted] for part in ("train", "test"))
        values = self._filled[test][:, : len(self.target_columns)]
        persistent = (np.tile(values, len(self.leads)) - mean) / deviation
        wanted = self._known("train").numpy()
        weights = np.linalg.lstsq(self._lags(train), wanted, rcond=None)[0]
        return {
            **super().baselines(),
            "persistence": self._test_loss(torch.from_numpy(persistent)),
            f"linear autoregression of order {self._order}": self._test_loss(
                torch.from_numpy(self._lags(test) @ weights)
            ),
        }

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the mean squared error of the standardized targets, or the mean pinball loss."""
        if not self.levels:
            return super().loss(prediction, targets)
        rows, wanted = self._rows(prediction, targets)
        levels = torch.tensor(self.levels, dtype=rows.dtype, device=rows.device)
        errors = wanted.unsqueeze(-1) - rows.unflatten(-1, (wanted.shape[-1], len(levels)))
        return 2 * torch.maximum(levels * errors, (levels - 1) * errors)[~wanted.isnan()].mean()

    def metrics(self, prediction: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss, and in the targets' own units mse, mae, mape, smape, mase; with quantiles their coverage."""
        rows, wanted = self._rows(prediction, targets)
        found, known = (values.detach().double().cpu().numpy() for values in (rows, wanted))
        return scores(found, known, *self._scales, self.levels, self.target_transform)

    def table_metrics(self, found: np.ndarray, wanted: np.ndarray, description: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics of forecasts (rows, O) and the values received (rows, H C), both in the targets' own units.

        Without mase, for which the training data are needed. description: What description.json holds.
        """
        scale, offset = (np.asarray(description[name]) for name in ("target_scale", "target_offset"))
        count = max(1, len(self.levels))
        mean, deviation = offset[::count], scale[::count]
        found, wanted = (transformed(values, self.target_transform) for values in (found, wanted))
        sums = scores(
            (found - offset) / scale,
            (wanted - mean) / deviation,
            mean,
            deviation,
            np.full(len(mean), np.nan),
            self.levels,
            self.target_transform,
        )
        return {name: total / number for name, (total, number) in sums.items() if number}

    def warm_start(self, model: Any) -> bool:
        """Begin with linear autoregression where a model reads the last steps; return whether it does.

        Which one is chosen by the validation part; see linear_start.py. With quantiles every one begins at that of the
        errors in training.
        """
        if model.recent is None:
            return False
        train, validation = (self._lagged(part, model.recent.lags) for part in ("train", "validation"))
        start_linear(model, train, validation, self._own_past, self.levels)
        return True

    @property
    def _own_past(self) -> list[tuple[int, float]]:
        """For each answer (H C,) the input that is its own past, and the factor between their standardized values."""
        names = [channel.name for channel in self._channels]
        if not {*self.target_columns} <= {*names}:
            return []
        places = [names.index(column) for column in self.target_columns]
        factors = (self._scale[1][places] / self._target_scale[1]).tolist()
        return [*zip(places, factors)] * len(self.leads)

    def _lagged(self, name: str, lags: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the last steps (rows, k I) and the answers (rows, H C) of a part, where all of them are there."""
        part = self._parts[name]
        targets = part.targets.double().numpy()
        chosen = part.counted & ~np.isnan(targets).any(1)
        inputs = part.inputs[:, : self._plain_inputs].double().numpy()
        rows = last_steps(inputs, part.pieces.lengths, lags, self._later_inputs)
        return rows[chosen], targets[chosen]

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and deviation of every answer, transformed, and what its absolute error is divided by in mase: (H C,) each.

        That is the mean change, in the targets' own units, of the training part from one step, or where there is a season
        one season, to the next.
        """
        mean, deviation = self._target_scale
        targets, sequences = in_units(self._table.targets, self.target_transform), self._table.sequences
        period = (self._season if len(sequences) == 1 else None) or 1
        known = np.zeros(len(targets), bool)
        known[self._training_rows] = True
        own = np.repeat(np.arange(len(sequences)), sequences.lengths)
        pairs = known[period:] & known[:-period] & (own[period:] == own[:-period])
        changes = np.abs(targets[period:] - targets[:-period])[pairs]
        spread = deviation if self.target_transform is None else np.nanstd(targets[known], 0)
        changes = changes[np.isfinite(changes).all(1)]
        usual = changes.mean(0) if len(changes) else spread
        usual = np.where(np.isfinite(usual) & (usual > 0), usual, spread)
        count = len(self.leads)
        return np.tile(mean, count), np.tile(deviation, count), np.tile(usual, count)

    @cached_property
    def _season(self) -> int | None:
        """The period of the first target of a single series."""
        known = int(max(at + steps for at, steps in self._pieces["train"]))
        return season_of(self._filled[:known, 0])

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        found = np.asarray(method.predict(features)).reshape(targets.shape)
        if not self.levels:
            return self._errors(found, targets)
        train = self._samples("train")
        (own,) = train.features.values()
        residuals = train.targets - np.asarray(method.predict(own)).reshape(train.targets.shape)
        return self._errors(found, targets, residuals)

    def _errors(self, found: np.ndarray, targets: np.ndarray, residuals: np.ndarray | None = None) -> dict[str, float]:
        """The metrics of standardized values (rows, H C). residuals: Errors in training, for their quantiles."""
        found = found.astype(np.float64)
        if self.levels:
            assert residuals is not None
            found = (found[..., None] + np.nanquantile(residuals, self.levels, 0).T).reshape(len(found), -1)
        sums = scores(found, targets, *self._scales, self.levels, self.target_transform)
        return {name: total / count for name, (total, count) in sums.items() if count}

    def plain_baselines(self) -> list[Baseline]:
        """Return also persistence and, where the file is one series, seasonal naive and exponential smoothing."""
        mean, deviation, _ = self._scales
        leads = self.leads
        values = self._filled[:, : len(self.target_columns)]
        answers = {"persistence": np.tile(values, len(leads))}
        if len(self._table.sequences) == 1:
            known = int(max(at + steps for at, steps in self._pieces["train"]))
            season = self._season
            if season is not None:
                places = [np.arange(len(values)) - (season * -(-lead // season) - lead) for lead in leads]
                answers[f"seasonal naive, period {season}"] = np.concatenate([values[p.clip(0)] for p in places], 1)
            smooth = [smoothed_forecasts(column, known, lead, season) for lead in leads for column in values.T]
            if all(column is not None for column in smooth):
                answers["exponential smoothing"] = np.stack(smooth, 1)  # type: ignore[arg-type]
        found = super().plain_baselines()
        for name, answer in answers.items():
            standard = (answer - mean) / deviation
            parts = {}
            for part in PARTS:
                counted = self._parts[part].counted & self._counted_targets(self._parts[part].targets.numpy())
                parts[part] = (standard[self._parts[part].rows[counted]], self._parts[part].targets.numpy()[counted])
            residuals = parts["train"][1] - parts["train"][0]
            metrics = {part: self._errors(*parts[part], residuals) for part in ("validation", "test")}
            if all(np.isfinite(score["loss"]) for score in metrics.values()):
                found.append(Baseline(name, **metrics))
        return found

    @property
    def _order(self) -> int:
        return max(1, self.skipped)

    @cached_property
    def _filled(self) -> np.ndarray:
        """Targets and features (R, C + I), transformed as the network has them, a missing one being the last one seen in its
        sequence, at first the training mean."""
        table = self._table
        values = np.concatenate([table.targets, table.features], 1)
        values[~table.observed, len(self.target_columns) :] = np.nan
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
        features = ((self._filled[:, len(self.target_columns) :] - mean) / deviation)[:, : self._plain_inputs]
        own = features[:, : features.shape[1] - self._later_inputs]
        lags = [features[rows], *(own[rows - back] for back in range(1, self._order))]
        return np.concatenate([np.ones((len(rows), 1)), *lags], 1)
