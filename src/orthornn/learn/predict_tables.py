"""Predictions of a trained network for tables: files and DataFrames that are read as its training data were."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._optional_packages import import_optional
from .._warnings import warn
from ..errors import ArgumentError, DataError, MissingPackageError
from .files.columns import Table
from .files.data_frames import cells_at, located, source
from .files.label_types import typed_labels
from .predict_arrays import Prediction, Predictor
from .tasks import Task
from .tasks.channels import Channel
from .tasks.classification_metrics import classification_scores
from .tasks.classify import Classify, raw_labels
from .tasks.decision_threshold import decided_of
from .tasks.forecast import Forecast, metrics_in_units
from .tasks.later_times import clock_of
from .tasks.regress import raw_numbers
from .tasks.regression_metrics import own_scores
from .tasks.table_data import answers
from .tasks.table_options import modes_of, names_in
from .tasks.table_sequences import together
from .tasks.table_series import Series, read_new, series_of
from .tasks.table_task import TableTask
from .tasks.table_values import strict_targets
from .tasks.target_transform import transformed
from .tasks.time_grid import grid_summary


def table_task(task: Task) -> TableTask:
    """Return the task of a network that learned from a table. ArgumentError for another one."""
    if not isinstance(task, TableTask):
        raise ArgumentError(
            f"Expected a network trained on a table, but got a network trained on {task.name}. Pass its "
            f"sequences as an array."
        )
    return task


def held_inputs(task: Task, description: dict[str, Any]) -> np.ndarray | None:
    """Return at which inputs a missing value holds the state: bool (I,); None for a network of another kind."""
    if not isinstance(task, TableTask):
        return None
    modes = modes_of(task.missing)
    channels = Channel.of(description)
    return np.array([one.kind == "number" and modes.get(one.column, modes[""]) == "hold" for one in channels])


def read_table(task: Task, description: dict[str, Any], path: Any) -> Table:
    """Return a table as the training data were read; one that was read is returned as it is."""
    if isinstance(path, Table):
        return path
    return read_new(table_task(task), located(source(path)), description)


def times_summary(task: Task, file: Table) -> str:
    """Return the report on the time column of a table, its step and its gaps, or nothing."""
    own = table_task(task)
    if own.time is None:
        return ""
    sequences = together(own, file)
    told = grid_summary(file, own.time, sequences.order, sequences.rows.lengths, own.irregular)
    return f"{own.time}: {told}" if told else ""


class Forecasts(NamedTuple):
    """A forecast of the steps after the end of a series.

    name: Name of the series. steps: (H,) int64, counted from its first step as `Series.steps`. times: (H,) str, None if
    the table has no times on a grid. values: (H, C Q) float64, with the quantiles of a column in adjacent columns.
    """

    name: str
    steps: np.ndarray
    times: list[str] | None
    values: np.ndarray


class TablePredictor:
    """A network that learned from tables, with the task that reads them."""

    def __init__(self, network: Predictor, task: TableTask) -> None:
        self._network, self._task, self._description = network, task, network.description

    def predict(self, path: Any) -> list[tuple[Series, Prediction]]:
        """Predict the sequences of a file, in any format that the network could have been trained on.

        The file is read like the training data: `lengths`, `mask` and the columns `sequence` and `mask` have the same
        meaning. Every sequence is processed as a whole, starting from the initial state; missing steps hold the state
        and have no prediction.

        Args:
            path: A .csv or .parquet file with the columns that the network was trained on, a .npz or .npy file with the
                same number of features, or a DataFrame.

        Returns:
            One pair per sequence, in the order of the file; sequences without a step that the network can see are left
            out, with a warning. scores: (1, O), or (T, O) for the T observed steps; labels likewise.

        Raises:
            DataError: If the file does not match the network.
            ArgumentError: If the network was not trained on such a file.
        """
        return self._on_series(self._series(path, False))

    def predict_frame(self, frame: Any) -> Any:
        """Predict the sequences of a DataFrame, or of a file; return a DataFrame."""
        narwhals = import_optional("narwhals", "data", "DataFrames")
        name = source(frame)
        file, library = read_table(self._task, self._description, name), _library_of(narwhals, frame)
        found = self.predict(file)
        every_step = self._description["output"] == "all"
        timed, rows_of = self._task.time if every_step and found[0][0].times is not None else None, []
        labeled = found[0][1].labels is not None
        names = [f"score {label}" for label in self._network.labels]
        made = [*(["label"] if labeled else []), *names]
        sequence, own = self._description.get("sequence"), {}
        if sequence is not None and sequence in file.columns:
            own[sequence] = "sequence" if sequence in (*made, *(["step"] if every_step else [])) else sequence
        if timed is not None and timed in file.columns:
            own[timed] = "time" if timed in made else timed
        first = own.get(sequence, "sequence")
        columns: dict[str, list[Any]] = {name: [] for name in [first, *(["step"] if every_step else []), *made]}
        for one, said in found:
            rows = len(said.scores)
            columns[first] += [one.name] * rows
            if every_step:
                columns["step"] += one.steps[:rows].tolist()
            rows_of.append(one.rows[one.steps[:rows]])
            if said.labels is not None:
                columns["label"] += said.labels.tolist()
            for place, score in enumerate(names):
                columns[score] += said.scores[:, place].tolist()
        shown, kind = narwhals.from_dict(columns, backend=library), self._description.get("label_type")
        if kind is not None:
            typed = typed_labels(narwhals, columns["label"], kind, library)
            shown = shown.with_columns(label=typed)
        for column, its in own.items():
            cells = cells_at(narwhals, name, file, column, np.concatenate(rows_of), library)
            shown = shown.with_columns(cells.alias(its))
        # a column of times that is called step replaces the number of the step
        in_order = [first, *(["step"] if every_step else []), *own.values(), *columns]
        return shown.select(*dict.fromkeys(in_order)).to_native()

    def evaluate(self, path: Any) -> dict[str, float]:
        """Compute the metrics of `Loaded.evaluate` on such a file with its targets, without class weights."""
        task, file = self._task, read_table(self._task, self._description, path)
        series = self._series(file, True)
        scores, wanted = [], []
        for one, said in self._on_series(series):
            assert one.targets is not None
            if task.output == "last":
                scores.append(said.scores)
                wanted.append(one.targets[-1:])
                continue
            counted = (one.steps >= task.forecasting.skipped) & (
                one.steps + task.forecasting.leads[-1] < len(one.targets)
            )
            scores.append(said.scores[counted])
            wanted.append(answers(task.forecasting.leads, one.targets, one.steps[counted]))
        found, targets = np.concatenate(scores).astype(np.float64), np.concatenate(wanted)
        if targets.dtype == object:
            there = np.array([target is not None for target in targets], bool)
        else:
            there = np.isfinite(targets).all(1)
        if not there.any():
            raise DataError(
                f"Expected a target that enters the loss, but {file.path} has none. Add targets, or "
                f"predict without evaluating."
            )
        if not there.all() and strict_targets(task).any() and getattr(task, "ignore", None) is None:
            warn(
                f"{file.path}: {int((~there).sum())} of {len(there)} targets are missing, and are not evaluated. To silence "
                f"this, fill them in, or leave their rows out."
            )
        found, targets = found[there], targets[there]
        if isinstance(task, Forecast):
            return metrics_in_units(task, found, targets, self._description)
        if self._description["says"] == "values":
            squares, scale = np.square(found - targets), np.asarray(self._description["target_scale"])
            learned, how = squares, self._network.transform
            if how is not None:
                learned = np.square(transformed(found, how) - transformed(targets, how))
            errors = {"loss": float((learned / scale**2).mean()), "mse": float(squares.mean())}
            return errors | own_scores(found, targets)
        names = np.array([str(target) for target in targets.tolist()], object)
        classes = self._network.classes(self._numbered(names) if _is_array(file.path) else names)
        winners = decided_of(found, self._network.threshold)
        nats = -np.log(np.maximum(found[np.arange(len(found)), classes], np.finfo(np.float32).tiny))
        more = classification_scores(found, classes, self._network.threshold)
        named = {name: value for name, value in more.items() if isinstance(value, float)}
        return {"loss": float(nats.mean()), "accuracy": float((winners == classes).mean()), **named}

    def forecasts(self, path: Any) -> list[Forecasts]:
        """Forecast the steps after the end of each series of a file that `predict` accepts.

        Returns:
            One forecast per sequence, in the order of the file: name, steps (H,), times (H,) or None, values (H, C) for
            C targets, or (H, C Q) with Q quantiles.

        Raises:
            ArgumentError: If the network is not a forecaster.
            DataError: If the file does not match the network.
        """
        task, file = forecast_task(self._task), read_table(self._task, self._description, path)
        clock = None
        if task.time is not None and not task.irregular:  # then the next row may come at any time
            sequences = together(task, file)
            clock = clock_of(file, task.time, sequences.order, sequences.rows.lengths)
        leads, found = np.array(task.forecasting.leads), []
        for one, said in self.predict(file):
            last = one.steps[-1]
            at = last + leads
            times = None
            if clock is not None:  # of rows that say what is known ahead, the table's own
                end = len(one.rows) - 1
                times = [
                    str(clock.cells[one.rows[step]]) if step <= end else clock.after(one.rows[end], step - end)
                    for step in at.tolist()
                ]
            found.append(Forecasts(one.name, at, times, said.scores[-1].astype(np.float64).reshape(len(leads), -1)))
        return found

    def forecast_frame(self, frame: Any) -> Any:
        """Forecast the steps after the end of every sequence of a DataFrame, or of a file; return a DataFrame."""
        narwhals = import_optional("narwhals", "data", "DataFrames")
        name = source(frame)
        found, library = self.forecasts(read_table(self._task, self._description, name)), _library_of(narwhals, frame)
        rows = [row for one in found for row in rows_of_forecasts(one)]
        heads = heads_of_forecasts(forecast_task(self._task), found)
        return narwhals.from_dict(dict(zip(heads, map(list, zip(*rows)))), backend=library).to_native()

    def anomalies(self, path: Any) -> list[tuple[Series, np.ndarray]]:
        """Return how far the values of a file are from their forecasts, by sequence.

        The score of a step is the largest error of its targets in the forecast made `ahead` steps before (one step, for
        a forecast of several), in standard deviations of the training targets; with quantiles, the error of the
        quantile nearest to the median. If training transformed the targets, all values are transformed. The score is
        NaN if there was no forecast yet, at the first steps, and if a value is missing.

        Returns:
            One pair per sequence: (its name and steps, scores (S,) for all of its S steps).

        Raises:
            ArgumentError: If the network is not a forecaster.
            DataError: If the file does not match the network.
        """
        task = forecast_task(self._task)
        lead, columns, count = task.forecasting.leads[0], len(names_in(task.target)), max(1, len(task.levels))
        place = int(np.argmin(np.abs(np.array(task.levels) - 0.5))) if task.levels else 0
        chosen = np.arange(columns) * count + place
        deviation = np.asarray(self._description["target_scale"])[chosen]
        found = []
        for one, said in self._on_series(self._series(path, True)):
            assert one.targets is not None
            scores = np.full(len(one.targets), np.nan)
            known = (one.steps >= task.forecasting.skipped) & (one.steps + lead < len(scores))
            at = one.steps[known] + lead
            wanted, forecasts = (
                transformed(values, self._network.transform)
                for values in (one.targets[at], said.scores[known][:, chosen])
            )
            errors = np.abs(wanted - forecasts) / deviation
            there = ~np.isnan(errors).all(1)
            scores[at[there]] = np.nanmax(errors[there], 1)
            found.append((one, scores))
        return found

    def _series(self, path: Any, targets: bool) -> list[Series]:
        task, table = self._task, read_table(self._task, self._description, path)
        raw = (
            functools.partial(raw_labels, task) if isinstance(task, Classify) else functools.partial(raw_numbers, task)
        )
        return series_of(task, table, self._description, raw if targets else None)

    def _numbered(self, targets: np.ndarray) -> np.ndarray:
        """Return targets of an array file as class numbers, if they are numbers and the classes have other names."""
        if set(targets) <= set(self._network.labels) or not all(target.isdecimal() for target in targets):
            return targets
        return targets.astype(np.int64)

    def _on_series(self, series: list[Series]) -> list[tuple[Series, Prediction]]:
        """Return each sequence with its prediction; sequences of equal length are predicted together."""
        found: dict[int, Prediction] = {}
        task = self._task
        if isinstance(task, Forecast):
            short = [one.name for one in series if len(one.steps) <= task.skipped]
            if short:
                warn(
                    f"Expected sequences of more than {task.skipped} steps, which the network read in training before it "
                    f"forecast, but got {len(short)} of {len(series)} that are shorter. Put earlier steps in front of them."
                )
        last = self._description["output"] == "last"
        for length in sorted({len(one.steps) for one in series}):
            places = [place for place, one in enumerate(series) if len(one.steps) == length]
            scores, labels = self._network.predict(np.stack([series[place].values for place in places]))
            for row, place in enumerate(places):
                at = slice(row, row + 1) if last else row
                found[place] = Prediction(scores[at], None if labels is None else labels[at])
        return [(one, found[place]) for place, one in enumerate(series)]


def forecast_task(task: Task) -> Forecast:
    """Return the task of a network that forecasts. ArgumentError for another one."""
    if not isinstance(task, Forecast):
        raise ArgumentError(
            f"Expected a network that forecasts, but got a network trained on {task.name}. Train one with ahead=1, --ahead 1."
        )
    return task


def heads_of_forecasts(task: Forecast, found: list[Forecasts]) -> list[str]:
    """Return the names of the columns of a table of forecasts: sequence, step, time if there is one, and what is
    forecast.
    """
    ends = [f" q{level:g}" for level in task.levels] or [""]
    timed = ["time"] if found[0].times is not None else []
    return [
        "sequence",
        "step",
        *timed,
        *(f"forecast {column}{end}" for column in names_in(task.target) for end in ends),
    ]


def rows_of_forecasts(one: Forecasts) -> Iterator[list[Any]]:
    """Yield the rows of a series in such a table."""
    for place, (step, values) in enumerate(zip(one.steps.tolist(), one.values.tolist())):
        yield [one.name, step, *([] if one.times is None else [one.times[place]]), *values]


def _library_of(narwhals: Any, frame: Any) -> Any:
    """The library of a DataFrame; for a path pandas or polars, whichever is there."""
    if not isinstance(frame, (str, os.PathLike)):
        return narwhals.from_native(frame).implementation
    for name in ("pandas", "polars"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise MissingPackageError(
        "Expected pandas or polars for a DataFrame, but got neither. Install one: pip install pandas"
    )


def _is_array(path: str | Path) -> bool:
    return Path(path).suffix.lower() in (".npz", ".npy")
