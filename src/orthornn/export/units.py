"""Detect raw values that are so far from 0 that the float32 numbers of an exported network do not resolve them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._warnings import warn

_ROUNDING = 2.0**-23  # of the value and of the offset, half of that each
_COARSE = 1e-3  # standard deviations


def centered(scale: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (center, rest) such that x scale + offset equals (x - center) scale + rest.

    The center is the mean that the scaling subtracts, as a float32 number, so values near it keep their precision:
    differences of float32 numbers this close are exact. The rest is the float64 remainder after rounding the mean.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        center = (-offset / scale).astype(np.float32).astype(np.float64)
    center = np.where(np.isfinite(center), center, 0.0)
    return center, offset + center * scale


def warn_of_large_offsets(description: Mapping[str, Any] | None) -> None:
    """Warn about inputs and outputs whose mean is so many standard deviations from 0 that float32 loses their
    differences.

    `orthornn.load` scales in float64; an exported network reads and returns float32.

    Args:
        description: Description of the run, description.json; None for a network without units.
    """
    d = description or {}
    offsets = np.abs(np.ravel(d.get("offset", 0.0)))
    targets = np.abs(np.ravel(d.get("target_offset", 0.0)) / np.ravel(d.get("target_scale", 1.0)))
    coarse = []
    for kind, sizes, names in (("input", offsets, d.get("columns")), ("output", targets, d.get("labels"))):
        for place in np.flatnonzero(sizes * _ROUNDING > _COARSE).tolist():
            name = names[place] if names is not None and len(names) == len(sizes) else place
            coarse.append(f"{kind} {name!r} to about {sizes[place] * _ROUNDING:.1g} standard deviations")
    if coarse:
        warn(
            f"an exported network reads and returns float32 numbers, which resolve {', '.join(coarse[:5])}"
            f"{', ...' if len(coarse) > 5 else ''} only, so its results differ from predict. To silence this, "
            f"subtract a constant near the mean from the column before training."
        )
