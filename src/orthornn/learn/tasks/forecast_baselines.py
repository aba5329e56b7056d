"""Forecasts of simple methods from the past of a table: persistence, linear autoregression, seasonal naive, smoothing.

On the same predicted test steps: persistence, the last value seen, y_t; linear autoregression by least squares from all
inputs at the `skipped` (at least 1) last steps and a constant, where a missing value is the last one seen; and the plain
methods of
plain_baselines.py. With quantiles a method without any of its own has those of its errors in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .forecast_objective import ForecastObjective
from .plain_baselines import Baseline, season_of, smoothed_forecasts
from .splits import PARTS
from .table_data import TableData
from .table_options import TableOptions
from .table_splits import Split
from .target_transform import in_units


@dataclass(frozen=True)
class Past:
    """The past that is known at each row of a table.

    targets (R, C), features (R, I): Transformed as the network has them, a missing one being the last one seen in its
        sequence, at first the training mean. train: The rows up to the end of the last training piece. season: The period of
        the first target of a single series; None without one.
    """

    targets: np.ndarray
    features: np.ndarray
    train: int
    season: int | None


def past_of(data: TableData, split: Split) -> Past:
    """Return what is known at each row."""
    targets = data.targets
    count = targets.values.shape[1]
    values = np.concatenate([targets.values, data.features], 1)
    values[~data.observed, count:] = np.nan
    means = np.concatenate([targets.mean, data.mean])
    known = np.where(np.isfinite(values), np.arange(len(values))[:, None], -1)
    starts = np.repeat(data.rows.starts, data.rows.lengths)[:, None]
    last = np.maximum.accumulate(known, 0)  # one of an earlier sequence is before its own start
    filled = np.where(last >= starts, np.take_along_axis(values, last.clip(0), 0), means)
    train = int(max(at + steps for at, steps in split.pieces["train"]))
    return Past(filled[:, :count], filled[:, count:], train, season_of(filled[:train, 0]))


def usual_changes(options: TableOptions, data: TableData, split: Split, past: Past) -> np.ndarray:
    """Return what the absolute error of each target is divided by in mase, (C,).

    That is the mean change, in the targets' own units, of the training part from one step, or where there is a season
    one season, to the next.
    """
    targets = data.targets
    values = in_units(targets.values, options.target_transform)
    period = (past.season if len(data.rows) == 1 else None) or 1
    known = np.zeros(len(values), bool)
    known[split.training_rows] = True
    own = np.repeat(np.arange(len(data.rows)), data.rows.lengths)
    pairs = known[period:] & known[:-period] & (own[period:] == own[:-period])
    changes = np.abs(values[period:] - values[:-period])[pairs]
    spread = targets.deviation if options.target_transform is None else np.nanstd(values[known], 0)
    changes = changes[np.isfinite(changes).all(1)]
    usual = changes.mean(0) if len(changes) else spread
    return np.where(np.isfinite(usual) & (usual > 0), usual, spread)


def lags_of(data: TableData, past: Past, rows: np.ndarray, order: int) -> np.ndarray:
    """Return what linear autoregression sees at these rows: (rows, 1 + order * I)."""
    features = ((past.features - data.mean) / data.deviation)[:, : data.plain_inputs]
    own = features[:, : features.shape[1] - data.later_inputs]
    lags = [features[rows], *(own[rows - back] for back in range(1, order))]
    return np.concatenate([np.ones((len(rows), 1)), *lags], 1)


def forecast_baselines(
    data: TableData, past: Past, leads: Sequence[int], objective: ForecastObjective
) -> list[Baseline]:
    """Return persistence and, where the file is one series, seasonal naive and exponential smoothing, with their metrics."""
    values, season = past.targets, past.season
    answers = {"persistence": np.tile(values, len(leads))}
    if len(data.rows) == 1:
        if season is not None:
            places = [np.arange(len(values)) - (season * -(-lead // season) - lead) for lead in leads]
            answers[f"seasonal naive, period {season}"] = np.concatenate([values[p.clip(0)] for p in places], 1)
        smooth = [smoothed_forecasts(column, past.train, leads, season) for column in values.T]
        if all(one is not None for one in smooth):
            answers["exponential smoothing"] = np.stack(smooth, 2).reshape(len(values), -1)  # type: ignore[arg-type]
    found = []
    for name, answer in answers.items():
        standard = (answer - objective.mean) / objective.deviation
        parts = {}
        for part in PARTS:
            own = data.parts[part]
            counted = own.counted & data.targets.counted(own.targets.numpy())
            parts[part] = (standard[own.rows[counted]], own.targets.numpy()[counted])
        scored = replace(objective, residuals=parts["train"][1] - parts["train"][0])
        metrics = {part: scored.errors(*parts[part]) for part in ("validation", "test")}
        if all(np.isfinite(score["loss"]) for score in metrics.values()):
            found.append(Baseline(name, **metrics))
    return found
