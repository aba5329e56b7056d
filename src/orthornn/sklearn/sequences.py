"""Conversion of X in any of its forms to a list of arrays, and of y to one target for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import check_choice
from ..errors import MissingPackageError


def sequences_of(X: Any, layout: str = "ntc") -> list[np.ndarray]:
    """Return X as a list of float64 arrays (T_i, C). Raises ValueError if it is none of the forms above."""
    check_choice("layout", layout, ("ntc", "nct"))
    if hasattr(X, "__dataframe__") or hasattr(X, "columns"):
        X = _of_frame(X, layout)
    if hasattr(X, "toarray"):
        raise TypeError("Expected dense sequences, but got a sparse matrix. Convert it with X.toarray().")
    if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) >= 1:
        found = [_numbers(one) for one in X]
        if all(one.ndim == 1 for one in found):
            found = [one[:, None] for one in found]
        elif layout == "nct":
            found = [one.T for one in found]
    else:
        array = _numbers(X)
        if array.ndim == 2:
            array = array[:, None] if layout == "nct" else array[:, :, None]
        if array.ndim != 3:
            raise ValueError(
                f"Expected 2D array or 3D array (n, T, C), but got shape {array.shape}. Reshape your data: one "
                f"sequence is X[None]."
            )
        found = list(array if layout == "ntc" else array.transpose(0, 2, 1))
    if not found:
        raise ValueError(
            "Expected at least one sequence, but found array with 0 sample(s) while a minimum of 1 is required."
        )
    if any(one.ndim != 2 for one in found) or len({one.shape[1] for one in found}) != 1:
        shapes = sorted({one.shape[1:] for one in found})
        raise ValueError(f"Expected sequences (T, C) with one number of channels, but got {shapes[:5]}.")
    if found[0].shape[1] == 0 or min(len(one) for one in found) == 0:
        raise ValueError(
            f"Expected at least one step and one channel, but found array with 0 feature(s) "
            f"(shape={np.shape(found[0])}) while a minimum of 1 is required."
        )
    if not all(np.isfinite(one).all() for one in found):
        raise ValueError(
            "Expected finite numbers, but got NaN or infinity in X. Fill them in; see docs/how_to/your_data.md."
        )
    return found


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers. Give two channels.")
    return array.astype(np.float64)


def _of_frame(frame: Any, layout: str) -> Any:
    """Return a table as an array, one row a sequence; or as a list, one sequence for each value of an index of two levels."""
    if getattr(getattr(frame, "index", None), "nlevels", 1) == 2:
        found = [_numbers(own.to_numpy()) for _, own in frame.groupby(level=0, sort=False)]
        return [one.T for one in found] if layout == "nct" else found
    try:
        import narwhals
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("tables as X", "narwhals", "baselines") from error
    table = narwhals.from_native(frame, eager_only=True)
    words = [name for name, kind in table.schema.items() if not (kind.is_numeric() or kind == narwhals.Boolean)]
    if words and not all(_is_number(cell) for name in words for cell in table[name].to_list()):
        raise ValueError(
            f"Expected columns of numbers in X, one for each step, but got {words[0]!r}. A table with one row per step and "
            f"columns for names is for orthornn.train."
        )
    return np.asarray(table.to_numpy())


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float, np.number))


def targets_of(sequences: list[np.ndarray], y: Any) -> np.ndarray:
    """Return y as an array with one target for each sequence. Raises ValueError if it is none."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None. Give one target for each sequence.")
    targets = np.asarray(y)
    if targets.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers as y.")
    if len(targets) != len(sequences):
        raise ValueError(f"Expected {len(sequences)} targets, one for each sequence, but got {len(targets)}.")
    return targets
