"""Detection of a regular grid in the times of a table, and of its gaps.

Times are on a grid if they are equal numbers of seconds, working days, days of a calendar, or months apart, up to rounding,
or multiples of that, where steps are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from ..files import cells
from ..files.columns import Table
from ..files.dates import SECOND, are_dates, compact_nanoseconds, has_offset, nanoseconds_of_dates

_NEIGHBORS = "; the network takes them for neighbors"
_HOUR = 3600 * SECOND
DAY = 24 * _HOUR
_MONTHS = (3, 4, 9, 10, 11)  # in which clocks change
_MOST = 3  # gaps that are named
_UNITS = ((DAY, "d"), (_HOUR, "h"), (60 * SECOND, "min"), (SECOND, "s"), (10**6, "ms"), (1, "ns"))
DAYS = ("of the month", "before its end", "working day of the month", "working day before its end")
"""How the days of times that are months apart are counted."""
_ALIKE = 1e-3  # of a step, by which others may differ from it
_SINGLE = 9  # digits of a number in float32
_DIGITS = 9  # behind the point, of times that were rounded


class Grid(NamedTuple):
    """A description of the times of steps."""

    summary: str
    kind: Literal["regular", "gaps", "doubled", "irregular"]


class Steps(NamedTuple):
    """The distances (S,) of steps as counts of a step: its length, as a number of a unit, and whether it is rounded.

    unit: None for numbers, "time" for nanoseconds, "working day" or "month". day: Of months, what their days have in common,
    one of `DAYS`.
    """

    counts: np.ndarray
    length: float
    unit: str | None
    rounded: bool
    day: str = ""


def grid_summary(file: Table, name: str, order: np.ndarray, lengths: np.ndarray, are_read: bool = False) -> str:
    """Return what there is to say about the times of sequences, put in this order; empty if there are no two.

    are_read: Whether the network reads the time between steps.
    """
    found = grid_of(file, name, order, lengths)
    if found is None:
        return ""
    advice = "" if are_read else f"{_NEIGHBORS}, unless it is trained with irregular, --irregular"
    return found.summary.replace(_NEIGHBORS, advice)


def grid_of(file: Table, name: str, order: np.ndarray, lengths: np.ndarray) -> Grid | None:
    """Return the grid of a column of times. None if no sequence has two, or if they are no times.

    Args:
        file: The table.
        name: A column of numbers or dates, none missing.
        order: The rows (R,), a sequence after the other, each in order of time.
        lengths: Of the sequences.
    """
    column = file.columns[name]
    times, are_dates = times_in(file, name)
    local = are_dates and not has_offset(column[0])
    return grid_of_times(times[order], lengths, are_dates, lambda row: _shown(column[order[row]]), local)


def times_in(file: Table, name: str) -> tuple[np.ndarray, bool]:
    """Return a column of times (R,), and whether they are dates: then in nanoseconds since 1970, int64; else numbers."""
    dates = _instants(file.columns[name])
    if dates is not None:
        return dates, True
    numbers = _numbers(file, name)
    dates = compact_nanoseconds(numbers)
    return (numbers, False) if dates is None else (dates, True)


def grid_of_times(
    times: np.ndarray, lengths: np.ndarray, dates: bool, shown: Callable[[int], str], local: bool = True
) -> Grid | None:
    """Return the grid of the times (R,) of sequences, each in order.

    Args:
        times: Numbers; nanoseconds since 1970, int64, for dates.
        lengths: Of the sequences, one after the other.
        dates: Whether they are dates.
        shown: Returns a row's time as a message shows it.
        local: Whether dates may be those of a clock that is changed for daylight saving.
    """
    inside = within(lengths)
    steps = np.diff(times)[inside]
    if not len(steps):
        return None
    hint = _clock_change(times, inside) if dates and local else ""
    doubled = int((steps == 0).sum())
    if doubled:
        return Grid(f"{doubled} times are those of the step before; their order is that of the table{hint}", "doubled")
    best = steps_of(times, inside, dates)
    unit = "time" if dates else None
    if best is None:
        least, most = _named(steps.min(), unit), _named(steps.max(), unit)
        return Grid(f"irregular, {least} to {most} between two steps", "irregular")
    every = f"every {'about ' * best.rounded}{_named(best.length, best.unit)}"
    missing = np.flatnonzero(best.counts != 1)
    if not len(missing):
        return Grid(f"{every}, without gaps", "regular")
    places = np.flatnonzero(inside)[missing]
    gaps = [f"{best.counts[at] - 1} after {shown(place)}" for at, place in zip(missing, places[:_MOST])]
    told = (
        f"{every}, with {len(places)} gap(s), where steps are missing: {', '.join(gaps)}"
        f"{', ...' if len(places) > _MOST else ''}{_NEIGHBORS}{hint}"
    )
    return Grid(told, "gaps")


def within(lengths: np.ndarray) -> np.ndarray:
    """Return whether a row and the next are of the same sequence, (R - 1,) bool, for sequences one after the other."""
    inside = np.ones(max(int(lengths.sum()) - 1, 0), bool)
    inside[np.cumsum(lengths)[:-1] - 1] = False
    return inside


def steps_of(times: np.ndarray, inside: np.ndarray, dates: bool) -> Steps | None:
    """Return the distances of times as multiples of a step, with the fewest gaps; None if they are none.

    Args:
        times: As of `grid_of_times`.
        inside: As `within` returns it.
        dates: Whether they are dates.
    """
    found = [one for one in _readings(times, inside, dates) if one is not None]
    return min(found, key=lambda one: int((one.counts != 1).sum())) if found else None


def _readings(times: np.ndarray, inside: np.ndarray, dates: bool) -> Iterator[Steps | None]:
    """Yield the ways to read the distances of times as multiples of a step; None where it is none."""
    steps = np.diff(times)[inside]
    yield _multiples(steps, "time" if dates else None, _rounding(times))
    days = np.rint(steps / DAY).astype(np.int64) if dates else np.zeros(1, np.int64)
    if days.min() < 1 or not np.isin(np.abs(steps - days * DAY), (0, _HOUR)).all():  # clocks may be changed by an hour
        return
    stamps = (times // DAY).view("datetime64[D]")
    if np.is_busday(stamps).all():
        found = _multiples(np.busday_count(stamps[:-1], stamps[1:])[inside], "working day")
        yield found if found is not None and found.length == 1 else None
    yield _multiples(days * DAY, "time")
    months = stamps.astype("datetime64[M]")
    starts, ends = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]")
    places = (stamps - starts, ends - stamps, np.busday_count(starts, stamps), np.busday_count(stamps, ends))
    alike = [day for day, place in zip(DAYS, places) if (place == place[0]).all()]  # the first, or the last working day
    if alike:
        found = _multiples(np.diff(months.astype(np.int64))[inside], "month")
        yield found if found is None else found._replace(day=alike[0])


def _multiples(steps: np.ndarray, unit: str | None, rounding: float = 0.0) -> Steps | None:
    """Return distances (S,) as multiples of the most frequent one; None if they are none, or if some are no steps ahead.

    Those that are about equal, or by the rounding of the times, are the same if they are most.
    """
    if steps.min() <= 0:
        return None
    values, found = np.unique(steps, return_counts=True)
    step = values[found.argmax()]
    if (steps % step == 0).all() and 2 * found.max() >= len(steps):
        return Steps((steps // step).astype(np.int64), step, unit, False)
    group = np.append(0, np.cumsum(np.diff(values) > _differing(values[:-1], rounding)))
    sizes = np.bincount(group, found)
    own = group == sizes.argmax()
    length = float(np.average(values[own], weights=found[own]))
    counts = np.rint(steps / length)
    if 2 * sizes.max() < len(steps) or counts.min() < 1:
        return None
    away = np.abs(steps / counts - length).max()
    if away > _differing(length, rounding):
        return None
    return Steps(counts.astype(np.int64), float(f"{length:.6g}"), unit, bool(away > 1e-6 * length))


def _differing(step: Any, rounding: float) -> Any:
    """Return by how much others must differ from a step to be no such steps."""
    return np.maximum(_ALIKE * step, np.where(rounding <= step / 10, rounding, 0))


def _rounding(times: np.ndarray) -> float:
    """Return by how much the rounding of times changes their differences: by one of the last decimal, or bit, of all."""
    if times.dtype.kind != "f":
        steps = times - times[0]
        return float(max(10**digits for digits in range(19) if not (steps % 10**digits).any()))
    single = (times.astype(np.float32) == times).all()
    bits = 2 * float(np.spacing(np.abs(times).max().astype(np.float32 if single else np.float64)))
    for digits in range(_DIGITS):
        scaled = times * 10.0**digits
        if (np.abs(scaled - np.rint(scaled)) <= bits * 10.0**digits).all():
            return bits + 10.0**-digits
    if not single and all(float(f"{time:.{_SINGLE}g}") == time for time in times.tolist()):  # float32, written as text
        return 2 * float(np.spacing(np.abs(times).max().astype(np.float32)))
    return bits


def _clock_change(times: np.ndarray, inside: np.ndarray) -> str:
    """Return a hint where an hour is missing, or is there twice, as where clocks change for daylight saving; else nothing.

    Clocks change by an hour on a Sunday, before 4 o'clock, in March, April, or September to November.

    Args:
        times: Of the steps, in order, in nanoseconds, of dates without an offset from UTC.
        inside: Whether the next step is of the same sequence.
    """
    steps = np.diff(times)
    values, found = np.unique(steps[inside & (steps > 0)], return_counts=True)
    step = int(values[found.argmax()]) if len(values) else 0
    if not step or _HOUR % step:
        return ""
    for what, places, later in (("missing", steps == step + _HOUR, step), ("there twice", steps == 0, 0)):
        stamps = (times[:-1][inside & places] + later).view("datetime64[ns]")
        days, months = (stamps.astype(f"datetime64[{unit}]").astype(np.int64) for unit in "DM")
        early = (stamps - stamps.astype("datetime64[D]")).astype(np.int64) < 4 * _HOUR
        changed = stamps[((days + 4) % 7 == 0) & np.isin(months % 12 + 1, _MONTHS) & early]
        if len(changed):
            return (
                f". The hour {changed[0].astype('datetime64[h]')} is {what}, as where clocks change: if these are local "
                f"times, convert them to UTC, or add their offsets from UTC, such as +01:00"
            )
    return ""


def _shown(cell: object) -> str:
    return cells.shown(str(cell) if isinstance(cell, np.datetime64) else cell)


def _numbers(file: Table, name: str) -> np.ndarray:
    """Return times that are no dates as int64 or float64: the differences count, so that no ranks are in their place."""
    column = file.columns[name]
    if column.dtype.kind in "iu" and column.max() <= np.iinfo(np.int64).max:
        return column.astype(np.int64)
    return file.numbers(name, "time")


def _instants(column: np.ndarray) -> np.ndarray | None:
    """Return dates as nanoseconds, int64; None if the column holds none, or some that are too far away."""
    try:
        if column.dtype.kind == "M":
            exact = column.astype("datetime64[ns]")  # which wraps around
            return exact.astype(np.int64) if (exact.astype(column.dtype) == column).all() else None
        if column.dtype == object and are_dates(column.tolist()):
            return nanoseconds_of_dates(column.tolist()).astype(np.int64)
    except (OverflowError, ValueError):
        pass
    return None


def _named(step: float, unit: str | None) -> str:
    if unit is None:
        return f"{step:g}"
    if unit != "time":
        return unit if step == 1 else f"{step:g} {unit}s"
    size, name = next((size, name) for size, name in _UNITS if abs(step) >= size or size == 1)
    return f"{step / size:g} {name}"
