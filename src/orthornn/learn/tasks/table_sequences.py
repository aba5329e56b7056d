"""The rows of a table by sequence: which rows are together, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import coded
from ..files.columns import Table
from .sequences import Ragged
from .table_options import TableOptions, names_in


@dataclass(frozen=True)
class Sequences:
    """The rows (R,) of a table, a sequence after the other.

    order: int64 (R,), their places in the table. names: Of the sequences, (S,). rows: Where each begins, and its length.
    """

    order: np.ndarray
    names: list[str]
    rows: Ragged


def sequences_of(options: TableOptions, table: Table, file_of_rows: np.ndarray | None = None) -> Sequences:
    """Return the sequences of a table, each in the order of its times. Warns of equal times within a sequence."""
    found = together(options, table, file_of_rows)
    order = found.order
    if options.time is None or len(order) < 2:
        return found
    times = table.order(options.time, "time")[order]
    inside = np.ones(len(order) - 1, bool)
    inside[found.rows.starts[1:] - 1] = False
    equal = np.flatnonzero(inside & (times[1:] == times[:-1]))
    if len(equal):
        one_time = len(equal) == int(inside.sum())
        warn(
            f"{table.path}, column {options.time!r}: {len(equal)} row(s) have the time of the step before in their sequence, "
            f"the first in {table.row(order[equal[0] + 1])}; they are in the order of the table."
            f"{' No sequence has two times, so that the column gives the steps no order.' * one_time} If they are of "
            f"several sequences, name the column of these with sequence, --sequence; else put the table "
            f"in order and leave time out, which also silences the warning."
        )
    return found


def together(options: TableOptions, table: Table, file_of_rows: np.ndarray | None = None) -> Sequences:
    """Return the same, whatever the times."""
    rows = table.rows
    order = np.arange(rows)
    if options.time is not None:
        order = np.argsort(table.order(options.time, "time"), kind="stable")
    column = sequence_column(options, table)
    if column is None and file_of_rows is None:
        return Sequences(order, ["0"], Ragged(np.array([rows])))
    if column is None:
        assert file_of_rows is not None
        lengths = np.bincount(file_of_rows)
        order = order[np.argsort(file_of_rows[order], kind="stable")]
        return Sequences(order, list(map(str, range(len(lengths)))), Ragged(lengths))
    labels = table.labels(column, "sequence")
    if any(label is None for label in labels):
        row = table.row([label is None for label in labels].index(True))
        raise DataError(
            f"Expected the name of its sequence for every step in {table.path}, column {column!r}, but got missing "
            f"values, the first in {row}. Fill them in, or leave the rows out."
        )
    names, codes = coded(labels)
    if file_of_rows is not None:  # sequences of two files are never the same
        both, codes = np.unique(file_of_rows * len(names) + codes, return_inverse=True)
        names = [names[code % len(names)] for code in both.tolist()]
    return Sequences(order[np.argsort(codes[order], kind="stable")], names, Ragged(np.bincount(codes)))


def sequence_column(options: TableOptions, table: Table) -> str | None:
    """Return the name of the column that tells sequences apart, if there is one."""
    return options.sequence or _by_its_name(options, table, "sequence")


def mask_column(options: TableOptions, table: Table) -> str | None:
    """Return the name of the column that is 0 where a step is missing, if there is one."""
    return options.mask or _by_its_name(options, table, "mask")


def _by_its_name(options: TableOptions, table: Table, name: str) -> str | None:
    """Return `name` if there is such a column and no option gives it another part to play."""
    taken: set[str | None] = {*names_in(options.inputs or ""), *names_in(options.categories or "")}
    taken |= {*names_in(options.target), options.sequence, options.time, options.mask, options.split, options.group}
    return name if name in table.columns and name not in taken else None
