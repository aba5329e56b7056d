"""The sequences of another table than that of training, read as the training data were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Columns
from .channels import Channel
from .table_rows import TableRows
from .target_transform import check_domain


class Series(NamedTuple):
    """A sequence of a table: its observed steps, and what all of its steps are to be predicted."""

    name: str
    steps: np.ndarray  # (T,) int64: the places of the observed steps in the sequence
    values: np.ndarray  # (T, I) float64
    targets: np.ndarray | None  # of all S steps: labels (S,), None where there is none; or numbers (S, O)
    times: np.ndarray | None  # of all S steps, as the file spells them: (S,) objects, where there is a time column
    rows: np.ndarray  # (S,) int64: of all S steps, their places in the file


class TableSeries(TableRows):
    """A task's way of reading new tables."""

    def series(self, path: Path | Columns, description: Mapping[str, Any], targets: bool) -> list[Series]:
        """Return the sequences of another file, with its targets if they are asked for.

        Args:
            path: A file of any format; it need not be that of the training data. Or what was read of it.
            description: What description.json holds of the network: `columns`, and `sequence` and `features` of the
                training data.
            targets: Whether to read the targets.

        Returns:
            Them, in the order in which the file has them. Those without a step that is observed are left out, with a
            warning.

        Raises:
            DataError: If something is missing or cannot be read in it.
        """
        channels = Channel.of(description)
        columns = list(dict.fromkeys(channel.column for channel in channels))
        read = path if isinstance(path, Columns) else self.read_new(path, description)
        file = self._named_alike(read, columns, description.get("features"))
        for place in description.get("transformed_inputs") or ():
            self._check_domain(file, channels[place].column, "inputs")
        known = description.get("sequence")
        if known is not None and self._sequence_column(file) is None and not file.sequences:
            raise DataError(
                f"Expected the column {known!r} in {file.path}, which told the sequences of the training data apart, but "
                f"got only {listed(file.columns)}. Add it, with one value in all rows if they are one sequence."
            )
        order, names, lengths = self._arranged(file)
        features = self._features(file, channels, order, lengths, description.get("series") or ())
        coming = self._coming(file, channels, order, lengths)
        features[coming] = np.where(np.isnan(features[coming]), 0, features[coming])  # they are no steps
        observed = self._observed(file, channels, order, features, lengths) & ~coming
        wanted = self._raw_targets(file)[order] if targets else None
        times = file.labels(self.time, "time")[order] if self.time is not None else None
        found: list[Series] = []
        empty: list[tuple[int, str]] = []
        for name, at, steps in zip(names, np.cumsum(lengths) - lengths, lengths):
            seen = np.flatnonzero(observed[at : at + steps])
            if not len(seen):
                empty.append((int(order[at : at + steps].min()), name))
                continue
            own = slice(at, at + steps)
            goals, its = (None if values is None else values[own] for values in (wanted, times))
            found.append(Series(name, seen, features[at + seen], goals, its, order[own]))
        if empty:
            self._name_empty(file, [name for _, name in sorted(empty)], channels, not found)
        if not targets:
            self._name_unforeseen(file.path, channels, coming, lengths)
        return sorted(found, key=lambda one: int(one.rows.min()))

    def read_new(self, path: Path, description: Mapping[str, Any]) -> Columns:
        """Return another file, read as the training data were.

        A class, a category or a series that the network knows is a name in a text file, too, if it is spelled as a missing
        value: None, say, that was learned from a DataFrame.
        """
        known: dict[str, list[object]] = {}
        if description.get("labels"):
            known |= {column: list(description["labels"]) for column in self.target_columns}
        if description.get("series"):
            known[description["sequence"]] = list(description["series"])
        for channel in Channel.of(description):
            if channel.kind == "category":
                known.setdefault(channel.column, []).append(channel.value)
        return self._read(path, description.get("commas") or (), known)

    def _name_empty(self, file: Columns, names: Sequence[str], channels: Sequence[Channel], is_all: bool) -> None:
        """Warn of sequences without a step that the network could see, which are left out; DataError if these are all."""
        later = max(channel.lead for channel in channels)
        columns = listed(dict.fromkeys(channel.column for channel in channels))
        more = f", and followed by {later} row(s) with {', '.join(self.known_columns_of(channels))}" * bool(later)
        if is_all:
            raise DataError(
                f"Expected a step in {file.path} that is observed in all of {columns}{more}, but got none in sequence "
                f"{listed(names)}. Fill in missing values."
            )
        warn(
            f"{file.path}: {len(names)} sequence(s) have no step that is observed in all of {columns}{more}, and are left "
            f"out: {listed(names)}. Fill in their missing values to have predictions of them."
        )

    def _check_domain(self, file: Columns, name: str, what: str) -> np.ndarray:
        """Return the numbers of a column (R,). DataError, with the row, if one of them has no transform of the targets."""
        values = file.numbers(name, what)
        check_domain(values, self.target_transform, lambda row: f"in {file.path}, column {name!r}, {file.row(row)}")
        return values

    def _coming(self, file: Columns, channels: Sequence[Channel], order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return which rows (R,) only say what is known ahead: at the end of a sequence, nothing else being there."""
        later = {channel.column for channel in channels if channel.lead}
        others = {channel.column for channel in channels if channel.kind != "series"} - later
        if not later or not others:
            return np.zeros(len(order), bool)
        empty = np.all([[cell is None or cell != cell for cell in file.columns[name]] for name in others], 0)[order]
        ends = lengths.cumsum()
        last = np.maximum.accumulate(np.where(empty, -1, np.arange(len(order))))  # the last row that is a step
        return np.arange(len(order)) > np.repeat(last[ends - 1], lengths)

    def _name_unforeseen(
        self, path: Path, channels: Sequence[Channel], coming: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Warn where the last steps have no forecast, because what is known ahead is not given for the steps after."""
        later = max(channel.lead for channel in channels)
        given = np.add.reduceat(coming.astype(np.int64), lengths.cumsum() - lengths)
        short = np.minimum(later - given, lengths - given).clip(0)
        if short.any():
            warn(
                f"{path}: the last {short.max()} step(s) of {(short > 0).sum()} sequence(s) have no forecast, because "
                f"{', '.join(self.known_columns_of(channels))} is not given for the steps after them. Append {later} row(s) "
                f"to each sequence, with it and with the other inputs empty."
            )

    @staticmethod
    def known_columns_of(channels: Sequence[Channel]) -> list[str]:
        """Return the names of the columns that are known ahead."""
        return list(dict.fromkeys(channel.column for channel in channels if channel.lead))

    def _named_alike(self, file: Columns, columns: Sequence[str], features: int | None) -> Columns:
        """Return an array file with the names that the training data had; the features of arrays are told by their
        places.
        """
        if not file.features:
            return file
        needed = len(columns) if features is None else features
        if file.features != needed:
            raise DataError(
                f"Expected {needed} features at every step of {file.path}, as in the training data "
                f"({listed(columns)}), but got {file.features}. Give an array (time, {needed}) or "
                f"(sequences, time, {needed})."
            )
        if features is not None:
            return file
        names = {f"x{place}": name for place, name in enumerate(columns)}
        if len(self.target_columns) == 1 and self.target_columns[0] not in names.values():
            names["y"] = self.target_columns[0]
        if self.sequence is not None and self.sequence not in names.values():
            names["sequence"] = self.sequence
        renamed = {names.get(name, name): column for name, column in file.columns.items()}
        if self.sequence is not None and self.sequence not in renamed:  # (time, features): one sequence
            renamed[self.sequence] = np.zeros(file.rows, np.int64)
        if self.time is not None and self.time not in renamed:  # steps are in order
            renamed[self.time] = np.arange(file.rows)
        return file._replace(columns=renamed)
