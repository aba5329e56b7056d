"""The times of the steps in the index of a pandas table: their order, and whether steps are missing or duplicated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._warnings import warn
from ..learn.files.cells import shown
from ..learn.files.dates import are_dates, nanoseconds_of_dates
from ..learn.tasks.time_grid import Grid, grid_of_times

_SILENCE = "To silence this, use warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."


def times_of(table: Any) -> Any:
    """Return the index of a pandas table if it holds times, with dates as text converted to a DatetimeIndex; else
    None.
    """
    index = getattr(table, "index", None)
    return as_times(index) if getattr(index, "nlevels", 1) == 1 else None


def as_times(index: Any) -> Any:
    """Return a pandas index, or a level of one, if it holds times, with text dates as a DatetimeIndex; else None."""
    dtype = getattr(index, "dtype", None)
    if getattr(dtype, "kind", "") in ("M", "m") or str(dtype).startswith("period["):
        return index
    if dtype is None or getattr(dtype, "kind", "O") != "O" or not len(index):
        return None
    texts = [str(cell) for cell in index]  # also dates of Python
    if not are_dates(texts):
        return None
    import pandas

    try:
        return pandas.DatetimeIndex(nanoseconds_of_dates(texts).astype("datetime64[ns]"))
    except (TypeError, ValueError):  # too far away, with offsets and without, or of a day that does not exist
        return None


def warn_of_steps(index: Any, lengths: Sequence[int], which: str) -> None:
    """Warn if the times of sequences, each in order, show steps that are missing, duplicated, or of unequal lengths.

    Args:
        index: Index of the rows of a pandas table, one sequence after another. None, or an index without times, is
            ignored.
        lengths: Lengths of the sequences.
        which: Name of the table.
    """
    times = as_times(index)
    grid = _of_numbers(index, lengths) if times is None else _of_times(times, lengths)
    if grid is None or grid.kind == "regular":
        return
    advice = {
        "gaps": "Add rows for the missing steps",
        "doubled": "Keep one row for each time",
        "irregular": "Resample it to equal distances",
    }
    warn(
        f"The times in the index of {which}: {grid.summary}. {advice[grid.kind]}. To silence this, use "
        f"warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
    )


def _of_times(times: Any, lengths: Sequence[int]) -> Grid | None:
    def told(row: int) -> str:
        return shown(str(times[row]))

    try:
        first = times.to_timestamp() if hasattr(times, "to_timestamp") else times  # of periods
        if first.dtype.kind == "m":
            return grid_of_times(first.total_seconds().to_numpy(), np.array(lengths), False, told)
        zoned = first.tz is not None
        daily = len(first) > 1 and np.median(np.diff(first).astype("timedelta64[h]").astype(np.int64)) >= 23
        stamps = np.asarray(
            (first.tz_localize if daily else first.tz_convert)(None) if zoned else first
        )  # days are local
    except ValueError:  # out of the bounds of pandas
        return None
    exact = stamps.astype("datetime64[ns]")
    if (exact.astype(stamps.dtype) != stamps).any():  # too far away
        return None
    return grid_of_times(exact.astype(np.int64), np.array(lengths), True, told, local=not zoned)


def _of_numbers(index: Any, lengths: Sequence[int]) -> Grid | None:
    """Return the grid of an index of numbers that may be times: named, not whole, or row numbers with few missing.

    Return None for any other index, and for numbers at unequal distances.
    """
    if getattr(getattr(index, "dtype", None), "kind", "O") not in "iuf" or not len(index):
        return None
    numbers = index.to_numpy()
    inside = np.ones(len(numbers) - 1, bool)
    inside[np.cumsum(lengths)[:-1] - 1] = False
    steps = np.diff(numbers)[inside]
    numbered = index.dtype.kind != "f" and index.name is None
    if not (steps >= 0).all() or (numbered and 2 * (steps == 1).sum() <= len(steps)):
        return None
    grid = grid_of_times(numbers, np.array(lengths), False, lambda row: shown(numbers[row]))
    return None if grid is None or grid.kind == "irregular" else grid
