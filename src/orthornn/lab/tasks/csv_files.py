"""Text with separators: tables with a line of names, and lines of numbers without one."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from ...errors import DataError
from .cells import is_number, listed, shown, typed


def read_named(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a CSV file that begins with a line of names. Raises DataError if it is not one."""
    lines = _lines(path)
    if not lines:
        return {}
    names = [name.strip() for name in lines[0]]
    if len(names) == 1:
        lines = [line or [""] for line in lines]  # the empty line is how a lone column writes a missing value
    if any(is_number(name) or not name for name in names) or len(set(names)) != len(names):
        unnamed = " The first column has no name: pandas writes its index so; use to_csv(index=False)."
        raise DataError(
            f"Expected {path} to begin with a line of names, all different, but got {listed(names)[:200]!r}."
            f"{unnamed if not names[0] and len(names) > 1 else ''}"
        )
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            raise DataError(
                f"Expected {len(names)} cells, one per name, but {path}, line {number}, has {len(line)}. "
                f"{'The file may be truncated.' if number == len(lines) else 'Quote cells that hold a separator.'}"
            )
    return {name: typed([row[place].strip() for row in lines[1:]]) for place, name in enumerate(names)}


def read_numbers(path: Path) -> np.ndarray:
    """Return the numbers (lines, cells), float64, of a CSV file without names. Raises DataError for anything else."""
    lines = _lines(path)
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
        with open(path, encoding="utf-8-sig") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        return True  # reading it as a table reports what is wrong
    return not all(is_number(cell.strip()) for cell in first.strip().split(","))


def _lines(path: Path) -> list[list[str]]:
    """Return the cells of all lines, without empty lines at the end."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            separator = max(",;\t", key=first.count)
            file.seek(0)
            lines = list(csv.reader(file, delimiter=separator, strict=True))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    while lines and not lines[-1]:
        lines.pop()
    return lines
