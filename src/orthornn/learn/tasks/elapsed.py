"""The time between the steps of sequences, which a network of rotations that forget is exact over.

It is counted from the step before that is there: a step that is left out, or that holds the state, is time that passes. That
of a sequence's first step is the unit: the state before it is zero, which no time changes.
"""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ..files.columns import Table
from ..files.data_frames import shown_name
from ..files.dates import SECOND
from .table_options import TableOptions
from .table_sequences import Sequences
from .time_grid import times_in


def elapsed(options: TableOptions, table: Table, sequences: Sequences, observed: np.ndarray) -> np.ndarray:
    """Return the time since the step before that is there (R,), in the order of the sequences: seconds between dates, else
    in the unit of the column. NaN for first steps, and for those that are not there.

    Raises:
        DataError: If two steps of a sequence have the same time.
    """
    assert options.time is not None
    times, are_dates = times_in(table, options.time)
    places = np.flatnonzero(observed)
    own = np.repeat(np.arange(len(sequences.rows)), sequences.rows.lengths)[places]
    follows = own[1:] == own[:-1]
    steps = np.diff(times[sequences.order[places]])[follows].astype(np.float64)
    later = places[1:][follows]
    same = np.flatnonzero(steps <= 0)
    if len(same):
        where = table.row(int(sequences.order[later[same[0]]]))
        raise DataError(
            f"Expected times that grow within a sequence for irregular, but {table.path}, column {options.time!r}, has "
            f"{len(same)} row(s) with the time of the step before, the first in {where}. "
            f"Name the column of the sequences with sequence, --sequence, or make one row of those at one time."
        )
    found = np.full(len(observed), np.nan)
    found[later] = steps / SECOND if are_dates else steps
    return found


def unit_of(options: TableOptions, times: np.ndarray) -> float:
    """Return the median of the times in training, in which the network counts. DataError if there is none."""
    there = times[~np.isnan(times)]
    if not len(there):
        raise DataError(
            f"Expected a training sequence of two steps for irregular, but {shown_name(options.data)} has none. Leave "
            f"irregular out."
        )
    return float(np.median(there))
