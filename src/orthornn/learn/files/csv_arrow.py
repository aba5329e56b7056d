"""CSV files by pyarrow: piece by piece, in several threads, where that gives the same cells as Python's strict reader.

What a column holds is guessed from its first cells. Where a later cell shows that to be wrong, or not certain, the column
is read a second time, as text, and all of its cells together decide.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from ...cores import usable_cores
from . import arrow_cells
from .cells import LARGEST_WHOLE, typed
from .csv_columns import POINT_GROUPS, Commas, proves_text
from .csv_format import CsvFormat
from .csv_pieces import may_have_empty_line, pieces, reads_alike

_LONGEST_CELL = 131_072  # characters, the limit of Python's reader
_PIECE = 1 << 20  # bytes that are read at once
_PIECE_PER_COLUMN = 1 << 14  # more of them for tables with many columns
_LARGEST_PIECE = 1 << 28
_LARGEST_BLOCK = 1 << 30  # bytes; pyarrow counts them in 31 bits
_HEAD = 1 << 14  # bytes from which the kinds of columns are guessed
_HEAD_PER_COLUMN = 1 << 8
_THREADS = min(4, usable_cores())

Kind = Literal["whole", "numbers", "commas", "text", "repeated", "undecided"]


class _Cells(NamedTuple):
    """The cells (R,) of a column in a piece: numbers or objects, or an array of pyarrow; and how many are missing."""

    values: Any
    missing: int = 0


class _Column:
    """The cells of a column, piece after piece, in memory that is allocated once if the pieces are about alike.

    A list of arrays would need the memory of a column twice when they are joined.
    """

    def __init__(self, pieces: float) -> None:
        self.pieces = pieces
        self.values, self.rows, self.missing = np.empty(0), 0, 0
        self.texts: list[Any] = []

    def append(self, cells: _Cells) -> None:
        """Append the cells of a piece. Whole numbers become float64 next to others."""
        if not isinstance(cells.values, np.ndarray):
            self.texts.append(cells.values)
            return
        rows = self.rows + len(cells.values)
        if not self.rows:
            self.values = np.empty(int(1.05 * self.pieces * rows), cells.values.dtype)
        elif cells.values.dtype.kind == "f" and self.values.dtype.kind == "i":
            self.values = self.values.astype(np.float64)
        if rows > len(self.values):
            larger = np.empty(rows + rows // 4, self.values.dtype)
            larger[: self.rows] = self.values[: self.rows]
            self.values = larger
        self.values[self.rows : rows] = cells.values
        self.rows, self.missing = rows, self.missing + cells.missing


class _UnlikePython(Exception):
    """A piece in which pyarrow may see other cells than Python's reader."""


def read_columns_by_arrow(file: BinaryIO, count: int, separator: str, form: CsvFormat) -> list[np.ndarray] | None:
    """Return the `count` columns of the lines from here to the end of a file that can be read again.

    Returns:
        None if pyarrow is not installed, refuses the lines, or is not certain to see the same cells as Python's reader;
        or if there are no lines.
    """
    try:
        importlib.import_module("pyarrow.csv")
    except ImportError:
        return None
    start = file.tell()
    kinds = _kinds_of_head(file.read(_HEAD + count * _HEAD_PER_COLUMN), separator, form, count)
    try:
        file.seek(start)
        columns = _read(file, dict(enumerate(kinds)), count, separator, form)
        wrong = [place for place, column in columns.items() if column is None]
        if wrong:
            file.seek(start)
            columns |= _read(file, dict.fromkeys(wrong, "undecided"), count, separator, form)
    except _UnlikePython:
        return None
    found = [column for _, column in sorted(columns.items()) if column is not None and len(column)]
    if any(map(_may_be_large_keys, found)):
        return None
    # A file that is written while it is read may have other lines at the second time.
    return found if len(found) == count and len({len(column) for column in found}) == 1 else None


def _may_be_large_keys(column: np.ndarray) -> bool:
    """Return whether a column may be of whole numbers, some too large for float64, with missing cells among them."""
    if column.dtype.kind != "f" or not np.isnan(column).any() or not (np.abs(column) >= LARGEST_WHOLE).any():
        return False
    there = column[~np.isnan(column)]
    return bool((np.trunc(there) == there).all() and np.isfinite(there).all())


