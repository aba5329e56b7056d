"""The cells of a text file with separators, as text: what is written in which column.

pyarrow divides the lines into cells, piece by piece, if it is certain to find the same cells as Python's strict reader.
Other lines, such as those with quotes inside a cell, and files without the package, are divided by Python's reader; it
also finds a table below other lines, and says which line is wrong.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..._warnings import warn
from ...cores import usable_cores
from ...errors import DataError
from .cells import NAME_EACH, is_number, listed
from .csv_bytes import first_line, opened
from .csv_format import CsvFormat
from .csv_layout import SEPARATORS, line_of_names, separator_in, to_first_line, without_ends
from .csv_pieces import may_have_empty_line, pieces, reads_alike

_LONGEST_CELL = 131_072  # characters, the limit of Python's reader
_PIECE = 1 << 20  # bytes that are read at once
_PIECE_PER_COLUMN = 1 << 14  # more of them for tables with many columns
_LARGEST_PIECE = 1 << 28
_LARGEST_BLOCK = 1 << 30  # bytes; pyarrow counts them in 31 bits
_THREADS = min(4, usable_cores())


class CsvCells(NamedTuple):
    """The names of columns, and their cells: lists of str, or arrays of text of pyarrow, (R,) each.

    separator: Between the cells in the file. above: How many lines are above the names.
    """

    names: list[str]
    columns: list[Any]
    separator: str
    above: int


def read_cells(path: Path, form: CsvFormat) -> CsvCells:
    """Return the cells of a file that begins with a line of names. DataError if it is not one."""
    with opened(path, form.encoding) as file:
        above, start = to_first_line(file), file.tell()
        given = form.separator or above.separator
        separator = given or separator_in(first_line(file), is_tsv(path))
        file.seek(start)
        found = cells_by_arrow(path, file, separator, above.lines)
        if found is not None:
            return found
        file.seek(start)
        others = "" if given else SEPARATORS.replace(separator, "")
        return cells_by_python(path, file.read(), separator + others, above.lines)


def line_of(path: Path, encoding: str | None, separator: str, above: int, row: int) -> int:
    """Return the line in which a row begins, counted from 1: quoted cells may have several. The file is read again."""
    try:
        with opened(path, encoding) as file:
            lines = io.TextIOWrapper(file, "utf-8", newline="")
            for _ in range(above):
                lines.readline()
            reader: Any = _reader(lines, separator)
            for _ in range(row + 1):
                next(reader)
            return above + int(reader.line_num) + 1
    except (DataError, csv.Error, StopIteration, ValueError):  # it has changed
        return above + row + 2


def is_tsv(path: Path) -> bool:
    """Return whether the name of a file says that tabs separate its cells."""
    return path.name.lower().endswith((".tsv", ".tsv.gz"))


def lines_of(path: Path, content: bytes, separator: str) -> list[list[str]]:
    """Return the cells of all lines, without empty lines at the end."""
    try:
        text = io.StringIO(content.decode("utf-8"), newline="")
        lines = list(_reader(text, separator))
    except UnicodeDecodeError as error:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        raise DataError(
            f"Expected a CSV file in UTF-8, but {path} is none: {error}. {'It seems to be UTF-16. ' * wide}Save it as UTF-8; "
            f"or name its encoding, such as {'utf-16' if wide else 'latin-1 or cp1252'}, with encoding, --encoding."
        ) from error
    except csv.Error as error:
        advice = "Close the quote." if "end of data" in str(error) else "Correct it, or save it again as CSV."
        if "expected after" in str(error):
            advice = "Leave out what is between a closing quote and the separator, be it a space."
        raise DataError(f"Expected a CSV file in UTF-8, but {path} is none: {error}. {advice}") from error
    while lines and not lines[-1]:
        lines.pop()
    return lines


def cells_by_arrow(path: Path, file: BinaryIO, separator: str, above: int = 0) -> CsvCells | None:
    """Return the cells from here to the end of a file, whose first line is the names.

    Returns:
        None if pyarrow is not installed, refuses the lines, or is not certain to see the same cells as Python's reader;
        or if there are no lines.
    """
    try:
        importlib.import_module("pyarrow.csv")
    except ImportError:
        return None
    header = file.readline()
    if b"\0" in header or header.count(b'"') % 2 or header.count(b"\r") != header.endswith(b"\r\n"):
        return None
    try:
        (cells,) = _reader([header.decode("utf-8").rstrip("\r\n")], separator)
    except (ValueError, csv.Error):
        return None
    if not cells or not cells[-1].strip():
        return None  # the lines may end in a separator
    names = _names(path, cells)
    columns = _columns(file, len(names), separator)
    return None if columns is None else CsvCells(names, columns, separator, above)


def _columns(file: BinaryIO, count: int, separator: str) -> list[Any] | None:
    """Return the `count` columns of the lines from here on, arrays of text; None if pyarrow may see others than
    Python.
    """
    arrow = importlib.import_module("pyarrow")
    start, end = file.tell(), file.seek(0, os.SEEK_END)
    file.seek(start)
    size = min(_PIECE + count * _PIECE_PER_COLUMN, _LARGEST_PIECE, max(end - start, 1))
    tables: list[Any] = []
    pending: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for piece in pieces(file, size):
            pending.append(pool.submit(_cells_of, piece, count, separator))
            if len(pending) > _THREADS + 1:
                tables.append(pending.popleft().result())
                if tables[-1] is None:
                    break
    tables += [one.result() for one in pending]
    if not tables or any(table is None for table in tables):
        return None
    return list(arrow.concat_tables(tables).columns)


def _cells_of(piece: bytes, count: int, separator: str) -> Any:
    """Return the table of text of a piece; None if pyarrow may find other cells than Python's reader."""
    arrow, reader, compute = (importlib.import_module(f"pyarrow{name}") for name in ("", ".csv", ".compute"))
    if not reads_alike(piece, separator):
        return None
    names, quotes = [str(place) for place in range(count)], b'"' in piece
    try:
        table = reader.read_csv(
            arrow.BufferReader(arrow.py_buffer(piece)),
            # Each piece in one block and without threads of pyarrow: after an error in the midst of several, those that
            # read ahead would go on in memory that is gone.
            reader.ReadOptions(column_names=names, use_threads=False, block_size=min(len(piece) + 1, _LARGEST_BLOCK)),
            reader.ParseOptions(
                delimiter=separator,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes,
                ignore_empty_lines=False,
            ),
            reader.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
        )
    except arrow.ArrowException:
        return None
    if any((compute.max(compute.binary_length(column)).as_py() or 0) >= _LONGEST_CELL for column in table.columns):
        return None
    if count > 1 and may_have_empty_line(piece):
        empty = [compute.any(compute.equal(column, "")).as_py() for column in table.columns]
        if all(empty):
            return None  # pyarrow takes an empty line for empty cells
    return table


