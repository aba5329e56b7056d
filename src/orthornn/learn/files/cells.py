"""The cells of a table: numbers, truth values, dates, text, or missing.

A number is written as 12, -0.5 or 3e-4: digits with underscores, which Python takes for numbers, are text. For dates
see dates.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from ..._printable import printable
from ...errors import DataError
from .dates import are_dates, is_date
from .number_marks import has_leading_zeros, is_marked

Kind = Literal["numbers", "truth values", "dates", "text", "mixed", "nested"]

# cells of a CSV file that are missing values, in either case
MISSING = ("", "nan", "na", "null", "none", "n/a", "#n/a", "#na", "#n/a n/a", "<na>", "nat", "-nan", "n.a.")
# spellings that other programs have for a missing value; here they are text, and the error says what to write
MARKERS = {"missing", "nil", "undefined", "unknown", "void", "\\n"}
MARKERS |= {"-", "--", "---", "?", ".", "..", "#null!", "#value!", "#div/0!"}
_TRUTH = {"true": 1.0, "false": 0.0}
LARGEST_WHOLE = 2**53  # whole numbers up to it are float64 numbers
_SHOWN = 60  # characters of a cell in a message
NAME_EACH = "Name each column, and no two alike."


def is_number(cell: object) -> bool:
    """Return whether a cell is a number. None, a missing value, is not."""
    if isinstance(cell, str):
        if "_" in cell or not cell.isascii():
            return False
    elif cell is None or isinstance(cell, (bool, np.bool_, bytes)):
        return False
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def number(cell: object) -> float:
    """Return a cell as a number: NaN if it is missing, 1 and 0 for truth values. Raise ValueError for anything else."""
    if cell is None:
        return np.nan
    if is_number(cell):
        return float(cell)  # type: ignore[arg-type]
    if is_truth(cell):
        return _TRUTH[str(cell).lower()]
    raise ValueError(f"{shown(cell)} is not a number")


def is_truth(cell: object) -> bool:
    """Return whether a cell is true or false, in letters of either case."""
    return isinstance(cell, (str, bool, np.bool_)) and str(cell).lower() in _TRUTH


def is_nested(cell: object) -> bool:
    """Return whether a cell contains several values: a list or a nested table."""
    return isinstance(cell, (list, tuple, dict, set, np.ndarray))


def is_missing(text: str) -> bool:
    """Return whether a cell of a CSV file is one of the usual spellings of a missing value."""
    return text.lower() in MISSING


def is_marker(cell: object) -> bool:
    """Return whether a cell is text that other programs write for a missing value."""
    return isinstance(cell, str) and cell.strip().lower() in MARKERS.union(MISSING)


def kind_of_cells(cells: Iterable[object]) -> Kind:
    """Return the kind of the cells of a column: "mixed" if some are numbers or truth values and others text; "nested"
    if some are lists or nested tables, as in Parquet files.
    """
    found = _different(cells)
    if found and are_dates(found):
        return "dates"
    if any(map(is_nested, found)):
        return "nested"
    numbers, truths, dates = (sum(map(test, found)) for test in (is_number, is_truth, is_date))
    markers = sum(map(is_marker, found))
    for kind, count in (("numbers", numbers), ("truth values", truths)):
        if count == len(found):
            return kind  # type: ignore[return-value]
    marked = sum(map(is_marked, found)) if not truths and not dates else 0
    beyond_doubt = any(is_number(cell) and not is_marker(cell) for cell in found)  # "nan" among words is a word
    if beyond_doubt or any(count and count + markers == len(found) for count in (truths, marked)):
        return "mixed"
    return "text"


def typed(texts: Sequence[str], is_gone: Callable[[str], bool] = is_missing) -> np.ndarray:
    """Return the cells of a CSV column: int64 or float64 if all are numbers, else objects, with None if one is
    missing.

    Whole numbers that do not fit int64, or float64 if a cell is missing, and numbers with leading zeros stay text: as
    numbers, names would change. nan also stays text unless it is a missing value. is_gone: Whether a cell is missing.
    """
    found = [None if is_gone(text) else text for text in texts]
    there = [text for text in found if text is not None]
    if not all(map(is_number, there)) or any(map(has_leading_zeros, there)):
        return np.array(found, object)
    if len(there) == len(texts) and all(map(_is_whole, texts)):
        try:  # not by way of float64, which long numbers such as keys do not fit
            return np.array([int(text) for text in texts], np.int64)
        except (OverflowError, ValueError):  # ValueError: thousands of digits
            return np.array(found, object)
    numbers = np.array([np.nan if text is None else float(text) for text in found])
    if np.isnan(numbers).sum() > len(texts) - len(there):  # nan is a word here, such as the name of a class
        return np.array(found, object)
    large = np.flatnonzero(np.abs(numbers) >= LARGEST_WHOLE)
    whole = [whole_number(found[place]) for place in large]
    if None not in whole and whole != [int(numbers[place]) for place in large] and all(map(_is_whole, there)):
        return np.array(found, object)
    return numbers


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def whole_number(cell: object) -> int | None:
    """Return a cell as a whole number, whatever its size; None if it is written as another one."""
    text = str(cell)
    return int(text) if re.fullmatch(r"[+-]?\d{1,4000}", text, re.ASCII) else None


def label(cell: object) -> str | None:
    """Return a cell as the name of a class or of a sequence; None if it is missing."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "backslashreplace")
    return None if cell is None else str(cell)


def ranks_of_whole_numbers(cells: Sequence[object]) -> np.ndarray | None:
    """Return int64 by which whole numbers of any length are put in order; None if not all are whole numbers."""
    numbers = [whole_number(cell) for cell in cells]
    return None if None in numbers else np.unique(np.array(numbers, object), return_inverse=True)[1]


def coded(labels: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Return the different labels in order, and the place of each label among them, int64.

    As np.unique of an array of text does, whose every entry takes four bytes per character of the longest, however: one
    long label would make gigabytes of a small file.
    """
    found = list(labels)
    names = sorted(set(found))
    place = {name: index for index, name in enumerate(names)}
    return names, np.array([place[label] for label in found], np.int64)


def missing_cells(column: np.ndarray) -> int:
    """Return how many cells of a column are missing."""
    if column.dtype == object:
        return sum(cell is None for cell in column)
    return int((column != column).sum())


def shown(cell: object) -> str:
    """Return a cell as a message shows it: quoted, without control characters, and not endless."""
    text = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(str(cell))} characters)"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Return names of columns as a message lists them, without control characters, the first `most`."""
    cut = (name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..." for name in names)
    found = [printable(name, keep="") for name in cut]
    return ", ".join(found[:most]) + (", ..." if len(found) > most else "")


def column_names(names: Sequence[str], where: object) -> list[str]:
    """Return names of columns without spaces around them. DataError if one is empty, or if two are the same then."""
    found = [name.strip() for name in names]
    if len(set(found)) != len(found) or not all(found):
        raise DataError(
            f"Expected columns with names, all different, in {where}, but got {listed(found)[:200]!r}. {NAME_EACH}"
        )
    return found


def _different(cells: Iterable[object]) -> list[object]:
    """Return the cells, each once, without missing ones."""
    try:
        return list(set(cells) - {None})
    except TypeError:  # lists, of a Parquet file
        return [cell for cell in cells if cell is not None]
