"""The common base of classification, regression and forecasting of the user's own sequences.

A file (columns.py) has one row per step. Rows with one value in the column `sequence` are a sequence, in the order of
the file or of the column `time`. The same rules hold for every format, for training and for new data.

`table` reads it once, at the first call, by functions that return values, each from those before it: the source
(table_source.py), its sequences (table_sequences.py), which column is what (table_roles.py), the parts (table_splits.py),
the data (table_data.py), what judges predictions, and description.json. They warn, and raise what is wrong.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..files.columns import Table
from ..files.data_frames import Frame, store
from . import plain_baselines as plain
from .abilities import plain_baselines, stored, whole_series
from .channels import described
from .objective import Objective
from .problem import Batch, Problem
from .splits import PARTS
from .table_data import ReadTable, TargetCells, Targets, batch_of, batches_of, batches_of_whole_test, data_of
from .table_options import TableOptions, modes_of, names_in, sound_format
from .table_roles import roles_of
from .table_sequences import Sequences, sequences_of
from .table_source import files_of, read_source
from .table_splits import Split, split_of
from .table_summary import summary_of
from .task import batch_rows

_READ = "_read_table"  # the attribute of a task that has read its table


class TableTask(TableOptions):
    """The common part of classification, regression and forecasting."""

    def files(self) -> dict[str, Path]:
        """Return the files of training, validation and test."""
        return files_of(self)

    def table(self, file: Table | None = None) -> ReadTable:
        """Return the data, which the first call reads. DataError or ArgumentError for what is wrong with them.

        file: What is in the file `data`, if that was read before. Default: None, it is read.
        """
        if _READ not in vars(self):
            vars(self)[_READ] = self._read(file)
        return vars(self)[_READ]

    def _read(self, file: Table | None) -> ReadTable:
        source = read_source(self, file)
        for name in names_in(self.target):
            source.table.check(name, "target")
        cells = self._target_cells(source.table)
        sequences = sequences_of(self, *source)
        roles = roles_of(self, source.table, sequences)
        strata = self._strata(cells, sequences)
        split = split_of(self, source, sequences, strata)
        data = data_of(self, source, sequences, roles, split, lambda: self._targets(cells, sequences, split))
        read = ReadTable(source, sequences, roles, split, data, cells.classes, strata is not None)
        read = replace(read, objective=self._objective(read))
        return replace(read, schema=self._schema(read))

    def problem(self) -> Problem:
        """Return the pieces of the parts in batches."""
        read = self.table()
        train, validation, test = (read.data.parts[part] for part in PARTS)
        return Problem(
            read.schema,
            lambda step, size, seed: batch_of(self, train, batch_rows(step, size, len(train.pieces), seed).numpy()),
            lambda size: batches_of(self, validation, size),
            lambda size: batches_of(self, test, size),
        )

    def objective(self) -> Any:
        """Return what judges a prediction."""
        return self.table().objective

    @abstractmethod
    def _objective(self, read: ReadTable) -> Objective:
        """Return what judges a prediction, by the training part."""

    @abstractmethod
    def _target_cells(self, table: Table) -> TargetCells:
        """Return the targets in the order of the table. DataError for a target that nothing can learn."""

    @abstractmethod
    def _targets(self, cells: TargetCells, sequences: Sequences, split: Split) -> Targets:
        """Return the targets of all rows."""

    def _strata(self, cells: TargetCells, sequences: Sequences) -> np.ndarray | None:
        """Return the class of every sequence, if the parts are to have the same shares of each; else None."""
        return None

    @abstractmethod
    def _summary_of_targets(self) -> list[str]:
        """Return lines about the targets."""

    @abstractmethod
    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (name, kind of features, estimator) of plain methods."""

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """32, or all training pieces if they are fewer."""
        return min(32, len(self.table().data.parts["train"].pieces))

    @property
    def steps(self) -> int:
        """The length of the longest training piece."""
        return int(self.table().data.parts["train"].pieces.lengths.max())

    @abstractmethod
    def _outputs(self, read: ReadTable) -> dict[str, Any]:
        """Return what description.json holds of the outputs: their number, their names, and what was done to the targets."""

    def _schema(self, read: ReadTable) -> dict[str, Any]:
        """Return the content of description.json: input columns are standardized by the training part."""
        modes, data, table = modes_of(self.missing), read.data, read.source.table
        own = self._outputs(read)
        found = {"input_size": len(data.channels), "output_size": own.pop("output_size"), "input": "real"}
        found |= {"output": self.output, "says": own.pop("says"), **described(data.channels)}
        found |= {"scale": (1 / data.deviation).tolist(), "offset": (-data.mean / data.deviation).tolist()}
        if self.forecasting.embedding is not None:
            found |= {"series": data.series, "embedding": self.forecasting.embedding}
        if self.irregular:
            found["time_unit"] = float(data.deviation[-1])
        if read.roles.sequence is not None:
            found["sequence"] = read.roles.sequence
        numbers = [channel for channel in data.channels if channel.kind == "number"]
        holds = [channel.name for channel in numbers if modes.get(channel.column, modes[""]) == "hold"]
        if holds:
            found["holds"] = holds
        if table.commas:
            found["commas"] = list(table.commas)
        if table.features:
            found["features"] = table.features
        if table.sound:
            found |= {"sample_rate": self.sample_rate, "sound": sound_format(vars(self)).described()}
        if data.transformed:
            found["transformed_inputs"] = data.transformed
        return {**found, **own}

    def summary_lines(self) -> list[str]:
        """Return what was read from the file and what each column is for."""
        return summary_of(self, self.table(), self._summary_of_targets())

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of full batches of the training pieces."""
        return len(self.table().data.parts["train"].pieces) // batch_size

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of a fitted plain method."""
        objective: Any = self.objective()
        return objective.errors(np.asarray(method.predict(features)).reshape(targets.shape), targets)

    def _samples(self, name: str) -> plain.Samples:
        """Return the features of a part for plain methods, and its targets."""
        data = self.table().data
        part = data.parts[name]
        rows, lengths, targets = part.inputs[:, : data.plain_inputs].numpy(), part.pieces.lengths, part.targets.numpy()
        counted = data.targets.counted(targets)
        if self.output == "all":
            counted &= part.counted
            steps = max(1, self.forecasting.skipped or plain.LAST_STEPS)
            kept = plain.last_steps(rows, lengths, steps, data.later_inputs)
            return plain.Samples({"flattened steps": kept[counted]}, targets[counted])
        steps = min(plain.FLAT_STEPS, self.steps)
        found = {
            "summary features": plain.summary_features(rows, lengths)[counted],
            "flattened steps": plain.flattened(rows, lengths, steps)[counted],
        }
        if plain.can_convolve(len(lengths), rows.shape[1], self.steps):
            found[plain.SERIES] = plain.stretched(rows, lengths, self.steps)[counted]
        return plain.Samples(found, targets[counted])


@plain_baselines.register
def _(task: TableTask) -> list[plain.Baseline]:
    """Return logistic or ridge regression and gradient boosting, on the same parts."""
    parts = {part: task._samples(part) for part in PARTS}
    return plain.fitted(task._plain_methods(), parts, task._plain_metrics)


@whole_series.register
def _(task: TableTask, batch_size: int) -> Iterator[Batch]:
    """Yield the test steps once more, in series from their first step on, if they are tested in windows."""
    if not task.table().split.whole:
        yield from batches_of_whole_test(task, task.table().data, batch_size)


@stored.register
def _(task: TableTask, folder: Path) -> TableTask:
    """Return the task with DataFrames as Parquet files in a folder."""
    found = {name: getattr(task, name) for name in ("data", "test_data", "validation_data")}
    frames: dict[str, Any] = {name: store(value, folder) for name, value in found.items() if isinstance(value, Frame)}
    if not frames:
        return task
    made = replace(task, **frames)
    vars(made).update({_READ: vars(task)[_READ]} if _READ in vars(task) else {})
    return made
