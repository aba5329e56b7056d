"""Masked arrays of NumPy, as netCDF and HDF files are read: what a mask hides is a missing value, not the number below it."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(values: Any) -> np.ndarray:
    """Return values as np.asarray does, but masked ones as NaN, those of dates as NaT, of text and truth values as None.

    Raises ValueError for lists of unequal lengths.
    """
    if isinstance(values, (list, tuple)) and _has_masked(values):
        values = [as_array(one) for one in values]
    found = np.asanyarray(values)
    if not isinstance(found, np.ma.MaskedArray) or not np.ma.is_masked(found):
        return np.asarray(found)
    kind = found.dtype.kind
    if kind in "iu":
        found = found.astype(np.float64)
    elif kind not in "fcmM":
        found = found.astype(object)
    missing = {"m": np.timedelta64("NaT"), "M": np.datetime64("NaT"), "O": None}.get(found.dtype.kind, np.nan)
    filled: np.ndarray = np.where(np.ma.getmaskarray(found), missing, found.data)
    return filled.astype(found.dtype)


def _has_masked(values: Any) -> bool:
    """Return whether there is a masked array in lists."""
    if isinstance(values, (list, tuple)):
        return any(_has_masked(one) for one in values)
    return isinstance(values, np.ma.MaskedArray)
