"""Dates in ISO 8601 as text: 2020-12-31, 2020-12-31T23:59:59.5, 20201231T235959; and 2020/12/31, or a quarter, 2020 Q4.

They may have an offset from UTC (Z, UTC, +01:00, +01). One without an offset is compared with others as it is written,
in no time zone. A column of dates is parsed as arrays of digits: cells of one length are usually written alike, with
the same signs at the same places. Cells that are not are parsed one at a time, by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_END = r"(?:[.,](?P<fraction>\d{1,9}))?)?)?\s?(?P<offset>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?"
_FORMS = [
    re.compile(form, re.ASCII)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/])(?P<month>\d{2})(?P=mark)(?P<day>\d{2})"
        r"(?:[Tt ](?P<hour>\d{2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})" + _END + ")?",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})"
        r"[Tt ](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})" + _END,
        r"(?P<year>\d{4})-(?P<month>\d{2})",
        r"(?P<year>\d{4})[ -]?Q(?P<quarter>[1-4])",
    )
]
_LONGEST = 36  # characters of a date: 2020-12-31T23:59:59.123456789 +01:00
_YEAR = re.compile(r"\d{4}", re.ASCII)
_HOURS = len("+01")  # an offset without minutes
SECOND = 10**9  # nanoseconds
_FAR = 9_223_372_035  # seconds from 1970 whose nanoseconds int64 holds
_DIGITS = re.compile(r"[0-9]")
_NO_DATES = "some are not dates"
_SOME_OFFSETS = "some have an offset from UTC and others have none"


class _Instants(NamedTuple):
    """Dates written alike, (R,) int64: seconds since 1970 and nanoseconds behind them; whether they have an offset."""

    seconds: np.ndarray
    fraction: np.ndarray
    offset: bool


def is_date(cell: object) -> bool:
    """Return whether a cell is a date in ISO 8601, with or without a time of day."""
    return _parts(cell) is not None


def has_offset(cell: object) -> bool:
    """Return whether a cell is a date with an offset from UTC."""
    parts = _parts(cell)
    return parts is not None and parts.groupdict().get("offset") is not None


def exists(cell: object) -> bool:
    """Return whether a cell is a date, and one of a day that exists."""
    try:
        return is_date(cell) and bool(_one_at_a_time([str(cell)]))
    except ValueError:
        return False


def are_dates(cells: Sequence[object]) -> bool:
    """Return whether all cells are dates as `is_date` has them. They need not be days that exist."""
    if len(cells) and not is_date(cells[0]):
        return False
    groups = _by_length(cells)
    if groups is None:
        return all(map(is_date, cells))
    return all(_layout(group) is not None or all(map(is_date, group)) for group, _ in groups)


def ranks_of_dates(cells: Sequence[str]) -> np.ndarray:
    """Return int64 by which dates are put in order, to the nanosecond.

    Raises ValueError if a date does not exist, or if some have an offset from UTC and others have none.
    """
    return np.unique(nanoseconds_of_dates(cells), return_inverse=True)[1]


def nanoseconds_of_dates(cells: Sequence[str]) -> np.ndarray:
    """Return dates as nanoseconds since 1970, (R,): int64, or integers of any size if one does not fit.

    Raises ValueError as `ranks_of_dates` does.
    """
    found = _as_arrays(cells)
    if found is not None:
        return found
    wide = _one_at_a_time(cells)
    try:
        return np.array(wide, np.int64)
    except OverflowError:
        return np.array(wide, object)


def compact_nanoseconds(numbers: np.ndarray) -> np.ndarray | None:
    """Return whole numbers that are written as dates as nanoseconds since 1970, int64; None if they are not such
    numbers.

    numbers: (R,), all months, 202012; days, 20201231; or times of a day, 2020123123, 202012312359 or 20201231235959.
    """
    if not len(numbers) or not ((numbers >= 190_001) & (numbers < 22 * 10**12) & (numbers % 1 == 0)).all():
        return None
    texts = numbers.astype(np.int64).astype(str).tolist()
    if len(set(map(len, texts))) > 1 or not all("1900" <= text[:4] < "2200" for text in texts):
        return None
    try:
        return nanoseconds_of_dates([f"{text[:4]}-{text[4:6]}{_spelled(text[6:])}" for text in texts]).astype(np.int64)
    except ValueError:
        return None


def respelled(cell: str, nanoseconds: int) -> str:
    """Return the date so many nanoseconds after another, in its form and at its offset from UTC.

    cell: Same as in `is_date`, or the same in digits only, 20201231. If its form cannot express the later date, such
    as an hour behind a day, the date is in the form of ISO 8601 that has.
    """
    digits = cell.isdecimal()
    text = f"{cell[:4]}-{cell[4:6]}{_spelled(cell[6:])}" if digits else cell
    parts = _parts(text)
    assert parts is not None
    own = parts.groupdict()
    wall = _nanoseconds({**own, "offset": None}) + nanoseconds
    moment = np.datetime64(wall // SECOND, "s")
    year, month, day, hour, minute, second = re.findall(r"\d+", str(moment))
    fraction = f"{wall % SECOND:09d}"
    later = {"year": year, "month": month, "day": day, "hour": hour, "minute": minute, "second": second}
    later |= {"fraction": fraction[: len(own.get("fraction") or "")], "quarter": str((int(month) + 2) // 3)}
    letters = list(text)
    for name, value in later.items():
        start, end = _span(parts, name)
        letters[max(start, 0) : max(end, 0)] = value if start >= 0 else ""
    found = "".join(letters)
    if _nanoseconds({**_groups(found), "offset": None}) != wall:
        return f"{moment}{'.' * (wall % SECOND > 0)}{fraction.rstrip('0')}{own.get('offset') or ''}"
    return re.sub(r"\D", "", found) if digits else found


def _groups(cell: str) -> Mapping[str, str | None]:
    parts = _parts(cell)
    assert parts is not None
    return parts.groupdict()


def _spelled(rest: str) -> str:
    """Return the part after the month of a date in digits, in the spelling of ISO 8601."""
    marks = ("-", "T", ":", ":")
    return "".join(mark + rest[2 * place : 2 * place + 2] for place, mark in enumerate(marks) if rest[2 * place :])


def _one_at_a_time(cells: Sequence[str]) -> list[int]:
    found = [parts.groupdict() for parts in map(_parts, cells) if parts is not None]
    if len(found) < len(cells):
        raise ValueError(_NO_DATES)
    if len({parts.get("offset") is None for parts in found}) > 1:
        raise ValueError(_SOME_OFFSETS)
    return list(map(_nanoseconds, found))


def _parts(cell: object) -> re.Match[str] | None:
    """Return the parts of a date; None if the cell is none."""
    if not isinstance(cell, str) or _YEAR.match(cell) is None:
        return None
    found = next((parts for parts in (form.fullmatch(cell) for form in _FORMS) if parts is not None), None)
    own = {} if found is None else found.groupdict()
    # an offset of two digits behind an hour would be minutes behind a sign
    return None if own.get("minute") is None and len(own.get("offset") or "") == _HOURS else found


def _nanoseconds(parts: Mapping[str, str | None]) -> int:
    month = parts.get("month") or f"{3 * int(parts['quarter'] or 1) - 2:02d}"
    time = ":".join(parts.get(name) or "00" for name in ("hour", "minute", "second"))
    moment = np.datetime64(f"{parts['year']}-{month}-{parts.get('day') or '01'}T{time}", "s")
    seconds, offset = int(moment.astype(np.int64)), parts.get("offset") or ""
    if offset[:1] in ("+", "-"):
        minutes = 0 if len(offset) == _HOURS else int(offset[-2:])
        seconds -= (1 if offset[0] == "+" else -1) * (60 * int(offset[1:3]) + minutes) * 60
    return seconds * SECOND + int((parts.get("fraction") or "0").ljust(9, "0"))


def _as_arrays(cells: Sequence[str]) -> np.ndarray | None:
    """Return the same as int64; None if a cell is written unlike others of its length, is not a day, or is out of
    range.
    """
    groups = _by_length(cells)
    if groups is None:
        return None
    nanoseconds = np.empty(len(cells), np.int64)
    offsets = set()
    for group, places in groups:
        layout = _layout(group)
        found = None if layout is None else _parsed(*layout)
        if found is None or np.abs(found.seconds).max() > _FAR:
            return None
        offsets.add(found.offset)
        nanoseconds[places] = found.seconds * SECOND + found.fraction
    return nanoseconds if len(offsets) == 1 else None


def _by_length(cells: Sequence[object]) -> list[tuple[list[str], np.ndarray]] | None:
    """Return the cells of each length, and their indices; None if some are not text, or too long for a date."""
    if set(map(type, cells)) != {str}:
        return None
    texts: list[str] = list(cells)  # type: ignore[arg-type]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if lengths.max() > _LONGEST:
        return None
    found = []
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        found.append((texts if len(places) == len(texts) else [texts[place] for place in places], places))
    return found


def _layout(group: list[str]) -> tuple[np.ndarray, re.Match[str]] | None:
    """Return the characters (R, L) of dates of one length, and the parts of the first, which apply to all.

    Return None if the first is not a date (but a quarter, for example), or if others have a sign in place of a digit,
    or another sign; but + and - are alike in an offset.
    """
    first = _parts(group[0])
    if first is None or "Q" in group[0]:
        return None
    text = "".join(group)
    if not text.isascii():
        return None
    letters = np.frombuffer(text.encode("ascii"), np.uint8).reshape(len(group), -1)
    start, _ = _span(first, "offset")
    sign = start if group[0][start : start + 1] in ("+", "-") else -1
    for place, letter in enumerate(group[0]):
        column = letters[:, place]
        if _DIGITS.match(letter):
            alike = column - np.uint8(ord("0")) <= 9
        elif place == sign:
            alike = (column == ord("+")) | (column == ord("-"))
        else:
            alike = column == ord(letter)
        if not alike.all():
            return None
    return letters, first


def _parsed(letters: np.ndarray, parts: re.Match[str]) -> _Instants | None:
    """Return the instants of dates written alike, as the parts of the first say; None if one does not exist."""

    def number(start: int, end: int) -> np.ndarray:
        found: np.ndarray = np.zeros(len(letters), np.int64)
        for place in range(start, end):
            found = 10 * found + (letters[:, place] - np.uint8(ord("0")))
        return found

    def part(name: str, otherwise: int) -> np.ndarray:
        start, end = _span(parts, name)
        return number(start, end) if start >= 0 else np.full(len(letters), otherwise, np.int64)

    month, day = part("month", 1), part("day", 1)
    if ((month < 1) | (month > 12)).any():
        return None
    months = (12 * (part("year", 1970) - 1970) + month - 1).view("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64)
    if ((day < 1) | (day > (months + 1).astype("datetime64[D]").astype(np.int64) - days)).any():
        return None
    seconds: np.ndarray = (days + day - 1) * 86400
    for name, limit, unit in (("hour", 24, 3600), ("minute", 60, 60), ("second", 60, 1)):
        value = part(name, 0)
        if (value >= limit).any():
            return None
        seconds = seconds + unit * value
    start, end = _span(parts, "fraction")
    fraction = part("fraction", 0) * 10 ** (9 - max(0, end - start))
    start, end = _span(parts, "offset")
    if start >= 0 and parts[0][start] in "+-":
        away = 3600 * number(start + 1, start + 3)
        if end - start > _HOURS:
            away = away + 60 * number(end - 2, end)
        seconds = seconds - np.where(letters[:, start] == ord("+"), away, -away)
    return _Instants(seconds, fraction, start >= 0)


def _span(parts: re.Match[str], name: str) -> tuple[int, int]:
    """Return the start and end index of a part, -1 and -1 if it is missing."""
    return parts.span(name) if name in parts.re.groupindex else (-1, -1)
