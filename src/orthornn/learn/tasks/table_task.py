"""The common base of classification, regression and forecasting of the user's own sequences.

A file (columns.py) has one row per step. Rows with one value in the column `sequence` are a sequence, in the order of
the file or of the column `time` (table_rows.py). The same rules hold for every format, for training and for new data
(table_series.py). Training, validation and test are whole sequences, or windows of stretches of time (table_splits.py).

Features, and targets that are numbers, are standardized by mean and standard deviation of the training part only, after
the transform of the targets, if there is one (target_transform.py).

A step with a missing value (or a 0 in the column `mask`) holds the state: h_t = h_{t-1}. That is what happens when the
step is left out and the others are packed, so nothing is computed for it, and the result is exact.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_integer
from ..._warnings import warn
from ...errors import ArgumentError, DataError
from ..files.cells import listed, missing_cells
from ..files.frames import shown_name
from .channels import Channel, beyond, category_channels, described
from .plain_baselines import FLAT_STEPS, LAST_STEPS, Baseline, Samples, fitted, flattened, last_steps, summary_features
from .sequences import Ragged
from .splits import PARTS
from .table_options import modes_of, names_in
from .table_series import TableSeries
from .table_splits import TableSplits
from .target_transform import in_units, transformed
from .task import Batch, batch_rows
from .time_grid import told_grid

MOST_KNOWN = 4096  # inputs that are values of later steps
_LEAST_DEVIATION = math.sqrt(np.finfo(np.float64).tiny)  # whose square has all its digits
MOST_STEPS = 1 << 15  # that the test of a whole series processes before the first one that it predicts


class Table(NamedTuple):
    """All rows of a file, a sequence after the other."""

    features: np.ndarray  # (R, I) float64
    targets: np.ndarray  # (R, O) float64, NaN: none; or (R,) int64 classes, IGNORED: none
    observed: np.ndarray  # (R,) bool
    sequences: Ragged


class Part(NamedTuple):
    """Training, validation or test: pieces of sequences without the steps that hold the state."""

    inputs: Tensor  # (R, I) float32
    targets: Tensor  # at every step (R, ...), else (pieces, ...)
    pieces: Ragged
    rows: np.ndarray  # (R,) int64: which row of the table each is
    counted: np.ndarray  # (R,) bool: whether its prediction enters the loss


class TableTask(TableSplits, TableSeries):
    """Sequences of a table as batches, with their scales, plain baselines and a summary."""

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """32, or all training pieces if they are fewer."""
        return min(32, len(self._parts["train"].pieces))

    @property
    def input_size(self) -> int:
        """The input columns."""
        return len(self._channels)

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing: input columns are standardized by the training part."""
        mean, deviation = self._scale
        scaling = {"scale": (1 / deviation).tolist(), "offset": (-mean / deviation).tolist()}
        found = {**described(self._channels), **scaling}
        if self.embedding is not None:
            found |= {"series": self._series_names, "embedding": self.embedding}
        if self.sequence_column is not None:
            found["sequence"] = self.sequence_column
        modes = modes_of(self.missing)
        holds = [
            one.name for one in self._channels if one.kind == "number" and modes.get(one.column, modes[""]) == "hold"
        ]
        if holds:
            found["holds"] = holds
        if self._file.commas:
            found["commas"] = list(self._file.commas)
        if self._file.features:
            found["features"] = self._file.features
        if self._file.sound:
            found |= {"sample_rate": self.sample_rate, "sound": self._sound.described()}
        if self._transformed_inputs:
            found["transformed_inputs"] = self._transformed_inputs
        return found

    def told(self) -> list[str]:
        """Return what was read from the file and what each column is for."""
        parts = {name: len(part.pieces) for name, part in self._parts.items()}
        sequences = self._table.sequences
        count = len(sequences)
        apart = "" if self.sequence_column is None else f" by the column {self.sequence_column}"
        order = "as in the file" if self.time is None else f"by the column {self.time}"
        columns = {
            "inputs": [channel.name for channel in self._channels if not channel.lead and channel.kind != "series"],
            f"known {self._leads_told} steps ahead": self.known_columns,
            "target": self.target_columns,
            "mask": [self.mask_column] if self.mask_column else [],
        }
        gone = ~self._table.observed & ~beyond(self._channels, sequences.lengths).any(1)
        starts = sequences.lengths.cumsum() - sequences.lengths
        empty = int((~np.logical_or.reduceat(self._table.observed, starts)).sum())
        held = int((gone & np.repeat(np.logical_or.reduceat(self._table.observed, starts), sequences.lengths)).sum())
        ends = sequences.lengths.cumsum() - 1
        without = 0 if self.output == "all" else int((~self._target_there(self._table.targets)[ends]).sum())
        by = [f"{name} {value}" for name, value in (("column", self.split), ("group", self.group)) if value]
        free = self.split is None and self.group is None and len(sequences) >= 3
        stratified = ["class"] if free and self._strata is not None else []
        return [
            *([f"{self._file.path}: {self._file.sound}"] if self._file.sound else []),
            f"{shown_name(self.data)}: {self._file.rows} rows, {count} sequence{'s' if count != 1 else ''}{apart} of "
            f"{_range(sequences.lengths)} steps, in order {order}"
            + (f"; {held} steps are missing and hold the state" if held else "")
            + (f"; {empty} sequences have no step that is observed, and are left out" if empty else "")
            + (f"; {without} have no target in their last row, and are left out" if without else ""),
            "   ".join(f"{name}: {_short(names)}" for name, names in columns.items() if names),
            f"{'sequences' if self._whole else 'windows'}: "
            + ", ".join(f"{number} for {part}" for part, number in parts.items())
            + (f" (by {', '.join([*by, *stratified])})" if by or stratified else ""),
            *self._told_of_values(),
        ]

    def _told_of_values(self) -> list[str]:
        """Return lines about missing values, the grid of the times, the targets, and the scaling."""
        lines = []
        if self.embedding is not None:
            lines.append(f"vectors: {self.embedding} numbers for each of {len(self._series_names)} series")
        gone = {name: missing_cells(self._file.columns[name]) for name in [*self.input_columns, *self.target_columns]}
        if any(gone.values()):
            modes = modes_of(self.missing)
            lines.append(
                "missing: "
                + ", ".join(
                    f"{number} in {name} ({modes.get(name, modes[''])})" for name, number in gone.items() if number
                )
            )
        if self.time is not None:
            grid = told_grid(self._file, self.time, self._arranged_rows[0], self._sequences.lengths)
            lines += [f"{self.time}: {grid}"] if grid else []
        return [*lines, *self._told_of_targets(), "scaling: by mean and standard deviation of the training part"]

    @property
    def _leads_told(self) -> str:
        first, last = self.leads[0], self.leads[-1]
        return str(first) if first == last else f"{first} to {last}"

    def _told_of_targets(self) -> list[str]:
        """Return lines about the targets."""
        return []

    def plain_baselines(self) -> list[Baseline]:
        """Return logistic or ridge regression and gradient boosting, on the same parts."""
        parts = {part: self._samples(part) for part in PARTS}
        return fitted(self._plain_methods(), parts, self._plain_metrics)

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        """Return (name, kind of features, estimator) of plain methods."""
        raise NotImplementedError

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of a fitted plain method."""
        raise NotImplementedError

    def _counted_targets(self, targets: np.ndarray) -> np.ndarray:
        """Return which targets (rows, ...) enter the loss: bool."""
        raise NotImplementedError

    def _samples(self, name: str) -> Samples:
        part = self._parts[name]
        rows, lengths, targets = part.inputs[:, : self._plain_inputs].numpy(), part.pieces.lengths, part.targets.numpy()
        counted = self._counted_targets(targets)
        if self.output == "all":
            steps = max(1, self.skipped or LAST_STEPS)
            kept = last_steps(rows, lengths, steps, self._later_inputs)
            found = {"flattened steps": kept[counted & part.counted]}
            return Samples(found, targets[counted & part.counted])
        steps = min(FLAT_STEPS, int(self._parts["train"].pieces.lengths.max()))
        found = {
            "summary features": summary_features(rows, lengths)[counted],
            "flattened steps": flattened(rows, lengths, steps)[counted],
        }
        return Samples(found, targets[counted])

    @property
    def steps(self) -> int:
        """The length of the longest training piece."""
        return int(self._parts["train"].pieces.lengths.max())

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of full batches of the training pieces."""
        return len(self._parts["train"].pieces) // batch_size

    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return a batch of the training pieces."""
        rows = batch_rows(step, batch_size, len(self._parts["train"].pieces), seed)
        return self._batch(self._parts["train"], rows.numpy())

    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Yield the validation pieces."""
        return self._batches(self._parts["validation"], batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        """Yield the test pieces."""
        return self._batches(self._parts["test"], batch_size)

    def test_of_whole_series(self, batch_size: int) -> Iterator[Batch]:
        """Yield the test steps once more, in series from their first step on, if they are tested in windows."""
        if not self._whole:
            part = self._whole_test()
            yield from self._batches(part, max(1, min(batch_size, 4 * MOST_STEPS // int(part.pieces.lengths.max()))))

    @abstractmethod
    def _target_there(self, targets: np.ndarray) -> np.ndarray:
        """Return which rows have a target: bool."""

    def _target_tensor(self, targets: np.ndarray, there: np.ndarray) -> Tensor:
        """Return targets as the loss takes them; where not `there`, marked as not counted."""
        raise NotImplementedError

    @cached_property
    def _table(self) -> Table:
        file = self._file
        order, _, lengths = self._arranged_rows
        stretches = None if self._whole else np.array([steps for _, _, steps in self._stretches()])
        features = self._features(file, self._channels, order, lengths, self._series_names, stretches)
        targets = self._targets_of_rows[order]
        observed = self._observed(file, self._channels, order, features, lengths)
        if self._transformed_inputs:  # whose numbers are those of targets, which were checked
            own = features[:, self._transformed_inputs]
            features[:, self._transformed_inputs] = transformed(own, self.target_transform)
        return Table(features, targets, observed, self._sequences)

    @property
    def _transformed_inputs(self) -> list[int]:
        """Which inputs are a target's own past, which the network reads as it learns the target: transformed."""
        if self.target_transform is None:
            return []
        return [
            place
            for place, channel in enumerate(self._channels)
            if channel.column in self.target_columns and channel.kind in ("number", "last", "interpolated")
        ]

    @property
    def _later_inputs(self) -> int:
        """How many of the inputs are values of later steps: the last ones."""
        return sum(channel.lead > 0 for channel in self._channels)

    @cached_property
    def _channels(self) -> list[Channel]:
        """The inputs, with what is known of them from the training part; those of later steps behind the others."""
        read = {*self.input_columns, *self.known_columns, *self.target_columns}
        unread = [name for name in modes_of(self.missing) if name and name not in read]
        if unread:
            raise ArgumentError(
                f"Expected missing, --missing, to name inputs or the target, but got {unread[0]!r}, which the network does "
                f"not see. Leave it out, or name it in inputs, --inputs."
            )
        now = [channel for name in self.input_columns for channel in self._channels_of(name, "inputs")]
        known = [channel for name in self.known_columns for channel in self._channels_of(name, "known")]
        if len(known) * len(self.leads) > MOST_KNOWN:
            raise ArgumentError(
                f"Expected known columns to make at most {MOST_KNOWN} inputs, but got {len(known)} for each of "
                f"{len(self.leads)} steps. Name fewer, or forecast fewer steps."
            )
        series = []
        if self.embedding is not None:
            if self.sequence_column is None:
                raise DataError(
                    f"Expected several series for embedding={self.embedding}, but {self.data} is one. Name the column that "
                    f"tells them apart with sequence, --sequence."
                )
            series = [Channel(self.sequence_column, "series")]
        found = [*now, *(channel._replace(lead=lead) for lead in self.leads for channel in known), *series]
        first: dict[str, Channel] = {}
        for channel in found:
            other = first.setdefault(channel.name, channel)
            if other is not channel:
                raise DataError(
                    f"Expected inputs of different names, but got two that are called {channel.name!r}, of the columns "
                    f"{other.column!r} and {channel.column!r} of {shown_name(self.data)}. Rename one of these, or name the "
                    f"inputs without it: inputs, --inputs."
                )
        return found

    @cached_property
    def _series_names(self) -> list[str]:
        """The series of the training part, in the order of their vectors; none without vectors."""
        if self.embedding is None:
            return []
        _, names, lengths = self._arranged_rows
        own = np.unique(np.repeat(np.arange(len(lengths)), lengths)[self._training_rows])
        return sorted({str(names[place]) for place in own})

    @property
    def _plain_inputs(self) -> int:
        """How many inputs plain methods see: all but the number of the series."""
        return len(self._channels) - (self.embedding is not None)

    def _channels_of(self, name: str, what: str) -> list[Channel]:
        """Return what a column becomes."""
        rows, modes = self._arranged_rows[0][self._training_rows], modes_of(self.missing)
        mode = modes.get(name, modes[""])
        if name in names_in(self.categories or ""):
            if mode == "interpolate":
                raise ArgumentError(
                    f"Expected another way for missing categories of {name!r}, but got interpolate. Pass indicator."
                )
            return category_channels(self._file, name, rows, mode == "indicator")
        values = self._file.numbers(name, what)[rows]
        kind = {"indicator": "last", "interpolate": "interpolated"}.get(mode, "number")
        if kind == "number":
            return [Channel(name)]
        gone = np.isnan(values)
        if gone.all():
            raise DataError(
                f"Expected values in the training part of {self.data}, column {name!r}, but got none. Choose "
                f"another split_seed, "
                f"or leave it out of inputs, --inputs."
            )
        more = [Channel(name, "missing")] if mode == "indicator" and gone.any() else []
        how = self.target_transform if name in self.target_columns else None  # the mean of what the network reads
        return [Channel(name, kind, float(in_units(transformed(values[~gone], how).mean(), how))), *more]

    @cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (I,) of the training features; a constant one is left as wide as it is."""
        rows = self._training_rows
        seen = self._table.features[rows[self._table.observed[rows]]]
        if not len(seen):
            raise DataError(
                f"Expected training steps with a value in all of {', '.join(self.input_columns)}, but {self.data} has none. "
                f"Say what a missing value means with missing, --missing, or name fewer inputs."
            )
        mean, deviation = self._moments(seen, [channel.name for channel in self._channels])
        if self.embedding is not None:
            mean[-1] = deviation[-1] = 0.0  # a number of a series stays as it is
        plain = [channel.kind in ("number", "last", "interpolated") and not channel.lead for channel in self._channels]
        same = [channel.name for channel, own, spread in zip(self._channels, plain, deviation) if own and not spread]
        if same:
            warn(
                f"{shown_name(self.data)}: {listed(same)} is constant in the training part, so that the network learns "
                f"nothing from it, but reads it: another value in new data disturbs the predictions. To silence this, leave "
                f"it out of inputs, --inputs."
            )
        return mean, np.where(deviation > 0, deviation, 1.0)

    def _moments(self, values: np.ndarray, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the columns (R, K); 0, without rounding, where all values are the same."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = values.mean(0), values.std(0)
        differ = values.min(0) < values.max(0)
        large, small = ~np.isfinite(mean + deviation), differ & (deviation < _LEAST_DEVIATION)
        for name, is_large, is_small in zip(names, large, small):
            if is_large or is_small:
                raise DataError(
                    f"Expected values whose squares are float64 numbers, but {shown_name(self.data)}, column {name!r}, has "
                    f"{'larger' if is_large else 'smaller'} ones. Give it in another unit."
                )
        return mean, np.where(differ, deviation, 0.0)

    @cached_property
    def _parts(self) -> dict[str, Part]:
        mean, deviation = self._scale
        standard = torch.from_numpy(((self._table.features - mean) / deviation).astype(np.float32))
        return {part: self._part(part, standard) for part in ("train", "validation", "test")}

    def _whole_test(self) -> Part:
        """Return the test steps that enter the loss, with the steps of their series before them, at most MOST_STEPS."""
        test, (mean, deviation) = self._parts["test"], self._scale
        counts = np.zeros(len(self._table.observed), bool)
        counts[test.rows[test.counted]] = True
        chosen = []
        for start, length in zip(self._sequences.starts.tolist(), self._sequences.lengths.tolist()):
            own = np.flatnonzero(counts[start : start + length])
            if len(own):
                rows = np.arange(max(start, start + own[0] - MOST_STEPS), start + own[-1] + 1)
                chosen.append(rows[self._table.observed[rows]])
        rows = np.concatenate(chosen)
        standard = torch.from_numpy(((self._table.features[rows] - mean) / deviation).astype(np.float32))
        wanted = self._target_tensor(self.answers(self._table.targets, rows), counts[rows])
        return Part(standard, wanted, Ragged(np.array([len(own) for own in chosen])), rows, counts[rows])

    def _part(self, part: str, standard: Tensor) -> Part:
        targets, observed = self._table.targets, self._table.observed
        has_target = self._target_there(targets)
        chosen, counted, lengths, ends = [], [], [], []
        for at, steps in self._pieces[part]:
            rows = np.arange(at, at + steps - self.leads[-1])
            enters = np.all([has_target[rows + lead] for lead in self.leads], 0) & (
                np.arange(len(rows)) >= self.skipped
            )
            seen = observed[rows]
            rows, enters = rows[seen], enters[seen]
            useful = enters.any() if self.output == "all" else len(rows) and has_target[at + steps - 1]
            if useful:
                chosen.append(rows)
                counted.append(enters)
                lengths.append(len(rows))
                ends.append(at + steps - 1)
        if not chosen:
            raise DataError(
                f"Expected something to predict for {part}, but {self.data} leaves {len(self._pieces[part])} "
                f"piece(s), none with "
                f"an observed step and a target that enters the loss. Give it more data or larger shares"
                f"{', or a smaller skipped' if self.skipped else ''}."
            )
        rows, there = np.concatenate(chosen), np.concatenate(counted)
        if self.output == "all":
            wanted = self._target_tensor(self.answers(targets, rows), there)
        else:
            wanted = self._target_tensor(targets[ends], np.ones(len(ends), bool))
        return Part(standard[torch.from_numpy(rows)], wanted, Ragged(np.array(lengths)), rows, there)

    def _batch(self, part: Part, chosen: np.ndarray) -> Batch:
        steps = part.pieces.steps(chosen)
        targets: Tensor | PackedSequence
        targets = steps.take(part.targets) if self.output == "all" else part.targets[torch.from_numpy(chosen)]
        return Batch(steps.take(part.inputs), targets)

    def _batches(self, part: Part, batch_size: int) -> Iterator[Batch]:
        check_integer("batch_size", batch_size, 1)
        for start in range(0, len(part.pieces), batch_size):
            yield self._batch(part, np.arange(start, min(start + batch_size, len(part.pieces))))


def _short(names: list[str]) -> str:
    """Return names as they are listed; the features of an array, which are numbered, by the first and the last."""
    numbered = len(names) > 2 and names == [f"x{place}" for place in range(len(names))]
    return f"{names[0]} to {names[-1]}" if numbered else listed(names)


def _range(lengths: np.ndarray) -> str:
    least, most = int(lengths.min()), int(lengths.max())
    return str(least) if least == most else f"{least} to {most}"
