"""Whole numbers that floating-point numbers round: as targets, as inputs, and as names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from .cells import LARGEST_WHOLE, whole_number


def check_rounding(
    targets: np.ndarray,
    values: np.ndarray,
    said: Callable[[int], str],
    whole: str,
    error: type[Exception] | None,
    kind: str = "target",
) -> None:
    """Raise an error, or warn, if whole numbers of a column are others as float64.

    Warn about inputs, also if float32, which represents them to a network in standard deviations, would round them
    more.

    Args:
        targets: The column as it was given, (R,).
        values: The same as float64, (R,).
        said: Returns where a row is, such as ``"in FILE, column 'y', row 3,"``.
        whole: Name of the column in the advice.
        error: The class of the error; None for a warning in any case.
        kind: What the column is for, "target" or "input".
    """
    large = np.flatnonzero((np.abs(values) >= LARGEST_WHOLE) & np.isfinite(values))
    if targets.dtype.kind == "f" or not len(large):
        return
    exact = ((row, whole_number(targets[row])) for row in large.tolist())
    row, cell = next(((row, cell) for row, cell in exact if cell not in (None, int(values[row]))), (None, None))
    if row is None:
        return
    there = values[np.isfinite(values)]
    found = f"{cell} {said(row)} is {int(values[row])} in float64"
    advice = f"Subtract a constant from {whole}, or divide it by one"
    if error is not None and np.spacing(np.abs(there).max()) > np.finfo(np.float32).eps * (there.max() - there.min()):
        raise error(
            f"Expected targets that differ by more than float64 rounds them, but got others: {found}. {advice}."
        )
    warn(
        f"Whole numbers above {LARGEST_WHOLE} are rounded: the {kind} {found}. {advice}; this also silences the warning."
    )


def check_names(values: np.ndarray, said: Callable[[int], str], error: type[Exception]) -> None:
    """Raise an error if floating-point numbers that name classes or sequences may have been rounded before.

    From 2^53 on, float64 does not tell whole numbers apart: two names may have become one. Columns of integers with a
    missing value are often such numbers.

    Args:
        values: The column as it was given, (R,).
        said: Returns where a row is, such as ``"in FILE, column 'y', row 3,"``.
        error: The class of the error.
    """
    if values.dtype.kind != "f":
        return
    largest = 2.0 ** (np.finfo(values.dtype).nmant + 1)
    large = np.flatnonzero(np.isfinite(values) & (np.abs(values) > largest))
    if len(large):
        row = int(large[0])
        raise error(
            f"Expected names that no rounding can make equal, but got {int(values[row])} {said(row)} as {values.dtype}, in "
            f"which whole numbers above {int(largest)} are rounded. Give them as integers, of pandas' dtype 'Int64' if some "
            f"are missing, or as text."
        )


def check_finite_names(values: np.ndarray, said: Callable[[int], str]) -> None:
    """Raise DataError if numbers of a text file that name classes or sequences are infinite: 1e400 and 2e400 are then
    one.

    Args:
        values: The column as it was read, (R,).
        said: Returns where a row is, as for `check_names`.
    """
    infinite = np.flatnonzero(np.isinf(values) if values.dtype.kind == "f" else np.zeros(0, bool))
    if len(infinite):
        row = int(infinite[0])
        raise DataError(
            f"Expected names that no rounding can make equal, but got {values[row]} {said(row)} as {values.dtype}, which is "
            f"also what numbers such as 1e400 and 2e400 become. Write them as words, such as infinite, or c1e400."
        )
