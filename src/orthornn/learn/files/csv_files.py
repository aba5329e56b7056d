"""Text with separators: tables with a line of names, and lines of numbers without one.

pyarrow reads a file where that is certain to give the same cells as Python's strict reader, see csv_arrow.py. Every other
file is read by Python's reader, which names the line of an error.
"""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from .cells import is_number, listed, shown
from .csv_arrow import read_columns_by_arrow
from .csv_columns import Commas, agreeing, column_of_texts, is_pointed, is_settled
from .csv_format import CsvFormat
from .csv_layout import SEPARATORS, line_of_names, separator_in, to_first_line, without_ends
from .inflate import check_inflated, largest

_PIECE = 1 << 20


class Marked(NamedTuple):
    """Columns by name. commas: Those whose numbers have decimal commas. points: Those that are text, though some cells are
    numbers with a decimal point, as the format says that the mark is the comma. line: Returns the line of a row in the file.
    """

    columns: dict[str, np.ndarray]
    commas: tuple[str, ...]
    points: tuple[str, ...]
    line: Callable[[int], int]


class _Table(NamedTuple):
    """Columns by name, what separates them in the file, and how many lines are above their names."""

    columns: dict[str, np.ndarray]
    separator: str
    above: int


def read_named(path: Path, form: CsvFormat = CsvFormat()) -> dict[str, np.ndarray]:  # noqa: B008
    """Return the columns of a CSV file that begins with a line of names. Raises DataError if it is not one."""
    return read_marked(path, form).columns


def read_marked(path: Path, form: CsvFormat) -> Marked:
    """Return the same, and which columns have decimal commas, or points that are none.

    In one of `form.commas` the points of 1.500 are marks of thousands, and the comma of 1,234 a decimal one.
    """
    columns, separator, above = _read(path, form)
    for name, words in form.words_of:
        if name in columns:
            columns[name] = _read(path, form._replace(words=words)).columns[name]
    unsure = [name for name in form.commas if name in columns and not is_settled(columns[name])]
    if unsure and form.marks is None:
        again = _read(path, form._replace(decimal=",", thousands=".")).columns
        columns |= {name: again[name] for name in unsure if again[name].dtype != object}
    commas = tuple(name for name, column in columns.items() if isinstance(column, Commas))
    points: tuple[str, ...] = ()
    if form.marks is not None and form.marks.decimal == ",":
        texts = {name: column for name, column in columns.items() if column.dtype == object}
        points = tuple(name for name, column in texts.items() if any(map(is_pointed, set(column))))
    line = partial(_line_of, path, form.encoding, separator, above)
    return Marked(agreeing(path, columns), commas, points, line)


def _line_of(path: Path, encoding: str | None, separator: str, above: int, row: int) -> int:
    """Return the line in which a row begins, counted from 1: quoted cells may have several. The file is read again."""
    try:
        with _opened(path, encoding) as file:
            lines = io.TextIOWrapper(file, "utf-8", newline="")
            for _ in range(above):
                lines.readline()
            reader: Any = _reader(lines, separator)
            for _ in range(row + 1):
                next(reader)
            return above + int(reader.line_num) + 1
    except (DataError, csv.Error, StopIteration, ValueError):  # it has changed
        return above + row + 2


def _read(path: Path, form: CsvFormat) -> _Table:
    with _opened(path, form.encoding) as file:
        above, start = to_first_line(file), file.tell()
        given = form.separator or above.separator
        separator = given or separator_in(_first_line(file), _is_tsv(path))
        file.seek(start)
        columns = _by_arrow(path, file, separator, form)
        if columns is not None:
            return _Table(columns, separator, above.lines)
        file.seek(start)
        others = "" if given else SEPARATORS.replace(separator, "")
        return _by_python(path, file.read(), separator + others, form, above.lines)


def read_numbers(path: Path) -> np.ndarray:
    """Return the numbers (lines, cells), float64, of a CSV file without names. Raises DataError for anything else."""
    with _opened(path) as file:
        above = to_first_line(file)
        content = file.read()
    separator = above.separator or separator_in(_first_line(io.BytesIO(content)), _is_tsv(path))
    lines, first = _lines(path, content, separator), above.lines + 1
    lines = [line[:-1] for line in lines] if all(line and not line[-1].strip() for line in lines) else lines
    if not lines:
        raise DataError(f"Expected lines of numbers in {path}, but got an empty file.")
    for number, line in enumerate(lines, start=first):
        if len(line) != len(lines[0]):
            raise DataError(
                f"Expected {len(lines[0])} numbers in {path}, line {number}, as in line {first}, but got {len(line)} cells. "
                f"Give sequences of other lengths in files of their own."
            )
        wrong = [cell for cell in line if not is_number(cell.strip())]
        if wrong:
            raise DataError(f"Expected numbers in {path}, line {number}, but got {shown(wrong[0])}.")
    return np.array([[float(cell) for cell in line] for line in lines])


