"""Forecasting of the user's own sequences: at every step t, the target of step t + ahead, or of t + 1 to t + horizons.

The network sees the target's past among its inputs, and of columns that are known ahead also the values at the steps that
it forecasts. The first `skipped` steps of a sequence or window have no loss:
there the state fills. Where a sequence is divided by time, validation and test begin with the steps before them, which are
known when the forecast is made; what is predicted is theirs only. For the loss see forecast_objective.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ..._checks import check_integer
from ...errors import ArgumentError
from .abilities import baselines, plain_baselines, warm_start
from .backtest import LARGEST_BACKTEST, Backtest, backtest, check_backtest, origins_of
from .forecast_baselines import forecast_baselines, lags_of, past_of, usual_changes
from .forecast_objective import ForecastObjective, scales_of_outputs
from .linear_start import start_linear
from .plain_baselines import Baseline, last_steps
from .regress import Numbers, known_targets, loss_of
from .table_data import ReadTable, TableData
from .table_options import Forecasting, modes_of, names_in
from .table_task import TableTask
from .target_transform import transformed
from .task import judged

LARGEST_HORIZON = 10_000
LARGEST_EMBEDDING = 4096


@dataclass(frozen=True)
class Forecast(Numbers):
    """Forecast columns of your own sequences, one or more steps ahead."""

    name: ClassVar[str] = "forecast"
    output = "all"
    predicts_ahead = True

    ahead: int = 1
    """Steps ahead to forecast."""
    skipped: int = 16
    """First steps of a sequence or window, which have no loss; also the order of the linear autoregression."""
    horizons: int | None = None
    """Number of steps to forecast at once, from the next one on. Default: only the step at --ahead."""
    quantiles: str | None = None
    """Quantiles of each forecast, separated by commas, such as 0.1,0.5,0.9. Default: the mean."""
    known: str | None = None
    """Columns whose values are known ahead, such as prices or a calendar, separated by commas; the network also reads
    them at the steps to forecast. Default: none."""
    embedding: int | None = None
    """Size of a trained vector for each of several series, which the network reads at every step; the series are then
    divided by time, unless --split-by is given. Default: no vectors."""
    new_series: Literal["error", "mean"] = "error"
    """Vector of a series that training did not have: an error, or the mean of all vectors."""
    history: bool = True
    """Let validation and test begin with the steps before them, if sequences are divided by time."""
    backtest: int | None = None
    """Origins per series in the test part, from which the trained network forecasts next to persistence, seasonal naive,
    ETS and theta (extra baselines). The network is trained once, ETS and theta are fitted at every origin. Default: no
    backtest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("ahead", self.ahead, 1)
        check_integer("skipped", self.skipped, 0)
        if self.backtest is not None:
            check_integer("backtest", self.backtest, 1, LARGEST_BACKTEST)
        if self.embedding is not None:
            check_integer("embedding", self.embedding, 1, LARGEST_EMBEDDING)
        elif self.new_series != "error":
            raise ArgumentError(
                f"Expected new_series only with embedding, without which there are no vectors of series, but got "
                f"{self.new_series!r} alone. Leave it out, or give an embedding."
            )
        if self.irregular and self.embedding is not None:
            raise ArgumentError(
                f"Expected no embedding with irregular, but got {self.embedding}. Leave one of them out."
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
    def forecasting(self) -> Forecasting:
        """The steps ahead, and the other options of a forecast."""
        leads = (self.ahead,) if self.horizons is None else tuple(range(1, self.horizons + 1))
        context = self.skipped + leads[0] if self.history else 0
        return Forecasting(leads, self.skipped, context, self.known, self.embedding, self.new_series)

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

    def _objective(self, read: ReadTable) -> ForecastObjective:
        """Return the squared error or the pinball loss, in the scale of the training part."""
        data, own, count = read.data, read.data.targets, len(self.forecasting.leads)
        usual = usual_changes(self, data, read.split, past_of(data, read.split))
        mean, deviation, usual = (np.tile(scale, count) for scale in (own.mean, own.deviation, usual))
        known, levels = known_targets(data, "train"), tuple(self.levels)
        return ForecastObjective(mean, deviation, known, self.target_transform, usual, levels, **judged(self))

    def _outputs(self, read: ReadTable) -> dict[str, Any]:
        """Return the same with a name, a mean and a deviation for each output, and the quantiles."""
        mean, deviation = (scale.tolist() for scale in scales_of_outputs(read.objective))
        names = output_names(self)
        targets = {"output_size": len(names), "target_scale": deviation, "target_offset": mean, "labels": names}
        levels = {"quantiles": self.levels} if self.levels else {}
        return {**super()._outputs(read), **targets, **levels}

    def summary_lines(self) -> list[str]:
        """Return also the origins of a backtest. DataError where there are none, MissingPackageError without its package."""
        lines = super().summary_lines()
        if self.backtest is None:
            return lines
        check_backtest()
        count = len(origins_of(self.table().data, self.backtest))
        each = f", in each of {count} series" if count > 1 else ""
        return [*lines, f"backtest: {self.backtest} origin{'s' if self.backtest > 1 else ''} in the test part{each}"]

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        found = np.asarray(method.predict(features)).reshape(targets.shape)
        if not self.levels:
            return self.objective().errors(found, targets)
        train = self._samples("train")
        (own,) = train.features.values()
        residuals = train.targets - np.asarray(method.predict(own)).reshape(train.targets.shape)
        return replace(self.objective(), residuals=residuals).errors(found, targets)


@baselines.register
def _(task: Forecast) -> dict[str, float]:
    """Return the test losses of the mean, of persistence and of linear autoregression."""
    if task.levels:
        return {}
    read, objective, order = task.table(), task.objective(), max(1, task.skipped)
    data, past = read.data, past_of(read.data, read.split)
    train, test = (data.parts[part].rows[data.parts[part].counted] for part in ("train", "test"))
    persistent = np.tile(past.targets[test], len(task.forecasting.leads))
    persistent = (persistent - objective.mean) / objective.deviation
    weights = np.linalg.lstsq(lags_of(data, past, train, order), objective.known.numpy(), rcond=None)[0]
    linear = torch.from_numpy(lags_of(data, past, test, order) @ weights)
    return {
        **baselines.dispatch(Numbers)(task),
        "persistence": loss_of(data, torch.from_numpy(persistent)),
        f"linear autoregression of order {order}": loss_of(data, linear),
    }


@plain_baselines.register
def _(task: Forecast) -> list[Baseline]:
    """Return also persistence and, where the file is one series, seasonal naive and exponential smoothing."""
    read, leads = task.table(), task.forecasting.leads
    past = past_of(read.data, read.split)
    found = plain_baselines.dispatch(TableTask)(task)
    return found + forecast_baselines(read.data, past, leads, task.objective())


@warm_start.register
def _(task: Forecast, model: Any) -> bool:
    """Begin with linear autoregression where a model reads the last steps; return whether it does.

    Which one is chosen by the validation part; see linear_start.py. With quantiles every one begins at that of the
    errors in training.
    """
    if model.recent is None:
        return False
    train, validation = (_lagged(task.table().data, part, model.recent.lags) for part in ("train", "validation"))
    start_linear(model, train, validation, _own_past(task), task.levels)
    return True


def _own_past(task: Forecast) -> list[tuple[int, float]]:
    """Return for each answer (H C,) the input that is its own past, and the factor between their standardized values."""
    data, columns = task.table().data, names_in(task.target)
    names = [channel.name for channel in data.channels]
    if not {*columns} <= {*names}:
        return []
    places = [names.index(column) for column in columns]
    factors = (data.deviation[places] / data.targets.deviation).tolist()
    return [*zip(places, factors)] * len(task.forecasting.leads)


def _lagged(data: TableData, name: str, lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the last steps (rows, k I) and the answers (rows, H C) of a part, where all of them are there."""
    part = data.parts[name]
    targets = part.targets.double().numpy()
    chosen = part.counted & ~np.isnan(targets).any(1)
    inputs = part.inputs[:, : data.plain_inputs].double().numpy()
    rows = last_steps(inputs, part.pieces.lengths, lags, data.later_inputs)
    return rows[chosen], targets[chosen]


def output_names(task: Forecast) -> list[str]:
    """Return the names of the outputs: `demand` for one step ahead, `demand+3`, `demand+3 q0.9`."""
    ends = [f" q{level:g}" for level in task.levels] or [""]
    return [
        f"{column}{f'+{lead}' if task.horizons else ''}{end}"
        for lead in task.forecasting.leads
        for column in names_in(task.target)
        for end in ends
    ]


def metrics_in_units(
    task: Forecast, found: np.ndarray, wanted: np.ndarray, description: Mapping[str, Any]
) -> dict[str, float]:
    """Return the metrics of forecasts (rows, O) and the values received (rows, H C), both in the targets' own units.

    Without mase, for which the training data are needed. description: What description.json holds.
    """
    scale, offset = (np.asarray(description[name]) for name in ("target_scale", "target_offset"))
    count = max(1, len(task.levels))
    mean, deviation = offset[::count], scale[::count]
    found, wanted = (transformed(values, task.target_transform) for values in (found, wanted))
    usual, levels = np.full(len(mean), np.nan), tuple(task.levels)
    own = ForecastObjective(mean, deviation, torch.empty(0), task.target_transform, usual, levels, **judged(task))
    sums = own.sums((found - offset) / scale, (wanted - mean) / deviation)
    return {name: total / number for name, (total, number) in sums.items() if number}


def backtested(task: Forecast, networks: Mapping[str, Any]) -> Backtest:
    """Return the backtest that a task asks for, of trained networks by name."""
    assert task.backtest is not None
    data, split = task.table().data, task.table().split
    known = past_of(data, split).targets
    return backtest(data, known, task.forecasting.leads, task.objective(), task.backtest, networks)
