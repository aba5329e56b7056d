"""Text with separators: tables with a line of names, and lines of numbers without one."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError
from .cells import is_number, shown
from .csv_bytes import first_line, opened
from .csv_cells import is_tsv, line_of, lines_of, read_cells
from .csv_columns import CsvColumn, check_agreeing, column_of_cells, is_pointed
from .csv_format import CsvFormat
from .csv_layout import separator_in, to_first_line


class CsvTable(NamedTuple):
    """Columns by name. commas: Those whose numbers have decimal commas. points: Those that are text, though some cells are
    numbers with a decimal point, as the format says that the mark is the comma. line: Returns the line of a row in the file.
    """

    columns: dict[str, np.ndarray]
    commas: tuple[str, ...]
    points: tuple[str, ...]
    line: Callable[[int], int]


def read_csv(path: Path, form: CsvFormat = CsvFormat()) -> CsvTable:  # noqa: B008
    """Return a CSV file that begins with a line of names. Raises DataError if it is not one.

    In one of `form.commas` the points of 1.500 are marks of thousands, and the comma of 1,234 a decimal one.
    """
    cells = read_cells(path, form)
    words = dict(form.words_of)
    columns: dict[str, CsvColumn] = {}
    for place, name in enumerate(cells.names):
        own = form._replace(words=words.get(name, form.words))
        text, cells.columns[place] = cells.columns[place], None  # as text it is needed no longer
        columns[name] = column_of_cells(text, cells.separator, own)
        if name in form.commas and form.marks is None and not columns[name].is_settled:
            again = column_of_cells(text, cells.separator, own._replace(decimal=",", thousands="."))
            columns[name] = columns[name] if again.values.dtype == object else again
    check_agreeing(path, columns)
    found = {name: column.values for name, column in columns.items()}
    commas = tuple(name for name, column in columns.items() if column.marks == "commas")
    points: tuple[str, ...] = ()
    if form.marks is not None and form.marks.decimal == ",":
        texts = {name: column for name, column in found.items() if column.dtype == object}
        points = tuple(name for name, column in texts.items() if any(map(is_pointed, set(column))))
    return CsvTable(found, commas, points, partial(line_of, path, form.encoding, cells.separator, cells.above))


def read_numbers(path: Path) -> np.ndarray:
    """Return the numbers (lines, cells), float64, of a CSV file without names. Raises DataError for anything else."""
    with opened(path) as file:
        above = to_first_line(file)
        content = file.read()
    separator = above.separator or separator_in(first_line(io.BytesIO(content)), is_tsv(path))
    lines, first = lines_of(path, content, separator), above.lines + 1
    lines = [line[:-1] for line in lines] if all(line and not line[-1].strip() for line in lines) else lines
    if not lines:
        raise DataError(f"Expected lines of numbers in {path}, but got an empty file.")
    for number, line in enumerate(lines, start=first):
        if len(line) != len(lines[0]):
            raise DataError(
                f"Expected {len(lines[0])} numbers in {path}, line {number}, as in line {first}, but got {len(line)} cells. "
                f"Put sequences of other lengths into separate files."
            )
        wrong = [cell for cell in line if not is_number(cell.strip())]
        if wrong:
            raise DataError(f"Expected numbers in {path}, line {number}, but got {shown(wrong[0])}.")
    return np.array([[float(cell) for cell in line] for line in lines])


def has_names(path: Path) -> bool:
    """Return whether a CSV file begins with something else than a line of numbers."""
    try:
        with opened(path) as file:
            above, first = to_first_line(file), first_line(file)
            separator, line = above.separator or separator_in(first, is_tsv(path)), first.decode()
    except (DataError, UnicodeDecodeError):
        return True  # whoever reads it as a table says what is wrong
    cells = [cell.strip() for cell in line.strip().split(separator)]
    return not all(map(is_number, cells if len(cells) < 2 or cells[-1] else cells[:-1]))
