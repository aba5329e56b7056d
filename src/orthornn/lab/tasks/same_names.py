"""Names that mean the same however a file writes them: 1 and 1.0, true and True, 2020-01-01 and 2020-01-01T00:00:00.

A column of names (classes, categories, series) is one of numbers in one file and of text in another, where a single cell
decides; and pandas, Parquet and CSV files write truth values and dates differently. What was learned keeps its spelling, and
a name of another file is taken for the learned one that means the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .cells import is_number, is_truth, whole_number
from .dates import exists, has_offset, nanoseconds_of_dates
from .number_marks import has_leading_zeros

_AMBIGUOUS = ""


def in_known_spelling(labels: np.ndarray, known: Iterable[str]) -> np.ndarray:
    """Return labels (R,), objects, in which each that is not known is replaced by the one known name of its meaning.

    labels: str, and None where there is none.
    """
    names = set(known)
    strange = {label for label in labels.tolist() if label is not None} - names
    if not strange:
        return labels
    spelled: dict[object, str] = {}
    for name in names:
        meaning = _meaning(name)
        spelled[meaning] = _AMBIGUOUS if meaning in spelled else name
    found = {name: spelled.get(_meaning(name), _AMBIGUOUS) or name for name in strange}
    return np.array([label if label is None else found.get(label, label) for label in labels.tolist()], object)


def _meaning(name: str) -> object:
    """Return what is equal for two names that mean the same."""
    if is_truth(name):
        return "truth", name.lower()
    if is_number(name) and not has_leading_zeros(name):
        whole = whole_number(name)
        number = float(name) if whole is None else whole
        return ("number", number) if number == number else name
    if exists(name):
        return "date", int(nanoseconds_of_dates([name])[0]), has_offset(name)
    return name
