"""Names that mean the same however a file writes them: 1 and 1.0, true and True, 2020-01-01 and 2020-01-01T00:00:00.

A column of names (classes, categories, series) may contain numbers in one file and text in another, since a single cell
decides; and pandas, Parquet and CSV files write truth values and dates differently. What was learned keeps its
spelling, and a name of another file is taken for the learned one that means the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .cells import is_number, is_truth, whole_number
from .dates import exists, has_offset, is_date, nanoseconds_of_dates
from .number_marks import has_leading_zeros

_AMBIGUOUS = ""


def in_known_spelling(labels: np.ndarray, known: Iterable[str]) -> np.ndarray:
    """Return labels (R,), objects, in which each that is not known is replaced by the one known name of its meaning.

    labels: str, or None if there is none.
    """
    names = set(known)
    strange = {label for label in labels.tolist() if label is not None} - names
    if not strange:
        return labels
    meaning = _meanings(names | strange)
    spelled: dict[object, str] = {}
    for name in names:
        spelled[meaning[name]] = _AMBIGUOUS if meaning[name] in spelled else name
    found = {name: spelled.get(meaning[name], _AMBIGUOUS) or name for name in strange}
    return np.array([label if label is None else found.get(label, label) for label in labels.tolist()], object)


def _meanings(names: Iterable[str]) -> dict[str, object]:
    """Return for each name what is equal for two that mean the same."""
    found: dict[str, object] = {name: _meaning(name) for name in names}
    for offset in (False, True):
        dates = [name for name in found if is_date(name) and has_offset(name) == offset]
        try:
            instants = nanoseconds_of_dates(dates).tolist() if dates else []
        except ValueError:  # one of a day that does not exist
            dates = list(filter(exists, dates))
            instants = nanoseconds_of_dates(dates).tolist() if dates else []
        found |= {name: ("date", instant, offset) for name, instant in zip(dates, instants)}
    return found


def _meaning(name: str) -> object:
    """Do the same for a name that is not a date."""
    if is_truth(name):
        return "truth", name.lower()
    if is_number(name) and not has_leading_zeros(name):
        whole = whole_number(name)
        number = float(name) if whole is None else whole
        return ("number", number) if number == number else name
    return name
