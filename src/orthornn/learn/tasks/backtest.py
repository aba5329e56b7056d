"""A backtest: forecasts from several origins in the test part, of trained networks next to statistical methods.

An origin is the last step that a forecast knows. Those of a series are evenly spaced over the steps of the test part at which
the network's test has forecasts, the first and the last among them. What is known grows with the origin:

network         trained once, on the training part; reads its series up to the origin
persistence     the last value
seasonal naive  the value one season before, where the values before the origin have a season
ETS             exponential smoothing (Hyndman et al., 2008), additive, without trend, with one, or with a damped one, with
                a season where there is one: the least corrected AIC; fitted again at every origin
theta           Assimakopoulos and Nikolopoulos, 2000; fitted again at every origin

The last two are those of statsmodels, and are fitted on the last FITTED steps before the origin.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._optional_packages import import_optional
from ...errors import DataError
from .forecast_objective import ForecastObjective
from .plain_baselines import season_of
from .table_data import MOST_STEPS, TableData

LARGEST_BACKTEST = 10_000
FITTED = 2000
LEAST_HISTORY = 10  # steps up to an origin, below which statsmodels has no first level of ETS

Fitted = Callable[[np.ndarray, int, int | None], np.ndarray | None]
"""From values (T,), a number of steps and the period: the forecasts of the steps after them; None if it cannot be fitted."""


class Origins(NamedTuple):
    """Those of one series. series: Its number. start: Its first row. rows: (K,) int64, of the table, ascending."""

    series: int
    start: int
    rows: np.ndarray


class Backtest(NamedTuple):
    """Origins, and the errors of every method over all of them by the names of its metrics.

    notes: About methods that are left out.
    """

    origins: list[Origins]
    errors: dict[str, dict[str, float]]
    notes: list[str]


def check_backtest() -> None:
    """Raise MissingPackageError without statsmodels."""
    import_optional("statsmodels", "baselines", "a backtest")


def origins_of(data: TableData, count: int) -> list[Origins]:
    """Return the origins of each series of the test part.

    Raises:
        DataError: If a series has fewer steps with forecasts, or too few before the first.
    """
    test, found = data.parts["test"], []
    forecast = np.unique(test.rows[test.counted & data.targets.counted(test.targets.numpy())])
    for series, (start, length) in enumerate(zip(data.rows.starts.tolist(), data.rows.lengths.tolist())):
        own = forecast[(forecast >= start) & (forecast < start + length)]
        if not len(own):
            continue
        if len(own) < count:
            raise DataError(
                f"Expected at least {count} step(s) of the test part with forecasts in every series, one for each origin of "
                f"the backtest, but got {len(own)}. Ask for fewer with backtest, --backtest, or raise test_share, "
                f"--test-share."
            )
        rows = own[np.linspace(0, len(own) - 1, count).round().astype(np.int64)] if count > 1 else own[-1:]
        if rows[0] + 1 - start < LEAST_HISTORY:
            raise DataError(
                f"Expected at least {LEAST_HISTORY} steps of a series up to the first origin of a backtest, but got "
                f"{rows[0] + 1 - start}. Leave out backtest, --backtest, or give longer series, or more skipped, --skipped."
            )
        found.append(Origins(series, start, rows))
    return found


def backtest(
    data: TableData,
    known: np.ndarray,
    leads: Sequence[int],
    objective: ForecastObjective,
    count: int,
    networks: Mapping[str, Callable[[Tensor], Tensor]],
) -> Backtest:
    """Return the errors of networks and of the statistical methods.

    With quantiles, the forecast of a network is the one nearest to the median.

    Args:
        data: The table.
        known: (R, C), the last value of each target that is known at each row, as `Past.targets`.
        leads: How many steps ahead the forecasts are.
        objective: What is learned.
        count: Origins of each series.
        networks: By name: from inputs (T, 1, I) to outputs (T, 1, O).

    Raises:
        DataError: If a series is too short for it.
        MissingPackageError: Without statsmodels.
    """
    check_backtest()
    origins = origins_of(data, count)
    rows = np.concatenate([one.rows for one in origins])
    wanted = np.concatenate([data.targets.values[rows + lead] for lead in leads], 1)
    wanted = (wanted - objective.mean) / objective.deviation
    points = replace(objective, levels=())
    found = {
        name: np.concatenate([_of_network(run, data, one, objective) for one in origins])
        for name, run in networks.items()
    }
    notes = []
    for name, method in METHODS.items():
        values = [_of_method(method, known[one.start : row + 1], leads) for one in origins for row in one.rows]
        lacking = sum(value is None for value in values)
        if lacking:
            notes.append(f"{name} is left out: it has no forecast at {lacking} of {len(values)} origins")
            continue
        found[name] = (np.stack(values) - objective.mean) / objective.deviation  # type: ignore[arg-type]
    return Backtest(origins, {name: points.errors(forecasts, wanted) for name, forecasts in found.items()}, notes)


@torch.no_grad()
def _of_network(
    network: Callable[[Tensor], Tensor], data: TableData, origins: Origins, objective: ForecastObjective
) -> np.ndarray:
    """Return its standardized forecasts (K, H C)."""
    first, last = origins.rows[[0, -1]]
    rows = np.arange(max(origins.start, first - MOST_STEPS), last + 1)
    rows = rows[data.observed[rows]]
    outputs = network(data.standardized(rows).unsqueeze(1))[:, 0].double().numpy()
    chosen: np.ndarray = outputs[np.searchsorted(rows, origins.rows)]
    if objective.levels:
        middle = int(np.argmin(np.abs(np.array(objective.levels) - 0.5)))
        chosen = chosen[:, middle :: len(objective.levels)]
    return chosen


def _of_method(method: Fitted, known: np.ndarray, leads: Sequence[int]) -> np.ndarray | None:
    """Return the forecasts (H C,) of a method from the values (T, C) up to an origin; None where it has none."""
    columns = []
    for values in known.T:
        values = np.ascontiguousarray(values, dtype=np.float64)
        found = np.full(leads[-1], values[-1]) if np.ptp(values) == 0 else method(values, leads[-1], season_of(values))
        if found is None or not np.isfinite(found).all():
            return None
        columns.append(found[np.array(leads) - 1])
    return np.stack(columns, 1).ravel()


def persistence(values: np.ndarray, steps: int, period: int | None) -> np.ndarray:
    """Return the last value at all steps."""
    return np.full(steps, values[-1])


def seasonal_naive(values: np.ndarray, steps: int, period: int | None) -> np.ndarray | None:
    """Return the values of the last season again and again; None without a period."""
    return None if period is None else np.resize(values[-period:], steps)


def ets(values: np.ndarray, steps: int, period: int | None) -> np.ndarray | None:
    """Return the forecasts of the exponential smoothing that has the least corrected AIC."""
    smoothing = importlib.import_module("statsmodels.tsa.exponential_smoothing.ets")
    values = values[-FITTED:]
    seasonal = period if period is not None and len(values) >= 2 * period + 2 else None
    best: Any = None
    for trend in ({"trend": None}, {"trend": "add"}, {"trend": "add", "damped_trend": True}):
        for season in ({}, {"seasonal": "add", "seasonal_periods": seasonal}) if seasonal else ({},):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = smoothing.ETSModel(values, **trend, **season, initialization_method="heuristic")
                    fit = model.fit(disp=False)
            except Exception:  # numpy's and statsmodels' own, of a series that it cannot fit
                continue
            if np.isfinite(fit.aicc) and (best is None or fit.aicc < best.aicc):
                best = fit
    return None if best is None else np.asarray(best.forecast(steps), np.float64)


def theta(values: np.ndarray, steps: int, period: int | None) -> np.ndarray | None:
    """Return the forecasts of the theta method, without the season where there is one."""
    forecasting = importlib.import_module("statsmodels.tsa.forecasting.theta")
    values = values[-FITTED:]
    seasonal = period if period is not None and len(values) >= 2 * period + 2 else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = forecasting.ThetaModel(values, period=seasonal or 1, deseasonalize=seasonal is not None)
            return np.asarray(model.fit().forecast(steps), np.float64)
    except Exception:  # numpy's and statsmodels' own, of a series that it cannot fit
        return None


METHODS: dict[str, Fitted] = {
    "persistence": persistence,
    "seasonal naive": seasonal_naive,
    "ETS": ets,
    "theta": theta,
}
"""The statistical methods by name."""