def has_names(path: Path) -> bool:
    """Return whether a CSV file begins with something else than a line of numbers."""
    try:
        with _opened(path) as file:
            above, first = to_first_line(file), _first_line(file)
            separator, line = above.separator or separator_in(first, _is_tsv(path)), first.decode()
    except (DataError, UnicodeDecodeError):
        return True  # whoever reads it as a table says what is wrong
    cells = [cell.strip() for cell in line.strip().split(separator)]
    return not all(map(is_number, cells if len(cells) < 2 or cells[-1] else cells[:-1]))


@contextmanager
def _opened(path: Path, encoding: str | None = None) -> Iterator[BinaryIO]:
    """Open the bytes of a file, decompressed if its name ends in .gz, behind a byte-order mark; they can be read again.

    encoding: Of the file, whose bytes are then those of its text in UTF-8. Default: None, it is in UTF-8.
    """
    try:
        if encoding is not None and codecs.lookup(encoding).name != "utf-8":
            content = _inflated(path) if path.suffix.lower() == ".gz" else path.read_bytes()
            yield _behind_mark(io.BytesIO(_in_utf8(path, content, encoding)))
        elif path.suffix.lower() == ".gz":
            yield _behind_mark(io.BytesIO(_inflated(path)))
        else:
            with open(path, "rb") as file:
                yield _behind_mark(file if file.seekable() else io.BytesIO(file.read()))
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"Expected to read {path}, but got: {error.strerror or error}. Correct its name, or allow reading it."
        ) from error


def _in_utf8(path: Path, content: bytes, encoding: str) -> bytes:
    """Return the text of a file of another encoding in UTF-8. DataError if it has none."""
    try:
        text = content.decode(encoding)
        if "\0" in text:  # an encoding of one byte for each character decodes anything
            raise UnicodeError("it has characters of number 0, as UTF-16 read as another encoding has")
        return text.encode()
    except UnicodeError as error:
        raise DataError(
            f"Expected a CSV file in {encoding}, as encoding, --encoding, says, but {path} is none: {error}. Name the "
            f"encoding in which it was saved, or save it as UTF-8 and leave the option out."
        ) from error


def _behind_mark(file: BinaryIO) -> BinaryIO:
    file.seek(3 if file.read(3) == b"\xef\xbb\xbf" else 0)
    return file


def _inflated(path: Path) -> bytes:
    """Return the content of a gzip file, of one member or several, within the bound of inflate.py."""
    size = path.stat().st_size
    pieces, total = [], 0
    with open(path, "rb") as file:
        rest = file.read(_PIECE)
        if not rest:
            raise DataError(f"Expected a gzip file, but {path} is empty. Fetch it or write it again.")
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
            raise DataError(
                f"Expected a gzip file, but {path} is truncated, corrupt or another file: {error}. Fetch it or "
                f"write it again."
            ) from error
    return b"".join(pieces)


def _first_line(file: BinaryIO) -> bytes:
    """Return the first line, without its end: a line feed, or a carriage return alone."""
    return file.readline().partition(b"\n")[0].partition(b"\r")[0]


def _is_tsv(path: Path) -> bool:
    return path.name.lower().endswith((".tsv", ".tsv.gz"))


def _names(path: Path, names: Sequence[str]) -> list[str]:
    """Return the names of the first line, as pandas has them where the first ones are empty. DataError if they are none."""
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
            f"{'Write a line of names above it.' if numbers else 'Name each column, and no two alike.'}"
            f"{'' if found[-1] else ' If only a separator ends the line, leave it out.'}"
        )
    return found


def _by_arrow(path: Path, file: BinaryIO, separator: str, form: CsvFormat) -> dict[str, np.ndarray] | None:
    """Return the columns, if pyarrow is certain to read the same cells as Python's reader; else None."""
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
    columns = read_columns_by_arrow(file, len(names), separator, form) if names else None
    return None if columns is None else dict(zip(names, columns))


def _by_python(path: Path, content: bytes, separators: str, form: CsvFormat, above: int = 0) -> _Table:
    """Return the table. separators: The likeliest, then others that there may be. above: The lines above the content."""
    separator = separators[0]
    lines = _lines(path, content, separator)
    if not lines:
        return _Table({}, separator, above)
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
    columns = {
        name: column_of_texts([row[place].strip() for row in lines[1:]], separator, form)
        for place, name in enumerate(names)
    }
    return _Table(columns, separator, above)


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
            tried = lines if separator == separators[0] else _lines(path, content, separator)
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
    """Return what to do about a line, counted from 1, with another number of cells than the first."""
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


def _lines(path: Path, content: bytes, separator: str) -> list[list[str]]:
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


def _reader(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Return Python's strict reader, which takes a quote behind spaces for one around the cell."""
    return csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=separator != " ")
