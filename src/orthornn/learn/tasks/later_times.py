"""The times of the steps after the last ones of a table, by the grid of its times, spelled as the table spells them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..files.columns import Table
from ..files.dates import respelled
from .time_grid import DAY, DAYS, Steps, steps_of, times_in, within

_DAY_OF_MONTH, _BEFORE_END, _WORKING_DAY, _ = DAYS


@dataclass(frozen=True)
class Clock:
    """The times of a column that are on a grid.

    Args:
        cells: Of the column, by row, as text.
        times: Numbers, or nanoseconds since 1970 for dates, by row.
        steps: What is between two times.
        dates: Whether they are dates.
    """

    cells: np.ndarray
    times: np.ndarray
    steps: Steps
    dates: bool

    def after(self, row: int, count: int) -> str:
        """Return the time so many steps after that of a row, spelled like it."""
        start = self.times[row]
        if not self.dates:
            later = start + count * self.steps.length
            return str(int(later)) if self.times.dtype.kind in "iu" and later % 1 == 0 else f"{later:.10g}"
        return respelled(str(self.cells[row]), self._date_after(int(start), count) - int(start))

    def _date_after(self, start: int, count: int) -> int:
        """Return the nanoseconds of a date so many steps after another."""
        if self.steps.unit == "time":
            return start + count * round(self.steps.length)
        days, rest = divmod(start, DAY)
        day = np.datetime64(days, "D")
        count *= round(self.steps.length)
        if self.steps.unit == "working day":
            return int(np.busday_offset(day, count).astype(np.int64)) * DAY + rest
        month = day.astype("datetime64[M]")
        (first, end), (later, its_end) = (
            (one.astype("datetime64[D]"), (one + 1).astype("datetime64[D]")) for one in (month, month + count)
        )
        if self.steps.day == _DAY_OF_MONTH:
            found = later + (day - first)
        elif self.steps.day == _BEFORE_END:
            found = its_end - (end - day)
        elif self.steps.day == _WORKING_DAY:
            found = np.busday_offset(later, np.busday_count(first, day), roll="forward")
        else:
            found = np.busday_offset(its_end, -np.busday_count(day, end), roll="forward")
        return int(found.astype(np.int64)) * DAY + rest


def clock_of(file: Table, name: str, order: np.ndarray, lengths: np.ndarray) -> Clock | None:
    """Return the clock of a column of times; None if they are on no grid, or no sequence has two.

    Args:
        file: The table.
        name: A column of numbers or dates, none missing.
        order: The rows (R,), a sequence after the other, each in order of time.
        lengths: Of the sequences.
    """
    cells, (times, are_dates) = file.labels(name, "time"), times_in(file, name)
    inside = within(lengths)
    steps = np.diff(times[order])[inside]
    if not len(steps) or steps.min() <= 0:
        return None
    found = steps_of(times[order], inside, are_dates)
    return None if found is None else Clock(cells, times, found, are_dates)
