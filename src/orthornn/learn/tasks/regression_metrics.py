"""The metrics of regressions in the targets' own units, as sums and counts that add up over batches.

mse, mae  the squared and the absolute error, the mean over the targets if there are several
r2        1 - (squared errors) / (squared deviations of the targets from their mean), the mean over the targets; a target
          that is the same everywhere does not enter

The last is no mean over rows: `sums` returns the means that it needs, under names of their own, and `with_r2` puts it in
their place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_PARTS = ("r2: squared error ", "r2: target ", "r2: squared target ")  # of its targets, by their places
_ROUNDING = 1e-12  # of a variance, as a share of the mean square


def sums(errors: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
    """Return (sum, count) of mae, and of what `with_r2` reads.

    Args:
        errors: Predictions minus targets (rows, O), float64; where there is no target, any number.
        targets: The targets (rows, O), float64, less a constant near their mean; NaN where there is none.
    """
    there = ~targets.isnan()
    known, errors = there.sum(0).tolist(), errors.where(there, 0.0)
    found = {"mae": (float(errors.abs().sum()), sum(known))}
    targets = targets.where(there, 0.0)
    for part, values in zip(_PARTS, (errors.square(), targets, targets.square())):
        for place, (total, count) in enumerate(zip(values.sum(0).tolist(), known)):
            found[f"{part}{place}"] = (total, count)
    return found


def with_r2(means: Mapping[str, float]) -> dict[str, float]:
    """Return metrics with r2, where it is defined, in place of the means that it needs."""
    names = [name for name in means if name.startswith(_PARTS[0])]  # of the targets of which a value was known
    shares = []
    for place in (name.removeprefix(_PARTS[0]) for name in names):
        error, mean, square = (means[part + place] for part in _PARTS)
        variance = square - mean * mean
        if variance > _ROUNDING * square:
            shares.append(1 - error / variance)
    found = {name: value for name, value in means.items() if not name.startswith(_PARTS)}
    return {**found, "r2": float(np.mean(shares))} if shares else found


def own_scores(found: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Return mae, and r2 where it is defined, of predictions and targets (rows, O) without a missing one."""
    errors, targets = torch.from_numpy(found - wanted), torch.from_numpy(wanted - wanted.mean(0))
    return with_r2({name: total / count for name, (total, count) in sums(errors, targets).items()})
