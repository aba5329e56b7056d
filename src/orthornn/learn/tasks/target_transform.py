"""Transforms of targets: a network learns the logarithm of a target, and what it predicts is in the units of the file.

log    log y, for targets above 0
log1p  log(1 + y), for targets from 0 on, such as counts

Both increase with y, so that a quantile of the transformed target is the transform of the quantile. A mean is not: what
minimizes the squared error of log y is exp(mean of log y), the geometric mean, which is the median where log y is
symmetric, and below the mean of y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError

TRANSFORMS = ("log", "log1p")
_INVERSES = {"log": "exp", "log1p": "expm1"}

Values = TypeVar("Values", np.ndarray, Tensor)


def transformed(values: Values, transform: str | None) -> Values:
    """Return values as a network learns them. transform: One of TRANSFORMS; None for values that stay as they are."""
    return values if transform is None else _applied(transform, values)


def in_units(values: Values, transform: str | None) -> Values:
    """Return transformed values in the units of the file."""
    return values if transform is None else _applied(_INVERSES[transform], values)


def check_domain(values: np.ndarray, transform: str | None, where: Callable[[int], str]) -> None:
    """Raise DataError if values (R,) have no transform; a missing one, NaN, passes.

    where: Returns which value is wrong, by its place, such as ``"in FILE, column 'y', row 3"``.
    """
    if transform is None:
        return
    wrong = np.flatnonzero(values <= 0 if transform == "log" else values < 0)
    if not len(wrong):
        return
    place = int(wrong[0])
    needed = "numbers above 0" if transform == "log" else "no number below 0"
    advice = (
        "for counts and other numbers from 0 on, use log1p; " if transform == "log" and not (values < 0).any() else ""
    )
    raise DataError(
        f"Expected {needed} for target_transform={transform!r}, --target-transform {transform}, but got "
        f"{values[place]:g} {where(place)}, the first of {len(wrong)}. Correct it or leave it empty; "
        f"{advice}or train without the transform."
    )


def _applied(name: str, values: Values) -> Values:
    function = getattr(torch if isinstance(values, Tensor) else np, name)
    # The prediction of a network that diverges is infinite, or the bound of the domain, as torch has it.
    with np.errstate(over="ignore", divide="ignore"):
        found: Values = function(values)
    return found
