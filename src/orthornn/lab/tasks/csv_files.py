"""Text with separators: tables with a line of names, and lines of numbers without one.

pyarrow splits a file into columns of text where that is certain to give the same cells as Python's strict reader: no
lone carriage returns, no zero bytes, and quotes only around whole cells. Everything else, and every file that pyarrow
refuses, is read by Python's reader, which names the line of an error.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from .cells import MISSING, is_missing, is_number, listed, shown, typed
from .inflate import check_inflated, largest
from .number_marks import Marks, unmarked

_LONGEST_CELL = 131_072  # characters, the limit of Python's reader
_PIECE = 1 << 20
_LARGEST_BLOCK = 1 << 30  # bytes; pyarrow counts them in 31 bits
_HEAD = 1 << 16  # bytes from which the types of columns are guessed
_COMMA = r"^[ \t]*[+-]?([0-9]+,?[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_LEADING_ZEROS = r"^[ \t]*[+-]?0[0-9]+[ \t]*$"
_WHOLE = r"^[ \t]*[+-]?[0-9]+[ \t]*$"
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)


class CsvFormat(NamedTuple):
    """How a text file is written, where it is not to be told from the file.

    separator: Between cells; None for the most frequent of , ; and tab in the first line. decimal: "." or ",".
    thousands: Mark between groups of three digits. missing: Spellings of a missing value, besides the usual ones.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str, ...] = ()

    @property
    def marks(self) -> Marks | None:
        """The marks that were given; None if they are to be told from the cells."""
        if self.decimal is None and self.thousands is None:
            return None
        return Marks(self.decimal or ("," if self.thousands == "." else "."), self.thousands)


def read_named(path: Path, form: CsvFormat = CsvFormat()) -> dict[str, np.ndarray]:  # noqa: B008
    """Return the columns of a CSV file that begins with a line of names. Raises DataError if it is not one."""
    content = _content(path)
    separator = form.separator or _separator(path, content)
    columns = _by_arrow(path, content, separator, form)
    if columns is None:
        columns = _by_python(path, content, separator, form)
    return _agreeing(path, columns, separator, form)


def read_numbers(path: Path) -> np.ndarray:
    """Return the numbers (lines, cells), float64, of a CSV file without names. Raises DataError for anything else."""
    content = _content(path)
    lines = _lines(path, content, _separator(path, content))
    if not lines:
        raise DataError(f"Expected lines of numbers in {path}, but got an empty file.")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            raise DataError(
                f"Expected {len(lines[0])} numbers in {path}, line {number}, as in line 1, but got {len(line)} cells. "
                f"Give sequences of other lengths in files of their own."
            )
        wrong = [cell for cell in line if not is_number(cell.strip())]
        if wrong:
            raise DataError(f"Expected numbers in {path}, line {number}, but got {shown(wrong[0])}.")
    return np.array([[float(cell) for cell in line] for line in lines])


def has_names(path: Path) -> bool:
    """Return whether a CSV file begins with something else than a line of numbers."""
    try:
        content = _content(path)
        first = content[: _end_of_line(content)].decode()
    except (DataError, UnicodeDecodeError):
        return True  # whoever reads it as a table says what is wrong
    separator = max(",;\t", key=first.count)
    return not all(is_number(cell.strip()) for cell in first.strip().split(separator))


