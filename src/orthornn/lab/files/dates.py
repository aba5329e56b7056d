"""Dates in ISO 8601 as text: 2020-12-31, 2020-12-31T23:59:59.5, or a quarter, 2020 Q4.

They may have an offset from UTC (Z, +01:00). One without an offset is compared with others as it is written, in no time
zone. A column of dates is parsed as arrays of digits: cells of one length are usually written alike, with the same signs at
the same places. Cells that are not are parsed one at a time, by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_DATE = re.compile(
    r"(\d{4}-\d{2}(?:-\d{2})?|\d{4}[ -]?Q[1-4])"
    r"(?:(?<=-\d\d-\d\d)[T ](\d{2}(?::\d{2}(?::\d{2}(?:\.(\d{1,9}))?)?)?)\s?(Z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_LONGEST = 36  # characters of a date: 2020-12-31T23:59:59.123456789 +01:00
_SECOND = 10**9
_FAR = 9_223_372_035  # seconds from 1970 whose nanoseconds int64 holds
_DIGITS = re.compile(r"[0-9]")
_NO_DATES = "some are no dates"
_SOME_OFFSETS = "some have an offset from UTC and others have none"


class _Instants(NamedTuple):
    """Dates written alike, (R,) int64: seconds since 1970 and nanoseconds behind them; whether they have an offset."""

    seconds: np.ndarray
    fraction: np.ndarray
    offset: bool


def is_date(cell: object) -> bool:
    """Return whether a cell is a date in ISO 8601, with or without a time of day."""
    return isinstance(cell, str) and _DATE.fullmatch(cell) is not None


def has_offset(cell: object) -> bool:
    """Return whether a cell is a date with an offset from UTC."""
    match = _DATE.fullmatch(cell) if isinstance(cell, str) else None
    return match is not None and match[4] is not None


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
    """Return dates as nanoseconds since 1970, (R,): int64, or integers of any size where one does not fit into it.

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
    """Return whole numbers that are written as dates as nanoseconds since 1970, int64; None if they are no such numbers.

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


def _spelled(rest: str) -> str:
    """Return what is behind the month of a date in digits as ISO 8601 spells it."""
    marks = ("-", "T", ":", ":")
    return "".join(mark + rest[2 * place : 2 * place + 2] for place, mark in enumerate(marks) if rest[2 * place :])


def _one_at_a_time(cells: Sequence[str]) -> list[int]:
    parts = [_DATE.fullmatch(cell) for cell in cells]
    if not all(parts):
        raise ValueError(_NO_DATES)
    offsets = [match[4] for match in parts if match]
    if len({offset is None for offset in offsets}) > 1:
        raise ValueError(_SOME_OFFSETS)
    return [_nanoseconds(*match.groups()) for match in parts if match]


def _nanoseconds(date: str, time: str | None, fraction: str | None, offset: str | None) -> int:
    if "Q" in date:
        date = f"{date[:4]}-{3 * int(date[-1]) - 2:02d}"
    whole = (time or "00:00").partition(".")[0]
    seconds = int(np.datetime64(f"{date}T{whole}" if date.count("-") == 2 else date, "s").astype(np.int64))
    if offset is not None and offset != "Z":
        hours, minutes = int(offset[1:3]), int(offset[-2:])
        seconds -= (1 if offset[0] == "+" else -1) * (60 * hours + minutes) * 60
    return seconds * _SECOND + int((fraction or "0").ljust(9, "0"))


def _as_arrays(cells: Sequence[str]) -> np.ndarray | None:
    """Return the same as int64; None where a cell is written unlike others of its length, is no day, or far away."""
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
        nanoseconds[places] = found.seconds * _SECOND + found.fraction
    return nanoseconds if len(offsets) == 1 else None


def _by_length(cells: Sequence[object]) -> list[tuple[list[str], np.ndarray]] | None:
    """Return the cells of each length, and their places; None if some are no text, or too long for a date."""
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
    """Return the characters (R, L) of dates of one length, and the parts of the first, which are those of all.

    None if the first is no date but a quarter or something else, or if others have a sign where it has a digit, or another
    sign; but + and - are alike in an offset.
    """
    first = _DATE.fullmatch(group[0])
    if first is None or "Q" in group[0]:
        return None
    text = "".join(group)
    if not text.isascii():
        return None
    letters = np.frombuffer(text.encode("ascii"), np.uint8).reshape(len(group), -1)
    sign = first.start(4) if first[4] not in (None, "Z") else -1
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

    month = number(5, 7)
    if ((month < 1) | (month > 12)).any():
        return None
    months = (12 * (number(0, 4) - 1970) + month - 1).view("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64)
    seconds: np.ndarray = days * 86400
    if parts.end(1) == 10:  # not a month
        day = number(8, 10)
        if ((day < 1) | (day > (months + 1).astype("datetime64[D]").astype(np.int64) - days)).any():
            return None
        seconds = seconds + (day - 1) * 86400
        if parts[2] is not None:
            start = parts.start(2)
            for place, (limit, unit) in zip(range(start, parts.end(2), 3), ((24, 3600), (60, 60), (60, 1))):
                value = number(place, place + 2)
                if (value >= limit).any():
                    return None
                seconds = seconds + unit * value
    fraction = np.zeros(len(letters), np.int64)
    if parts[3] is not None:
        fraction = number(*parts.span(3)) * 10 ** (9 - len(parts[3]))
    if parts[4] is not None and parts[4] != "Z":
        start, end = parts.span(4)
        away = 3600 * number(start + 1, start + 3) + 60 * number(end - 2, end)
        seconds = seconds - np.where(letters[:, start] == ord("+"), away, -away)
    return _Instants(seconds, fraction, parts[4] is not None)
