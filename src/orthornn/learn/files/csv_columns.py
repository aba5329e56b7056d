"""The columns of a text file: the cells of each as numbers or text, and whether their marks agree with one another.

All cells of a column decide together, by the rules of cells.py and number_marks.py. Where pyarrow holds the cells,
numbers that are certain by these rules are read as arrays, and the rules see each other cell once.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ...errors import DataError
from .cells import LARGEST_WHOLE, MISSING, is_number, typed
from .csv_format import CsvFormat
from .number_marks import Marks, fits_a_convention, has_leading_zeros, unmarked

_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)
_LEADING_ZEROS = r"^[+-]?0[0-9]+$"
_ZERO_IN_FRONT = r"^[+-]?0[0-9xX]"
_WHOLE = r"^[+-]?[0-9]+$"
_SAMPLE = 1000  # cells that are looked at first


class CsvColumn(NamedTuple):
    """Cells (R,): int64, float64 with NaN, or objects, str and None.

    marks: "commas" if they are numbers with decimal commas; "points" if their points may be marks of thousands, in a
        file with decimal commas.
    """

    values: np.ndarray
    marks: Literal["", "commas", "points"] = ""

    @property
    def is_settled(self) -> bool:
        """Whether marks of thousands are certain not to be taken for decimal points, or the other way."""
        return self.marks == "commas" or self.values.dtype.kind not in "Of"


def column_of_cells(cells: Any, separator: str, form: CsvFormat) -> CsvColumn:
    """Return a column of cells, with their margins: a list of str, or a chunked array of text of pyarrow."""
    if isinstance(cells, list):
        return column_of_texts([text.strip() for text in cells], separator, form)
    sample = [text.strip() for text in cells.slice(0, _SAMPLE).to_pylist()]
    if any(proves_text(text, form) for text in sample):
        repeated = 2 * len(set(sample)) <= len(sample)
        return CsvColumn(_repeated(_trimmed(cells, form)) if repeated else _texts(cells, form))
    found = _numbers(cells, separator, form) if form.marks is None else None
    if found is None and form.marks in (None, Marks(",", None)) and any(map(_has_decimal_comma, sample)):
        found = _numbers_with_commas(cells, form)
    if found is not None:
        return found
    different, codes = _encoded(cells)
    found = column_of_texts([text.strip() for text in different.to_pylist()], separator, form)
    return found._replace(values=found.values[codes])


def column_of_texts(texts: Sequence[str], separator: str, form: CsvFormat) -> CsvColumn:
    """Return a column of cells without margins, see cells.typed, with the marks of the format."""
    found = typed(texts, form.is_missing)
    if found.dtype == object or form.marks is not None:
        cells = [None if form.is_missing(text) else text for text in texts]
        numbers = unmarked(cells, form.marks)
        if numbers is not None:
            return CsvColumn(numbers[0], "commas" if numbers[1].decimal == "," else "")
        if form.marks is not None and form.marks.decimal == "," and any("." in text for text in cells if text):
            return CsvColumn(np.array(cells, object))  # 1.5 is no number under this convention
    elif found.dtype.kind == "f" and separator != ",":
        pointed = [text for text in texts if "." in text]
        if pointed and all(map(_POINT_GROUPS.fullmatch, pointed)):
            return CsvColumn(found, "points")
    return CsvColumn(found)


def is_pointed(cell: object) -> bool:
    """Return whether a cell is a number with a decimal point."""
    return isinstance(cell, str) and "." in cell and is_number(cell)


def proves_text(cell: str, form: CsvFormat) -> bool:
    """Return whether a column with this cell is text, whatever its other cells are."""
    if form.is_missing(cell):
        return False
    return has_leading_zeros(cell) or not (is_number(cell) or fits_a_convention(cell, form.marks))


def check_agreeing(path: Path, columns: dict[str, CsvColumn]) -> None:
    """Raise DataError if 1.500 is a number next to decimal commas: it may be 1500."""
    pointed = [name for name, column in columns.items() if column.marks == "points"]
    commas = [name for name, column in columns.items() if column.marks == "commas"]
    if pointed and commas:
        raise DataError(
            f"Expected to know what the points in {path}, column {pointed[0]!r}, mean, but got only points before "
            f"three digits there, and decimal commas in column {commas[0]!r}. Give both marks, decimal=',', "
            f"thousands='.' (--decimal , --thousands .), or write all columns with one decimal mark."
        )


def _numbers(cells: Any, separator: str, form: CsvFormat) -> CsvColumn | None:
    """Return numbers without marks; None if that is not certain."""
    arrow, compute = _packages()
    try:
        whole = compute.cast(cells, arrow.int64())
        if not _any(compute.match_substring_regex(cells, _ZERO_IN_FRONT)):
            return CsvColumn(whole.to_numpy())
    except arrow.ArrowException:
        pass
    read = _floats(cells, form)
    if read is None:
        return None
    cells, found = read
    values = found.to_numpy()
    if (np.trunc(values) == values).sum() == len(cells) - found.null_count:
        large = bool(found.null_count) and (np.abs(values) >= LARGEST_WHOLE).any()
        if large or (not found.null_count and _all(compute.match_substring_regex(cells, _WHOLE))):
            return None  # long keys, or whole numbers with margins or a sign
    if separator != ",":
        pointed = compute.filter(cells, compute.match_substring(cells, "."))
        if len(pointed) and _all(compute.match_substring_regex(pointed, f"^{_POINT_GROUPS.pattern}$")):
            return CsvColumn(values, "points")
    return CsvColumn(values)


def _numbers_with_commas(cells: Any, form: CsvFormat) -> CsvColumn | None:
    """Return numbers with decimal commas; None if that is not certain."""
    if _any(_packages()[1].match_substring(cells, ".")):
        return None
    read = _floats(cells, form, commas=True)
    return None if read is None else CsvColumn(read[1].to_numpy(), "commas")


def _floats(cells: Any, form: CsvFormat, commas: bool = False) -> tuple[Any, Any] | None:
    """Return cells, with missing ones as null, and their numbers; None if that is not certain.

    commas: Whether the decimal mark is the comma.
    """
    arrow, compute = _packages()
    for trim in (False, True):
        cells = _trimmed(cells, form) if trim else cells
        try:
            found = compute.cast(compute.replace_substring(cells, ",", ".") if commas else cells, arrow.float64())
        except arrow.ArrowException:
            continue
        if _all(compute.is_finite(found)):  # else it is written so, or too large, or a spelling of a missing value
            whole = compute.filter(cells, compute.equal(compute.trunc(found), found))
            is_name = _any(compute.match_substring_regex(whole, _LEADING_ZEROS))
            return None if is_name else (cells, found)
    return None


def _has_decimal_comma(text: str) -> bool:
    """Return whether a cell has a decimal comma for certain: one with other than three digits behind."""
    return re.fullmatch(r"[+-]?\d+,(\d{1,2}|\d{4,})", text, re.ASCII) is not None


def _trimmed(cells: Any, form: CsvFormat) -> Any:
    """Return stripped cells, with null for the missing ones according to `form.is_missing`."""
    arrow, compute = _packages()
    cells = compute.utf8_trim_whitespace(cells)
    usual = MISSING if form.usual else ("",)
    gone = compute.is_in(compute.ascii_lower(cells), arrow.array(usual))
    if form.words:
        gone = compute.and_(gone, compute.invert(compute.is_in(cells, arrow.array(form.words))))
    if form.missing:
        gone = compute.or_(gone, compute.is_in(cells, arrow.array(form.missing)))
    return compute.if_else(gone, None, cells) if _any(gone) else cells


def _texts(cells: Any, form: CsvFormat) -> np.ndarray:
    """Return cells as objects, chunk by chunk, to hold the text and the objects of only one chunk at a time."""
    values, at = np.empty(len(cells), object), 0
    for chunk in cells.chunks:
        values[at : at + len(chunk)] = _trimmed(chunk, form).to_numpy(zero_copy_only=False)
        at += len(chunk)
    return values


def _repeated(cells: Any) -> np.ndarray:
    """Return cells as objects; equal ones are one object."""
    different, codes = _encoded(cells)
    return np.array([*different.to_pylist(), None], object)[codes]


def _encoded(cells: Any) -> tuple[Any, np.ndarray]:
    """Return the different cells, and the place of each among them; of a null, behind the last."""
    arrow, _ = _packages()
    encoded = cells.dictionary_encode().unify_dictionaries()
    different = encoded.chunk(0).dictionary
    codes = arrow.chunked_array([chunk.indices for chunk in encoded.chunks])
    return different, codes.fill_null(len(different)).to_numpy()


def _any(found: Any) -> bool:
    """Return whether one is True."""
    return bool(_packages()[1].any(found).as_py())


def _all(found: Any) -> bool:
    """Return whether none is False; nulls do not count."""
    return _packages()[1].all(found).as_py() is not False


def _packages() -> tuple[Any, Any]:
    return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