def _content(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if its name ends in .gz, without a byte-order mark."""
    try:
        if path.suffix.lower() == ".gz":
            content = _inflated(path)
        else:
            content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    return content[3:] if content.startswith(b"\xef\xbb\xbf") else content


def _inflated(path: Path) -> bytes:
    """Return the content of a gzip file, of one member or several, within the bound of inflate.py."""
    size = path.stat().st_size
    pieces, total = [], 0
    with open(path, "rb") as file:
        rest = file.read(_PIECE)
        if not rest:
            raise DataError(f"{path} is truncated, corrupt or no gzip file: it is empty.")
        try:
            while rest:
                stream = zlib.decompressobj(31)
                while not stream.eof:
                    if not rest and not stream.unconsumed_tail:
                        raise zlib.error("it ends too soon")
                    piece = stream.decompress(stream.unconsumed_tail + rest, _PIECE)
                    total += len(piece)
                    if total > largest(size):
                        check_inflated(path, size, total, "Divide it into smaller files.")
                    pieces.append(piece)
                    rest = b"" if stream.eof or stream.unconsumed_tail else file.read(_PIECE)
                rest = stream.unused_data or file.read(_PIECE)
        except zlib.error as error:
            raise DataError(f"{path} is truncated, corrupt or no gzip file: {error}.") from error
    return b"".join(pieces)


def _end_of_line(content: bytes) -> int:
    ends = [place for place in (content.find(b"\n"), content.find(b"\r")) if place >= 0]
    return min(ends, default=len(content))


def _separator(path: Path, content: bytes) -> str:
    first = content[: _end_of_line(content)]
    if b"\t" in first and path.name.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    return max(",;\t", key=lambda mark: first.count(mark.encode()))


def _names(path: Path, names: Sequence[str]) -> list[str]:
    """Return the names of the first line, as pandas has them where the first is empty. DataError if they are none."""
    found = [name.strip() for name in names]
    indexed = len(found) > 1 and not found[0]
    if indexed:
        found[0] = "Unnamed: 0"
    numbers = any(is_number(name) for name in found) and not indexed
    if numbers or not all(found) or len(set(found)) != len(found):
        raise DataError(
            f"Expected {path} to begin with a line of names, all different, but got {listed(found)[:200]!r}."
        )
    return found


def _by_python(path: Path, content: bytes, separator: str, form: CsvFormat) -> dict[str, np.ndarray]:
    lines = _lines(path, content, separator)
    if not lines:
        return {}
    names = _names(path, lines[0])
    if len(names) == 1:
        lines = [line or [""] for line in lines]  # the empty line is how a lone column writes a missing value
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            raise DataError(
                f"Expected {len(names)} cells, one per name, but {path}, line {number}, has {len(line)}. "
                f"{'The file may be truncated.' if number == len(lines) else 'Quote cells that hold a separator.'}"
            )
    return {
        name: _typed([row[place].strip() for row in lines[1:]], separator, form) for place, name in enumerate(names)
    }


def _lines(path: Path, content: bytes, separator: str) -> list[list[str]]:
    """Return the cells of all lines, without empty lines at the end."""
    try:
        text = io.StringIO(content.decode("utf-8"), newline="")
        lines = list(csv.reader(text, delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _typed(texts: Sequence[str], separator: str, form: CsvFormat) -> np.ndarray:
    """Return the cells of a column, see cells.typed, with the marks of the format."""
    found = typed(texts, form.missing)
    if found.dtype == object or form.marks is not None:
        cells = [None if is_missing(text, form.missing) else text for text in texts]
        numbers = unmarked(cells, form.marks)
        if numbers is not None:
            return numbers[0].view(_Commas) if numbers[1].decimal == "," else numbers[0]
        if form.marks is not None and form.marks.decimal == "," and any("." in text for text in cells if text):
            return np.array(cells, object)  # 1.5 is no number under this convention
    elif found.dtype.kind == "f" and separator != ",":
        pointed = [text for text in texts if "." in text]
        if pointed and all(map(_POINT_GROUPS.fullmatch, pointed)):
            return found.view(_Groups)
    return found


class _Groups(np.ndarray):
    """Numbers whose points may be marks of thousands, in a file with decimal commas."""


class _Commas(np.ndarray):
    """Numbers that were written with decimal commas."""


def _agreeing(path: Path, columns: dict[str, np.ndarray], separator: str, form: CsvFormat) -> dict[str, np.ndarray]:
    """Return the columns as plain arrays. DataError if 1.500 is a number next to decimal commas: it may be 1500."""
    pointed = [name for name, column in columns.items() if isinstance(column, _Groups)]
    commas = [name for name, column in columns.items() if isinstance(column, _Commas)]
    if pointed and commas:
        raise DataError(
            f"Expected to know what the points in {path}, column {pointed[0]!r}, mean, but got only points before "
            f"three digits there, and decimal commas in column {commas[0]!r}. Give both marks, decimal=',', "
            f"thousands='.' (--decimal , --thousands .), or write all columns with one decimal mark."
        )
    return {
        name: column.view(np.ndarray) if isinstance(column, (_Groups, _Commas)) else column
        for name, column in columns.items()
    }


def _by_arrow(path: Path, content: bytes, separator: str, form: CsvFormat) -> dict[str, np.ndarray] | None:
    """Return the columns, if pyarrow is there and certain to read the same cells as Python's reader; else None."""
    try:
        arrow, reader = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    except ImportError:
        return None
    end = _end_of_line(content)
    header = content[:end]
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n") or header.count(b'"') % 2:
        return None
    try:
        (cells,) = csv.reader([header.decode("utf-8")], delimiter=separator, strict=True)
    except (ValueError, csv.Error):
        return None
    names = _names(path, cells)
    stop = len(content)
    while stop > end and content[stop - 1] in b"\r\n":
        stop -= 1
    start = min(end + (2 if content[end : end + 2] == b"\r\n" else 1), stop)
    if start == stop:
        return None
    body = memoryview(content)[start:stop]
    if len(names) > 1 and (content.find(b"\n\n", end, stop) >= 0 or content.find(b"\n\r", end, stop) >= 0):
        return None  # an empty line
    quotes = content.count(b'"', start)
    if quotes and not _quotes_enclose_cells(body, separator):
        return None
    missing = _spellings(form.missing)
    kinds = _kinds_of_head(body, separator, form, len(names))
    text = arrow.dictionary(arrow.int32(), arrow.string())
    floats = {"i": arrow.float64(), "f": arrow.float64(), "O": text}
    tries = [{**floats, "i": arrow.int64()}, *([floats] if "i" in kinds else [])] if kinds else []
    for types in (*tries, None):
        wanted = [arrow.string() if types is None else types[kind] for kind in kinds or names]
        table = _table(arrow, reader, body, separator, bool(quotes), missing, wanted)
        columns = {}
        for place, name in enumerate(names if table is not None else ()):
            column = table.column(0)
            table = table.remove_column(0)
            found = (
                _arrow_column(column, separator, form)
                if types is None
                else _column_of_type(arrow, column, form, kinds[place] == "i")
            )
            if found is None:
                break
            columns[name] = found
        if len(columns) == len(names):
            return columns
    return None


def _table(
    arrow: Any, reader: Any, body: memoryview, separator: str, quotes: bool, missing: list[str], types: list[Any]
) -> Any:
    """Return the lines as columns of these types; None if a cell is of another type, or a line of another length."""
    names = [str(place) for place in range(len(types))]
    try:
        return reader.read_csv(
            arrow.BufferReader(arrow.py_buffer(body)),
            # In one block and without threads: after an error in the midst of several, those that read ahead would go on
            # in memory that is gone.
            reader.ReadOptions(column_names=names, use_threads=False, block_size=min(len(body) + 1, _LARGEST_BLOCK)),
            reader.ParseOptions(
                delimiter=separator,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes,
                ignore_empty_lines=False,
            ),
            reader.ConvertOptions(column_types=dict(zip(names, types)), null_values=missing, strings_can_be_null=True),
        )
    except arrow.ArrowException:
        return None


def _kinds_of_head(body: memoryview, separator: str, form: CsvFormat, count: int) -> list[str]:
    """Return the kinds of the columns by their first cells; none where parsed numbers would not show what their text
    was.
    """
    head = bytes(body[:_HEAD])
    head = head[: head.rfind(b"\n") + 1]
    if form.marks is not None or _has_strange_numbers(body, separator):
        return []
    try:
        lines = list(csv.reader(io.StringIO(head.decode(), newline=""), delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return []
    if not lines or any(len(line) != count for line in lines):
        return []
    kinds: list[str] = [
        typed([line[place].strip() for line in lines], form.missing).dtype.kind for place in range(count)
    ]
    if separator != "," and "O" in kinds:
        return []  # decimal commas, perhaps, which change what the points in other columns mean
    return kinds


def _has_strange_numbers(body: memoryview, separator: str) -> bool:
    """Return whether a cell begins with 0 and a digit or an x: as a number 007 would be 7, and 0x1f something."""
    found = np.frombuffer(body, np.uint8)
    after = (found[1:] == ord("x")) | (found[1:] == ord("X"))
    after |= (found[1:] >= ord("0")) & (found[1:] <= ord("9"))
    after &= found[:-1] == ord("0")
    places = np.flatnonzero(after)
    before = np.where(places > 0, found[places - 1], ord("\n"))
    signed = np.isin(before, [ord(mark) for mark in '+- "\t'])
    edge = np.isin(before, [ord(separator), ord("\n")])
    second = np.where(places > 1, found[places - 2], ord("\n"))
    return bool((edge | (signed & np.isin(second, [ord(mark) for mark in separator + '\n +-"\t']))).any())


def _column_of_type(arrow: Any, column: Any, form: CsvFormat, whole: bool) -> np.ndarray | None:
    """Return a column that was parsed as numbers or text, as `_typed` has it; None if that is not certain.

    whole: Whether its first cells are whole numbers.
    """
    if arrow.types.is_dictionary(column.type):
        return _coded(arrow, column.unify_dictionaries(), ",", form)
    values = column.to_numpy()
    if whole and values.dtype.kind == "f" and column.null_count == 0 and (values % 1 == 0).all():
        return None  # +3 or 3.0
    if values.dtype.kind == "f" and (int(np.isnan(values).sum()) != column.null_count or np.isinf(values).any()):
        return None
    return values


def _spellings(more: Sequence[str]) -> list[str]:
    """Return the spellings of a missing value in both cases; those that are left over are found later."""
    return sorted({form for word in (*MISSING, *more) for form in (word, word.upper(), word.capitalize())} | {"NaN"})


def _quotes_enclose_cells(body: memoryview, separator: str) -> bool:
    """Return whether each opening quote begins a cell and each closing one ends it; a doubled one closes and opens."""
    found = np.frombuffer(body, np.uint8)
    places = np.flatnonzero(found == ord('"'))
    if len(places) % 2:
        return False
    edges = [ord(separator), ord("\n"), ord("\r")]
    opening, closing = places[::2], places[1::2]
    before = np.where(opening > 0, found[opening - 1], ord("\n"))
    after = np.where(closing + 1 < len(found), found[(closing + 1).clip(max=len(found) - 1)], ord("\n"))
    doubled = np.zeros(len(opening), bool)
    doubled[1:] = closing[:-1] + 1 == opening[1:]
    reopened = np.append(doubled[1:], False)
    return bool((np.isin(before, edges) | doubled).all() and (np.isin(after, edges) | reopened).all())


def _arrow_column(column: Any, separator: str, form: CsvFormat) -> np.ndarray | None:
    """Return a column of text with nulls as `_typed` has it; None if a cell is longer than Python's reader takes."""
    compute, arrow = importlib.import_module("pyarrow.compute"), importlib.import_module("pyarrow")
    if form.marks is None:
        found = _plain_numbers(arrow, compute, column, separator)
        if found is not None:
            return found
    if (form.marks or Marks(",", None)) == Marks(",", None) and _is_with_commas(column):
        found = _numbers_with_commas(arrow, compute, column, form)
        if found is not None:
            return found
    if (compute.max(compute.binary_length(column)).as_py() or 0) >= _LONGEST_CELL:
        return None
    return _coded(arrow, column.dictionary_encode().unify_dictionaries(), separator, form)


def _coded(arrow: Any, column: Any, separator: str, form: CsvFormat) -> np.ndarray:
    """Return a column of codes of its different cells."""
    if column.num_chunks == 0:
        return np.empty(0, object)
    texts = [text.strip() for text in column.chunk(0).dictionary.to_pylist()]
    codes = arrow.chunked_array([chunk.indices for chunk in column.chunks]).fill_null(len(texts)).to_numpy()
    values = _typed([*texts, ""] if column.null_count else texts, separator, form)
    return values[codes]


def _plain_numbers(arrow: Any, compute: Any, column: Any, separator: str) -> np.ndarray | None:
    """Return numbers without marks, as cells.typed has them; None if that is not certain."""
    try:
        values = compute.cast(column, arrow.float64()).to_numpy()
    except arrow.ArrowException:
        return None
    if int(np.isnan(values).sum()) != column.null_count:
        return None  # another spelling of NaN
    if compute.any(compute.match_substring_regex(column, _LEADING_ZEROS)).as_py():
        return None  # names
    if np.isinf(values).any():
        return None  # written so, or too large
    if column.null_count == 0 and (values[:1000] % 1 == 0).all() and (values % 1 == 0).all():
        try:
            return compute.cast(column, arrow.int64()).to_numpy()
        except arrow.ArrowException:
            if compute.all(compute.match_substring_regex(column, _WHOLE)).as_py():
                return None  # long keys
    if separator != ",":
        pointed = compute.filter(column, compute.match_substring(column, "."))
        if len(pointed) and compute.all(compute.match_substring_regex(pointed, f"^{_POINT_GROUPS.pattern}$")).as_py():
            return values.view(_Groups)
    return values


def _is_with_commas(column: Any) -> bool:
    """Return whether the first cells have decimal commas for certain: one with other than three digits behind."""
    head = [text.strip() for text in column.slice(0, 1000).to_pylist() if text is not None]
    return any(re.fullmatch(r"[+-]?\d+,(\d{1,2}|\d{4,})", text, re.ASCII) for text in head)


def _numbers_with_commas(arrow: Any, compute: Any, column: Any, form: CsvFormat) -> np.ndarray | None:
    if not compute.all(compute.match_substring_regex(column, _COMMA)).as_py():
        return None
    if compute.any(compute.match_substring_regex(column, _LEADING_ZEROS)).as_py():
        return None
    try:
        return compute.cast(compute.replace_substring(column, ",", "."), arrow.float64()).to_numpy().view(_Commas)
    except arrow.ArrowException:
        return None
