"""The columns of a CSV file: the cells of each as numbers or text, and whether their marks agree with one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import DataError
from .cells import is_number, typed
from .csv_format import CsvFormat
from .number_marks import fits_a_convention, has_leading_zeros, unmarked

POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)


class Groups(np.ndarray):
    """Numbers whose points may be marks of thousands, in a file with decimal commas."""


class Commas(np.ndarray):
    """Numbers that were written with decimal commas."""


def column_of_texts(texts: Sequence[str], separator: str, form: CsvFormat) -> np.ndarray:
    """Return the cells of a column, see cells.typed, with the marks of the format."""
    found = typed(texts, form.is_missing)
    if found.dtype == object or form.marks is not None:
        cells = [None if form.is_missing(text) else text for text in texts]
        numbers = unmarked(cells, form.marks)
        if numbers is not None:
            return numbers[0].view(Commas) if numbers[1].decimal == "," else numbers[0]
        if form.marks is not None and form.marks.decimal == "," and any("." in text for text in cells if text):
            return np.array(cells, object)  # 1.5 is no number under this convention
    elif found.dtype.kind == "f" and separator != ",":
        pointed = [text for text in texts if "." in text]
        if pointed and all(map(POINT_GROUPS.fullmatch, pointed)):
            return found.view(Groups)
    return found


def is_pointed(cell: object) -> bool:
    """Return whether a cell is a number with a decimal point."""
    return isinstance(cell, str) and "." in cell and is_number(cell)


def proves_text(cell: str, form: CsvFormat) -> bool:
    """Return whether a column with this cell is text, whatever its other cells are."""
    if form.is_missing(cell):
        return False
    return has_leading_zeros(cell) or not (is_number(cell) or fits_a_convention(cell, form.marks))


def is_settled(column: np.ndarray) -> bool:
    """Return whether marks of thousands are certain not to be taken for decimal points in a column, or the other way."""
    return isinstance(column, Commas) or column.dtype.kind not in "Of"


def agreeing(path: Path, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns as plain arrays. DataError if 1.500 is a number next to decimal commas: it may be 1500."""
    pointed = [name for name, column in columns.items() if isinstance(column, Groups)]
    commas = [name for name, column in columns.items() if isinstance(column, Commas)]
    if pointed and commas:
        raise DataError(
            f"Expected to know what the points in {path}, column {pointed[0]!r}, mean, but got only points before "
            f"three digits there, and decimal commas in column {commas[0]!r}. Give both marks, decimal=',', "
            f"thousands='.' (--decimal , --thousands .), or write all columns with one decimal mark."
        )
    return {
        name: column.view(np.ndarray) if isinstance(column, (Groups, Commas)) else column
        for name, column in columns.items()
    }
