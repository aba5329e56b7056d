"""Where the table begins in a text file, and what separates its cells.

Above the names there may be empty lines, the line sep=; of Excel, and lines outside the table, such as those that
loggers and exports write; behind the last cells a separator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from .cells import is_missing, is_number
from .dates import is_date

SEPARATORS = ",;\t"
_HEAD = 1 << 16  # bytes in which the table begins
_END = rb"(?:\r\n|\n|\r)"
_EMPTY = re.compile(rb"(?:[ \t]*" + _END + rb")*")
_NAMED = re.compile(rb'"?sep=([\t !#-/:-@[-`{-~])"?[ \t]*' + _END, re.IGNORECASE)
_QUOTED = re.compile(rb'"[^"]*"')


class Start(NamedTuple):
    """Where the first line of a table is: the lines above it, and the separator that one of them names, or None."""

    lines: int
    separator: str | None


def to_first_line(file: BinaryIO) -> Start:
    """Go to the first line of a file that is not empty and does not only name the separator; return what is above
    it.
    """
    lines, separator = 0, None
    while True:
        begin, head = file.tell(), file.read(_HEAD)
        found = None if separator is not None else _NAMED.match(head)
        if found is not None:
            separator = found[1].decode()
        else:
            found = _EMPTY.match(head)
        end = 0 if found is None else found.end()
        lines += len(re.findall(_END, head[:end]))
        file.seek(begin + end)
        if not end:
            return Start(lines, separator)


def separator_in(first: bytes, is_tsv: bool) -> str:
    """Return the separator of the names in the first line: the most frequent mark outside quoted names."""
    bare = _QUOTED.sub(b"", first)
    if is_tsv and b"\t" in bare:
        return "\t"
    return max(SEPARATORS, key=lambda mark: bare.count(mark.encode()))


def without_ends(lines: Sequence[list[str]]) -> list[list[str]] | None:
    """Return the lines of a table without the empty cells that a separator at their ends makes; None if they are none.

    All lines below the names have equally many cells, and cells without a name are empty.
    """
    names = _filled(lines[0])
    widths = {len(line) for line in lines[1:]}
    if not names or len(widths) != 1 or not {len(lines[0]), *widths} - {names} or min(widths) < names:
        return None
    return None if any(_filled(line[names:]) for line in lines) else [line[:names] for line in lines]


def line_of_names(lines: Sequence[list[str]]) -> int | None:
    """Return the index of the line of names if it is certain: below other lines, or the first line.

    It names all cells of each line below it, by words, and at least one column below it has numbers or dates only. The
    lines above it have fewer cells, or empty ones at their ends.
    """
    width = len(lines[-1]) if lines else 0
    place = next((place for place, line in enumerate(lines) if width == len(line) == _filled(line)), None)
    if width < 2 or place is None or place == len(lines) - 1:
        return None
    names, rows = lines[place], lines[place + 1 :]
    if any(len(row) != width for row in rows) or any(_filled(line) >= width for line in lines[:place]):
        return None
    if any(is_number(name.strip()) or is_missing(name.strip()) or is_date(name.strip()) for name in names):
        return None
    measured = any(_are_values([row[column].strip() for row in rows]) for column in range(width))
    return place if measured and all(name.strip() for name in names) else None


def _filled(line: Sequence[str]) -> int:
    """Return how many cells of a line there are up to the last one that is not empty."""
    return next((place for place in range(len(line), 0, -1) if line[place - 1].strip()), 0)


def _are_values(cells: Sequence[str]) -> bool:
    """Return whether cells are numbers or dates, some of which may be missing."""
    there = [cell for cell in cells if not is_missing(cell)]
    return bool(there) and all(is_number(cell.replace(",", ".")) or is_date(cell) for cell in there)
