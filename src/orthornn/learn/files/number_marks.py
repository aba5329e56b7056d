"""Numbers with decimal commas and with marks between groups of three digits.

A column is read so if every convention under which all of its cells are numbers gives the same numbers. 1,234 may be
1234 or 1.234: a column of such cells alone stays text, and whoever needs its numbers is asked for the convention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Marks(NamedTuple):
    """A convention: decimal mark, and mark of thousands or None."""

    decimal: str
    thousands: str | None


_SPACES = ("\u00a0", "\u202f")  # of typography; an ordinary space has to be asked for
_KNOWN = tuple(
    Marks(decimal, thousands)
    for decimal, groups in ((",", (None, ".", "'", *_SPACES)), (".", (",", "'", *_SPACES)))
    for thousands in groups
)
_MARKED = re.compile(r"[+-]?\d[\d.,' \u00a0\u202f]*\d([eE][+-]?\d+)?", re.ASCII)


def is_marked(cell: object) -> bool:
    """Return whether a cell is a number under some convention with commas or marks of thousands."""
    return (
        isinstance(cell, str)
        and _MARKED.fullmatch(cell) is not None
        and any(_pattern(marks).fullmatch(cell) for marks in (*_KNOWN, Marks(".", " "), Marks(",", " ")))
    )


def fits_a_convention(text: str, marks: Marks | None) -> bool:
    """Return whether a cell is a number under these marks, or, for None, under any convention that `unmarked` tries."""
    return any(_pattern(convention).fullmatch(text) for convention in (_KNOWN if marks is None else (marks,)))


def has_leading_zeros(text: str) -> bool:
    """Return whether a cell is a whole number written with zeros in front, which as a name is another: 007."""
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits.isdecimal()


def unmarked(texts: Sequence[str | None], marks: Marks | None) -> tuple[np.ndarray, Marks] | None:
    """Return the numbers of a column, float64 with NaN for missing ones, and a convention that they follow.

    Args:
        texts: The cells, stripped; None for missing ones.
        marks: The convention; None to tell it from the cells.

    Returns:
        None if the cells are not numbers, or if conventions that fit them disagree on the numbers.
    """
    there = {text for text in texts if text is not None}
    if marks is None and not (there and _seems_marked(there)):
        return None
    found: dict[str, float] | None = None
    points = any("," in text for text in there)
    for convention in _KNOWN if marks is None else (marks,):
        if marks is None and convention.thousands == "." and not points:
            continue  # addresses and versions are written so too
        if not all(map(_pattern(convention).fullmatch, there)) or any(map(has_leading_zeros, there)):
            continue
        values = {text: _value(text, convention) for text in there}
        if found is not None and values != found:
            return None
        found, followed = values, convention
    if found is None or not any(re.search(r"[^\d+-]", text) for text in there):
        return None  # whole numbers are read as without marks
    return np.array([np.nan if text is None else found[text] for text in texts]), followed


def _seems_marked(texts: set[str]) -> bool:
    """Return whether a sample has marks: nothing is tried on a column of words."""
    sample = [text for text, _ in zip(texts, range(20))]
    return all(text[:1] in "+-.,0123456789" for text in sample) and any(
        re.search(r"[,'\u00a0\u202f]|\..*\.", text) for text in texts
    )


def _pattern(marks: Marks) -> re.Pattern[str]:
    whole = r"\d+" if marks.thousands is None else rf"(?:[1-9]\d{{0,2}}(?:{re.escape(marks.thousands)}\d{{3}})+|\d+)"
    mark = re.escape(marks.decimal)
    return re.compile(rf"[+-]?(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def _value(text: str, marks: Marks) -> float:
    plain = text if marks.thousands is None else text.replace(marks.thousands, "")
    return float(plain.replace(marks.decimal, "."))
