"""Masked NumPy arrays, as read from netCDF and HDF files: a masked entry is missing, whatever number is below it."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(values: Any) -> np.ndarray:
    """Return values as np.asarray does, with masked numbers as NaN, masked dates as NaT, and masked text or truth
    values as None.

    Raises ValueError for lists of unequal lengths.
    """
    if isinstance(values, (list, tuple)) and _has_masked(values):
        values = [as_array(one) for one in values]
    found: Any = np.asanyarray(values)
    if not isinstance(found, np.ma.MaskedArray) or not np.ma.is_masked(found):
        return np.asarray(found)
    kind = found.dtype.kind
    if kind in "iu":
        found = found.astype(np.float64)
    elif kind not in "fcmM":
        found = found.astype(object)
    missing = {"m": np.timedelta64("NaT"), "M": np.datetime64("NaT"), "O": None}.get(found.dtype.kind, np.nan)
    filled: Any = np.where(np.ma.getmaskarray(found), missing, found.data)
    return filled.astype(found.dtype)


def _has_masked(values: Any) -> bool:
    """Return whether there is a masked array in lists."""
    if isinstance(values, (list, tuple)):
        return any(_has_masked(one) for one in values)
    return isinstance(values, np.ma.MaskedArray)
