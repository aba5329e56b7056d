"""The cells of a column, as pyarrow holds text, as numbers or objects, wherever that is certain to be right.

Certain is what the rules of cells.py and number_marks.py would make of the same cells one at a time. None is returned for
everything else, such as infinities, numbers with leading zeros, and spellings of NaN that are no missing values.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from .csv_columns import POINT_GROUPS, Commas, Groups, column_of_texts
from .csv_format import CsvFormat
from .number_marks import Marks

_COMMA = r"^[ \t]*[+-]?([0-9]+,?[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_LEADING_ZEROS = r"^[ \t]*[+-]?0[0-9]+[ \t]*$"
_WHOLE = r"^[ \t]*[+-]?[0-9]+[ \t]*$"


def longest(cells: Any) -> int:
    """Return how many bytes the longest cell of an array of text has."""
    return int(np.diff(_text(cells)[0]).max(initial=0))


def whole_numbers(cells: Any) -> np.ndarray | None:
    """Return cells as int64; None if one is missing, or not certain to be a whole number."""
    arrow, compute = _packages()
    if cells.null_count or _with_zero_in_front(cells, whole=True):
        return None
    try:
        return compute.cast(cells, arrow.int64()).to_numpy()
    except arrow.ArrowException:
        return None


def numbers(cells: Any, form: CsvFormat) -> tuple[np.ndarray, int] | None:
    """Return cells as float64, NaN where one is missing, and how many are; None if that is not certain."""
    arrow, compute = _packages()
    try:
        found = compute.cast(cells, arrow.float64())
    except arrow.ArrowException:
        cells = compute.ascii_trim_whitespace(cells)
        cells = compute.if_else(compute.is_in(cells, arrow.array(sorted(form.spellings))), None, cells)
        try:
            found = compute.cast(cells, arrow.float64())
        except arrow.ArrowException:
            return None
    values = found.to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all() and (np.isinf(values).any() or int(np.isnan(values).sum()) != found.null_count):
        return None  # written so, or too large; or another spelling of NaN
    if _with_zero_in_front(cells, whole=False) and _any(compute.match_substring_regex(cells, _LEADING_ZEROS)):
        return None  # names
    return values, found.null_count


def numbers_with_commas(cells: Any) -> np.ndarray | None:
    """Return cells with decimal commas as float64, NaN where one is missing; None if that is not certain."""
    arrow, compute = _packages()
    if not _all(compute.match_substring_regex(cells, _COMMA)):
        return None
    if _with_zero_in_front(cells, whole=False) and _any(compute.match_substring_regex(cells, _LEADING_ZEROS)):
        return None
    try:
        return compute.cast(compute.replace_substring(cells, ",", "."), arrow.float64()).to_numpy(zero_copy_only=False)
    except arrow.ArrowException:
        return None


def has_decimal_commas(texts: list[str]) -> bool:
    """Return whether cells have decimal commas for certain: one with other than three digits behind."""
    return any(re.fullmatch(r"[+-]?\d+,(\d{1,2}|\d{4,})", text, re.ASCII) for text in texts)


def texts(cells: Any, form: CsvFormat) -> np.ndarray:
    """Return cells that are text as objects: str without margins, and None where one is missing."""
    values: np.ndarray = cells.to_numpy(zero_copy_only=False)
    offsets, content = _text(cells)
    if not len(content):
        return values
    edges = np.stack([content.take(offsets[:-1], mode="clip"), content.take(offsets[1:] - 1, mode="clip")])
    if (edges - np.uint8(ord("!")) <= ord("~") - ord("!")).all():
        short = np.diff(offsets) <= max(map(len, form.spellings))
    else:
        values = np.array([text if text is None else text.strip() for text in values.tolist()], object)
        short = np.ones(len(values), bool)
    missing = [text for text in set(values[short].tolist()) if text is not None and form.is_missing(text)]
    if missing:
        values[[text in missing for text in values.tolist()]] = None
    return values


def repeated_texts(cells: Any, form: CsvFormat) -> np.ndarray:
    """Return the same for cells of which few are different."""
    encoded = cells.dictionary_encode()
    different = [text.strip() for text in encoded.dictionary.to_pylist()]
    found = [None if form.is_missing(text) else text for text in different]
    codes = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    return np.array([*found, None], object)[codes]


def column_of_cells(column: Any, separator: str, form: CsvFormat) -> np.ndarray:
    """Return a whole column of text with nulls, in chunks, as `column_of_texts` has it."""
    if form.marks is None:
        found = _plain_numbers(column, separator)
        if found is not None:
            return found
    if (form.marks or Marks(",", None)) == Marks(",", None):
        head = [text.strip() for text in column.slice(0, 1000).to_pylist() if text is not None]
        commas = numbers_with_commas(column.combine_chunks()) if has_decimal_commas(head) else None
        if commas is not None:
            return commas.view(Commas)
    encoded = column.dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 0:
        return np.empty(0, object)
    arrow, _ = _packages()
    different = [text.strip() for text in encoded.chunk(0).dictionary.to_pylist()]
    codes = arrow.chunked_array([chunk.indices for chunk in encoded.chunks]).fill_null(len(different)).to_numpy()
    return column_of_texts([*different, ""] if column.null_count else different, separator, form)[codes]


def _plain_numbers(column: Any, separator: str) -> np.ndarray | None:
    """Return numbers without marks, as cells.typed has them; None if that is not certain."""
    arrow, compute = _packages()
    try:
        values = compute.cast(column, arrow.float64()).to_numpy()
    except arrow.ArrowException:
        return None
    if int(np.isnan(values).sum()) != column.null_count:
        return None  # another spelling of NaN
    if _any(compute.match_substring_regex(column, _LEADING_ZEROS)):
        return None  # names
    if np.isinf(values).any():
        return None  # written so, or too large
    if column.null_count == 0 and (values[:1000] % 1 == 0).all() and (values % 1 == 0).all():
        try:
            return compute.cast(column, arrow.int64()).to_numpy()
        except arrow.ArrowException:
            if _all(compute.match_substring_regex(column, _WHOLE)):
                return None  # long keys
    if separator != ",":
        pointed = compute.filter(column, compute.match_substring(column, "."))
        if len(pointed) and _all(compute.match_substring_regex(pointed, f"^{POINT_GROUPS.pattern}$")):
            return values.view(Groups)
    return values


def _with_zero_in_front(cells: Any, whole: bool) -> bool:
    """Return whether a cell may begin with a zero in front of another digit or an x; never False where one does.

    whole: Whether the cells are whole numbers, where it is also a zero in front of a point or an exponent.
    """
    offsets, content = _text(cells)
    if len(content) < 2:
        return False
    starts, ends = offsets[:-1], offsets[1:]
    first = content.take(starts, mode="clip")
    starts = starts + ((first == ord("-")) | (first == ord("+")))
    zeros = np.flatnonzero(content.take(starts, mode="clip") == ord("0"))
    starts = starts[zeros] + 1
    longer = starts < ends[zeros]
    if not whole:
        behind = content.take(starts, mode="clip")
        longer &= (behind != ord(".")) & (behind | np.uint8(32) != ord("e"))
    return bool(longer.any())


def _text(cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cells (R,) of an array of text begin and end, (R + 1,), in its bytes; and the bytes."""
    _, offsets, content = cells.buffers()
    places = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1].astype(np.intp)
    return places, np.frombuffer(content or b"", np.uint8)


def _any(found: Any) -> bool:
    return bool(_packages()[1].any(found).as_py())


def _all(found: Any) -> bool:
    return _packages()[1].all(found).as_py() is not False


def _packages() -> tuple[Any, Any]:
    return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
