"""Detection of a regular grid in the times of a table, and of its gaps."""

from __future__ import annotations

import numpy as np

from ..files import cells
from ..files.columns import Columns
from ..files.dates import are_dates, has_offset, nanoseconds_of_dates

_HOUR = 3600 * 10**9
_MONTHS = (3, 4, 9, 10, 11)  # in which clocks change
_MOST = 3  # gaps that are named
_UNITS = ((86400 * 10**9, "d"), (3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (1, "ns"))


def told_grid(file: Columns, name: str, order: np.ndarray, lengths: np.ndarray) -> str:
    """Return what there is to say about the times of sequences, put in this order; empty if there are no two."""
    dates = _instants(file.columns[name])
    times = file.order(name, "time") if dates is None else dates
    if times.dtype.kind not in "iuf":
        return ""
    times = times[order]
    ends = np.cumsum(lengths)[:-1]
    inside = np.ones(max(len(times) - 1, 0), bool)
    inside[ends - 1] = False
    unit = None if dates is None else "time"
    if dates is not None and _are_months(times):
        stamps = times.view("datetime64[ns]").astype("datetime64[M]").astype(np.int64)
        steps, unit = np.diff(stamps)[inside], "month"
    else:
        steps = np.diff(times)[inside]
    if not len(steps):
        return ""
    hint = "" if unit != "time" or has_offset(file.columns[name][0]) else _clock_change(times, inside)
    if not steps.all():
        return f"{int((steps == 0).sum())} times are those of the step before; their order is that of the file{hint}"
    values, found = np.unique(steps, return_counts=True)
    step = values[found.argmax()]
    if len(values) == 1:
        return f"every {_named(step, unit)}, without gaps"
    if step <= 0 or (values % step != 0).any():
        return f"irregular, {_named(values[0], unit)} to {_named(values[-1], unit)} between two steps"
    places = np.flatnonzero(inside)[steps != step]
    gaps = [
        f"{int(steps[np.flatnonzero(inside) == place][0] // step) - 1} after {_shown(file.columns[name][order[place]])}"
        for place in places[:_MOST]
    ]
    return (
        f"every {_named(step, unit)}, with {len(places)} gap(s), where steps are missing: {', '.join(gaps)}"
        f"{', ...' if len(places) > _MOST else ''}; the network takes them for neighbors{hint}"
    )


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


def _instants(column: np.ndarray) -> np.ndarray | None:
    """Return dates as nanoseconds, int64; None if the column holds none, or some that are too far away."""
    try:
        if column.dtype.kind == "M":
            return None if np.isnat(column).any() else column.astype("datetime64[ns]").astype(np.int64)
        if column.dtype == object and are_dates(column.tolist()):
            return nanoseconds_of_dates(column.tolist()).astype(np.int64)
    except (OverflowError, ValueError):
        pass
    return None


def _are_months(times: np.ndarray) -> bool:
    """Return whether all are the beginnings of months, which are no equal numbers of days apart."""
    stamps = times.view("datetime64[ns]")
    months = bool((stamps.astype("datetime64[M]").astype("datetime64[ns]") == stamps).all())
    return months and len(np.unique(np.diff(times))) > 1


def _named(step: float, unit: str | None) -> str:
    if unit is None:
        return f"{step:g}"
    if unit == "month":
        return "month" if step == 1 else f"{step} months"
    size, name = next((size, name) for size, name in _UNITS if abs(step) >= size or size == 1)
    return f"{step / size:g} {name}"
