"""Columns that number the rows of a table, which tell a network nothing."""

from __future__ import annotations

import re

import numpy as np

_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__|level_\d+")
_WORDS = ("index", "row", "rowid", "row_id")
_MOST_TABLES = 0.1  # of the rows: more falls are those of a measurement


def numbers_rows(name: str, column: np.ndarray) -> bool:
    """Return whether a column numbers the rows, judged by its cells: with a usual name from 0 or 1 on; with pandas'
    name for an unnamed index also if rows were left out, reordered, or come from several tables.
    """
    if is_nameless(name):
        return column.dtype.kind in "iu" and _may_number_rows(column.astype(np.float64))
    if name.lower() not in _WORDS or column.dtype.kind not in "iuf":
        return False
    return any(np.array_equal(column, np.arange(first, first + len(column))) for first in (0, 1))


def is_nameless(name: str) -> bool:
    """Return whether a column has the name that pandas gives an index, or a column of a file, that has none."""
    return _NAMELESS.fullmatch(name) is not None


def _may_number_rows(numbers: np.ndarray) -> bool:
    """Return whether whole numbers (R,) may be pandas' index of one table, or of several below each other."""
    if (numbers < 0).any():
        return False
    if len(np.unique(numbers)) == len(numbers):
        return True
    steps = np.diff(numbers)
    back, ahead = steps < 0, steps[steps >= 0]
    if (ahead == 1).all() and (numbers[1:][back] == numbers[0]).all():  # tables of which no row was left out
        return True
    if (ahead > 0).all() and back.mean() <= _MOST_TABLES:
        return True
    return not back.any() and bool((ahead <= 1).all())  # the numbers of the tables themselves
