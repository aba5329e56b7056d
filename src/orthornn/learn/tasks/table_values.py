"""The numbers of a table as a network reads them: the inputs that its columns become, and which steps are there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._warnings import warn
from ...errors import ArgumentError, DataError
from ..files.cells import listed
from ..files.columns import Table
from ..files.data_frames import shown_name
from .channels import Channel, beyond, category_channels, channel_values
from .table_options import TableOptions, modes_of, names_in
from .table_roles import Roles
from .table_sequences import Sequences, mask_column
from .target_transform import in_units, transformed

INFINITE = "An infinity is never taken for a missing value. Replace it by a number, or leave the cell empty."
ADVICE = (
    "Fill them in, or say in training what a missing value means: missing='hold', --missing hold (the step is left out), or "
    "indicator, interpolate, skip."
)
_MOST_KNOWN = 4096  # inputs that are values of later steps


def channels_of(options: TableOptions, table: Table, roles: Roles, rows: np.ndarray) -> list[Channel]:
    """Return the inputs, with what is known of them from the training part; those of later steps behind the others.

    rows: The rows of the table that are in the training part.
    """
    read = {*roles.inputs, *roles.known, *names_in(options.target)}
    unread = [name for name in modes_of(options.missing) if name and name not in read]
    if unread:
        raise ArgumentError(
            f"Expected missing, --missing, to name inputs or the target, but got {unread[0]!r}, which the network does "
            f"not see. Leave it out, or name it in inputs, --inputs."
        )
    now = [channel for name in roles.inputs for channel in _channels_of_column(options, table, rows, name, "inputs")]
    known = [channel for name in roles.known for channel in _channels_of_column(options, table, rows, name, "known")]
    if len(known) * len(options.forecasting.leads) > _MOST_KNOWN:
        raise ArgumentError(
            f"Expected known columns to make at most {_MOST_KNOWN} inputs, but got {len(known)} for each of "
            f"{len(options.forecasting.leads)} steps. Name fewer, or forecast fewer steps."
        )
    series = []
    embedding = options.forecasting.embedding
    if embedding is not None:
        if roles.sequence is None:
            raise DataError(
                f"Expected several series for {embedding=}, but {options.data} is one. Name the column that "
                f"tells them apart with sequence, --sequence."
            )
        series = [Channel(roles.sequence, "series")]
    if options.irregular:
        assert options.time is not None
        series = [Channel(options.time, "elapsed")]
    found = [*now, *(channel._replace(lead=lead) for lead in options.forecasting.leads for channel in known), *series]
    first: dict[str, Channel] = {}
    for channel in found:
        other = first.setdefault(channel.name, channel)
        if other is not channel:
            raise DataError(
                f"Expected inputs of different names, but got two that are called {channel.name!r}, of the columns "
                f"{other.column!r} and {channel.column!r} of {shown_name(options.data)}. Rename one of these, or name the "
                f"inputs without it: inputs, --inputs."
            )
    return found


def _channels_of_column(options: TableOptions, table: Table, rows: np.ndarray, name: str, what: str) -> list[Channel]:
    """Return what a column becomes."""
    modes = modes_of(options.missing)
    mode = modes.get(name, modes[""])
    if name in names_in(options.categories or ""):
        if mode == "interpolate":
            raise ArgumentError(
                f"Expected another way for missing categories of {name!r}, but got interpolate. Pass indicator."
            )
        return category_channels(table, name, rows, mode == "indicator")
    values = table.numbers(name, what)[rows]
    kind = {"indicator": "last", "interpolate": "interpolated"}.get(mode, "number")
    if kind == "number":
        return [Channel(name)]
    gone = np.isnan(values)
    if gone.all():
        raise DataError(
            f"Expected values in the training part of {options.data}, column {name!r}, but got none. Choose "
            f"another split_seed, or leave it out of inputs, --inputs."
        )
    more = [Channel(name, "missing")] if mode == "indicator" and gone.any() else []
    how = options.target_transform if name in names_in(options.target) else None  # the mean of what the network reads
    return [Channel(name, kind, float(in_units(transformed(values[~gone], how).mean(), how))), *more]


def features_of(
    options: TableOptions,
    table: Table,
    channels: list[Channel],
    sequences: Sequences,
    series: Sequence[str],
    stretches: np.ndarray | None = None,
) -> np.ndarray:
    """Return the inputs (R, I) in the order of the sequences. DataError, or a warning, for a series without a vector.

    series, stretches: See `channel_values`.
    """
    order = sequences.order
    features = channel_values(table, channels, order, sequences.rows.lengths, series, stretches)
    if channels[-1].kind != "series":
        return features
    unseen = features[:, -1] == len(series)
    if unseen.any():
        labels = table.labels(channels[-1].column, "sequence")[order[unseen]]
        names = listed(sorted(set(map(str, labels))))
        if options.forecasting.new_series == "error":
            raise DataError(
                f"Expected series that were in the training part in {table.path}, but got others, for which there is no "
                f"vector: {names}. Leave them out; or train with the mean of all vectors for them, "
                f"new_series='mean', --new-series mean."
            )
        warn(
            f"{table.path}: series that were not in the training part are read with the mean of the vectors of all "
            f"{len(series)}: {names}. To silence this, leave them out."
        )
    return features


def observed_of(
    options: TableOptions, table: Table, channels: list[Channel], sequences: Sequences, features: np.ndarray
) -> np.ndarray:
    """Return which steps, in the order of the sequences, are there: bool (R,). DataError for missing values that nobody
    spoke of.
    """
    order, rows = sequences.order, sequences.rows
    observed = np.ones(len(order), bool)
    mask = mask_column(options, table)
    if mask is not None:
        flags = table.numbers(mask, "mask")
        wrong = np.flatnonzero(np.isnan(flags) if options.mask else ~np.isin(flags, (0, 1)))
        if len(wrong):
            raise DataError(
                f"Expected 0 or 1 in {table.path}, column {mask!r}, but got {flags[wrong[0]]:g} in "
                f"{table.row(wrong[0])}. The column tells which steps are missing; if it is no mask, rename it or name "
                f"it with inputs, --inputs."
            )
        observed = flags[order] != 0
    modes = modes_of(options.missing)
    mode_of = [modes.get(channel.column, modes[""]) for channel in channels]
    strict = np.array([mode == "error" for mode in mode_of])
    gone = ~np.isfinite(features)
    unknown = gone & ~beyond(channels, rows.lengths)  # what no later row could have said
    wrong = observed & (unknown & (strict | np.isinf(features))).any(1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        place = int(np.flatnonzero(unknown[row] & (strict | np.isinf(features[row])))[0])
        name = channels[place].column
        raise DataError(
            f"Expected finite numbers in {table.path}, column {name!r}, but got {features[row, place]:g} in "
            f"{table.row(order[row + channels[place].lead])}, as in {int(wrong.sum())} row(s) in all. "
            f"{ADVICE if np.isnan(features[row, place]) else INFINITE}"
        )
    skipping = np.array([mode == "skip" for mode in mode_of])
    if skipping.any():
        left_out = np.add.reduceat((observed & (unknown & skipping).any(1)).astype(np.int64), rows.starts)
        observed = observed & np.repeat(left_out == 0, rows.lengths)
    return observed & ~gone.any(1)


def strict_targets(options: TableOptions) -> np.ndarray:
    """Return whether a missing target is an error: bool (O,), of each column."""
    modes = modes_of(options.missing)
    return np.array([modes.get(name, modes[""]) == "error" for name in names_in(options.target)])
