"""The sequences of another table than that of training, read as the training data were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Table
from ..files.data_frames import Frame
from .channels import Channel
from .elapsed import elapsed
from .sequences import Ragged
from .table_options import TableOptions, names_in
from .table_sequences import sequence_column, sequences_of
from .table_source import read_table
from .table_values import features_of, observed_of
from .target_transform import check_domain


class Series(NamedTuple):
    """A sequence of a table: its observed steps, and what all of its steps are to be predicted."""

    name: str
    steps: np.ndarray  # (T,) int64: the places of the observed steps in the sequence
    values: np.ndarray  # (T, I) float64
    targets: np.ndarray | None  # of all S steps: labels (S,), None where there is none; or numbers (S, O)
    times: np.ndarray | None  # of all S steps, as the file spells them: (S,) objects, where there is a time column
    rows: np.ndarray  # (S,) int64: of all S steps, their places in the file


def read_new(options: TableOptions, path: Path | Frame, description: Mapping[str, Any]) -> Table:
    """Return another file, read as the training data were.

    A class, a category or a series that the network knows is a name in a text file, too, if it is spelled as a missing
    value: None, say, that was learned from a DataFrame.
    """
    known: dict[str, list[object]] = {}
    if description.get("labels"):
        known |= {column: list(description["labels"]) for column in names_in(options.target)}
    if description.get("series"):
        known[description["sequence"]] = list(description["series"])
    for channel in Channel.of(description):
        if channel.kind == "category":
            known.setdefault(channel.column, []).append(channel.value)
    return read_table(options, path, description.get("commas") or (), known)


def series_of(
    options: TableOptions,
    read: Table,
    description: Mapping[str, Any],
    read_targets: Callable[[Table], np.ndarray] | None = None,
) -> list[Series]:
    """Return the sequences of another table than that of training.

    Args:
        options: Those of the training.
        read: What was read of a file of any format; it need not be that of the training data.
        description: What description.json holds of the network: `columns`, and `sequence` and `features` of the
            training data.
        read_targets: Returns the targets of every row as the file has them. Default: None, without targets.

    Returns:
        Them, in the order in which the file has them. Those without a step that is observed are left out, with a
        warning.

    Raises:
        DataError: If something is missing or cannot be read in it.
    """
    channels = Channel.of(description)
    columns = list(dict.fromkeys(channel.column for channel in channels))
    table = _named_alike(options, read, columns, description.get("features"))
    for place in description.get("transformed_inputs") or ():
        numbers_to_transform(options, table, channels[place].column, "inputs")
    known = description.get("sequence")
    if known is not None and sequence_column(options, table) is None and not table.features:
        raise DataError(
            f"Expected the column {known!r} in {table.path}, which told the sequences of the training data apart, but "
            f"got only {listed(table.columns)}. Add it, with one value in all rows if they are one sequence."
        )
    sequences = sequences_of(options, table)
    order, rows = sequences.order, sequences.rows
    features = features_of(options, table, channels, sequences, description.get("series") or ())
    coming = _coming(table, channels, order, rows)
    features[coming] = np.where(np.isnan(features[coming]), 0, features[coming])  # they are no steps
    observed = observed_of(options, table, channels, sequences, features) & ~coming
    if options.irregular:
        since = elapsed(options, table, sequences, observed)
        features[:, -1] = np.where(np.isnan(since), description["time_unit"], since)
    wanted = None if read_targets is None else read_targets(table)[order]
    times = table.labels(options.time, "time")[order] if options.time is not None else None
    found: list[Series] = []
    empty: list[tuple[int, str]] = []
    for name, at, steps in zip(sequences.names, rows.starts, rows.lengths):
        seen = np.flatnonzero(observed[at : at + steps])
        if not len(seen):
            empty.append((int(order[at : at + steps].min()), name))
            continue
        own = slice(at, at + steps)
        goals, its = (None if values is None else values[own] for values in (wanted, times))
        found.append(Series(name, seen, features[at + seen], goals, its, order[own]))
    if empty:
        _name_empty(table, [name for _, name in sorted(empty)], channels, not found)
    if read_targets is None:
        _name_unforeseen(table.path, channels, coming, rows.lengths)
    return sorted(found, key=lambda one: int(one.rows.min()))


def numbers_to_transform(options: TableOptions, table: Table, name: str, what: str) -> np.ndarray:
    """Return the numbers of a column (R,). DataError, with the row, if one of them has no transform of the targets."""
    values = table.numbers(name, what)
    check_domain(values, options.target_transform, lambda row: f"in {table.path}, column {name!r}, {table.row(row)}")
    return values


def _name_empty(table: Table, names: Sequence[str], channels: Sequence[Channel], is_all: bool) -> None:
    """Warn of sequences without a step that the network could see, which are left out; DataError if these are all."""
    later = max(channel.lead for channel in channels)
    columns = listed(dict.fromkeys(channel.column for channel in channels))
    more = f", and followed by {later} row(s) with {', '.join(_known_columns(channels))}" * bool(later)
    if is_all:
        raise DataError(
            f"Expected a step in {table.path} that is observed in all of {columns}{more}, but got none in sequence "
            f"{listed(names)}. Fill in missing values."
        )
    warn(
        f"{table.path}: {len(names)} sequence(s) have no step that is observed in all of {columns}{more}, and are left "
        f"out: {listed(names)}. Fill in their missing values to have predictions of them."
    )


def _coming(table: Table, channels: Sequence[Channel], order: np.ndarray, rows: Ragged) -> np.ndarray:
    """Return which rows (R,) only say what is known ahead: at the end of a sequence, nothing else being there."""
    later = {channel.column for channel in channels if channel.lead}
    others = {channel.column for channel in channels if channel.kind not in ("series", "elapsed")} - later
    if not later or not others:
        return np.zeros(len(order), bool)
    empty = np.all([[cell is None or cell != cell for cell in table.columns[name]] for name in others], 0)[order]
    ends = rows.lengths.cumsum()
    last = np.maximum.accumulate(np.where(empty, -1, np.arange(len(order))))  # the last row that is a step
    return np.arange(len(order)) > np.repeat(last[ends - 1], rows.lengths)


def _name_unforeseen(path: Path, channels: Sequence[Channel], coming: np.ndarray, lengths: np.ndarray) -> None:
    """Warn where the last steps have no forecast, because what is known ahead is not given for the steps after."""
    later = max(channel.lead for channel in channels)
    given = np.add.reduceat(coming.astype(np.int64), lengths.cumsum() - lengths)
    short = np.minimum(later - given, lengths - given).clip(0)
    if short.any():
        warn(
            f"{path}: the last {short.max()} step(s) of {(short > 0).sum()} sequence(s) have no forecast, because "
            f"{', '.join(_known_columns(channels))} is not given for the steps after them. Append {later} row(s) "
            f"to each sequence, with it and with the other inputs empty."
        )


def _known_columns(channels: Sequence[Channel]) -> list[str]:
    """Return the names of the columns that are known ahead."""
    return list(dict.fromkeys(channel.column for channel in channels if channel.lead))


def _named_alike(options: TableOptions, table: Table, columns: Sequence[str], features: int | None) -> Table:
    """Return an array file with the names that the training data had; the features of arrays are told by their
    places.
    """
    if not table.features:
        return table
    needed = len(columns) if features is None else features
    if table.features != needed:
        raise DataError(
            f"Expected {needed} features at every step of {table.path}, as in the training data "
            f"({listed(columns)}), but got {table.features}. Give an array (time, {needed}) or "
            f"(sequences, time, {needed})."
        )
    if features is not None:
        return table
    names = {f"x{place}": name for place, name in enumerate(columns)}
    if len(names_in(options.target)) == 1 and names_in(options.target)[0] not in names.values():
        names["y"] = names_in(options.target)[0]
    if options.sequence is not None and options.sequence not in names.values():
        names["sequence"] = options.sequence
    renamed = {names.get(name, name): column for name, column in table.columns.items()}
    if options.sequence is not None and options.sequence not in renamed:  # (time, features): one sequence
        renamed[options.sequence] = np.zeros(table.rows, np.int64)
    if options.time is not None and options.time not in renamed:  # steps are in order
        renamed[options.time] = np.arange(table.rows)
    return replace(table, columns=renamed)