def _kinds_of_head(head: bytes, separator: str, form: CsvFormat, count: int) -> list[Kind]:
    """Return the kinds of the columns by their first cells."""
    head = head[: head.rfind(b"\n") + 1]
    while head.count(b'"') % 2:
        head = head[: head.rfind(b"\n", 0, -1) + 1]
    try:
        lines = list(csv.reader(io.StringIO(head.decode(), newline=""), delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error):
        lines = []
    if any(len(line) != count for line in lines):
        lines = []
    return [_kind([line[place].strip() for line in lines], separator, form) for place in range(count)]


def _kind(texts: list[str], separator: str, form: CsvFormat) -> Kind:
    if any(proves_text(text, form) for text in texts):
        there = [text for text in texts if not form.is_missing(text)]
        return "repeated" if 2 * len(set(there)) <= len(there) else "text"
    if form.marks is not None or not texts:
        return "undecided"
    kind = typed(texts, form.is_missing).dtype.kind
    if kind == "O":
        return "commas" if arrow_cells.has_decimal_commas(texts) else "undecided"
    if kind == "f" and separator != "," and not _has_decimal_point(texts):
        return "undecided"
    return "whole" if kind == "i" else "numbers"


def _has_decimal_point(texts: Sequence[str]) -> bool:
    """Return whether a point in these cells is certain to be no mark of thousands."""
    return any("." in text and POINT_GROUPS.fullmatch(text) is None for text in texts)


def _read(
    file: BinaryIO, kinds: dict[int, Kind], count: int, separator: str, form: CsvFormat
) -> dict[int, np.ndarray | None]:
    """Return the columns of these places, read as these kinds; None for one that is of another kind.

    Raises _UnlikePython where the cells may be others than those of Python's reader.
    """
    wrong: set[int] = set()

    def read_piece(piece: bytes) -> dict[int, _Cells]:
        found = {}
        for place, cells in _texts_of(piece, [place for place in kinds if place not in wrong], count, separator, form):
            converted = _converted(cells, kinds[place], form)
            if converted is None:
                wrong.add(place)
            else:
                found[place] = converted
        return found

    start, end = file.tell(), file.seek(0, os.SEEK_END)
    file.seek(start)
    size = min(_PIECE + count * _PIECE_PER_COLUMN, _LARGEST_PIECE)
    columns = {place: _Column(max(1.0, (end - start) / size)) for place in kinds}
    for found in _in_order(read_piece, pieces(file, size)):
        for place in kinds:
            if place in wrong:
                columns[place] = _Column(1)
            else:
                columns[place].append(found[place])
        if len(wrong) == len(kinds):
            break
    return {
        place: None if place in wrong else _whole_column(columns.pop(place), kind, separator, form)
        for place, kind in kinds.items()
    }


def _in_order(work: Callable[[bytes], dict[int, _Cells]], items: Iterator[bytes]) -> Iterator[dict[int, _Cells]]:
    """Yield the results of `work`, done in threads that are at most two items ahead of the one that reads."""
    pending: deque[Future[dict[int, _Cells]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > _THREADS + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _texts_of(
    piece: bytes, places: list[int], count: int, separator: str, form: CsvFormat
) -> Iterator[tuple[int, Any]]:
    """Yield the places of columns and their cells, arrays of text. Raises _UnlikePython."""
    arrow, reader = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    if not reads_alike(piece, separator):
        raise _UnlikePython
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
            reader.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.string()),
                null_values=sorted(form.spellings),
                strings_can_be_null=True,
                include_columns=[names[place] for place in places],
            ),
        )
    except arrow.ArrowException:
        raise _UnlikePython from None
    if count > 1 and all(column.null_count for column in table.columns) and may_have_empty_line(piece):
        raise _UnlikePython  # pyarrow takes an empty line for missing values
    for place in places:
        column = table.column(names[place])
        cells = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if arrow_cells.longest(cells) >= _LONGEST_CELL:
            raise _UnlikePython
        yield place, cells


def _converted(cells: Any, kind: Kind, form: CsvFormat) -> _Cells | None:
    """Return an array of text as a kind of cells; None if they are of another kind, or not certain to be of this one."""
    if kind == "whole":
        whole = arrow_cells.whole_numbers(cells)
        if whole is not None:
            return _Cells(whole)
    if kind in ("whole", "numbers"):
        numbers = arrow_cells.numbers(cells, form)
        return None if numbers is None else _Cells(*numbers)
    if kind == "commas":
        commas = arrow_cells.numbers_with_commas(cells)
        return None if commas is None else _Cells(commas)
    if kind == "undecided":
        return _Cells(cells)
    return _Cells((arrow_cells.texts if kind == "text" else arrow_cells.repeated_texts)(cells, form))


def _whole_column(column: _Column, kind: Kind, separator: str, form: CsvFormat) -> np.ndarray | None:
    """Return all cells of a column; None if they show together that it is of another kind."""
    if kind == "undecided":
        arrow = importlib.import_module("pyarrow")
        return arrow_cells.column_of_cells(arrow.chunked_array(column.texts, arrow.string()), separator, form)
    values = column.values[: column.rows]
    if kind == "whole" and values.dtype.kind == "f":
        if separator != ",":
            return None  # points may be marks of thousands
        if not column.missing and (values % 1 == 0).all():
            return None  # +3 or 3.0, or keys longer than int64
    return values.view(Commas) if kind == "commas" else values