def cells_by_python(path: Path, content: bytes, separators: str, above: int = 0) -> CsvCells:
    """Return the cells of a file.

    separators: The likeliest, then others that there may be. above: How many lines are above the content.
    """
    separator = separators[0]
    lines = lines_of(path, content, separator)
    if not lines:
        return CsvCells([], [], separator, above)
    if not _is_square(lines):
        lines, separator, left = _laid_out(path, content, lines, separators)
        above += left
    names = _names(path, lines[0])
    if len(names) == 1:
        lines = [line or [""] for line in lines]  # the empty line is how a lone column writes a missing value
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            raise DataError(
                f"Expected {len(names)} cells, one per name, but {path}, line {number + above}, has {len(line)}. "
                f"{_advice(lines, number)}"
            )
    return CsvCells(names, [[row[place] for row in lines[1:]] for place in range(len(names))], separator, above)


def _names(path: Path, names: Sequence[str]) -> list[str]:
    """Return the names in the first line, as pandas names empty ones. Raise DataError if they are not names."""
    found = [name.strip() for name in names]
    first = next((place for place, name in enumerate(found) if name), 0)
    found[:first] = [f"Unnamed: {place}" for place in range(first)]
    indexed = first > 0
    numbers = [name for name in found if is_number(name)] if not indexed else []
    if numbers and len(numbers) < len(found):
        raise DataError(
            f"Expected {path} to begin with a line of names, none of them a number, but got {numbers[0]!r} in "
            f"{listed(found)[:200]!r}. Write a line of names above it, or rename that column."
        )
    if numbers or not all(found) or len(set(found)) != len(found):
        raise DataError(
            f"Expected {path} to begin with a line of names, all different, but got {listed(found)[:200]!r}. "
            f"{'Write a line of names above it.' if numbers else NAME_EACH}"
            f"{'' if found[-1] else ' If only a separator ends the line, leave it out.'}"
        )
    return found


def _is_square(lines: list[list[str]]) -> bool:
    """Return whether all lines have the cells of the first, whose last one is not empty."""
    return all(len(line) == len(lines[0]) for line in lines) and bool(lines[0] and lines[0][-1].strip())


def _laid_out(path: Path, content: bytes, lines: list[list[str]], separators: str) -> tuple[list[list[str]], str, int]:
    """Return the lines of the table, its separator, and how many lines above it are left out, with a warning."""
    ends = without_ends(lines)
    if ends is not None:
        return ends, separators[0], 0
    for separator in separators:
        try:
            tried = lines if separator == separators[0] else lines_of(path, content, separator)
        except DataError:
            continue
        place = line_of_names(tried)
        if place:
            warn(
                f"{path}: {place} line(s) above the line of names, {listed(tried[place])[:200]!r}, are left out. To silence "
                f"this, remove them."
            )
        if place is not None:
            return tried[place:], separator, place
    return lines, separators[0], 0


def _advice(lines: list[list[str]], number: int) -> str:
    """Return advice about a line, counted from 1, with another number of cells than the first."""
    if not lines[number - 1]:
        return "Remove the empty line."
    more = lines[number - 1][len(lines[0]) :]
    if more and not any(cell.strip() for cell in more):
        return "Leave out the separator at its end, or write one in every line."
    if number == len(lines):
        return "The file may be truncated."
    if lines[0][0].startswith("#"):
        return "Remove the comment above the line of names."
    if {len(line) for line in lines[1:]} == {len(lines[0]) + 1}:
        return "Name every column, or quote cells that hold a separator."
    if len(lines[0]) == 1:
        return "Remove what is above the line of names, or quote cells that hold a separator."
    return "Quote cells that hold a separator."


def _reader(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Return Python's strict reader, which takes a quote behind spaces for one around the cell."""
    return csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=separator != " ")
