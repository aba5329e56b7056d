"""The metrics of forecasts, as sums and counts that add up over batches.

loss      the mean squared error of standardized values, or the mean pinball loss
mse, mae  the squared and the absolute error, in the targets' own units
mape      |e| / |y|, where y is not 0: |y| is above the rounding of standardized numbers, 1e-5 (|mean| + deviation)
smape     2 |e| / (|y| + |prediction|), where they are not both 0
mase      |e| over the mean change of the training part from one season, or step, to the next (Hyndman & Koehler, 2006)
coverage  how often y is between the lowest and the highest quantile, at least two of them
coverage_q0.1, ...  how often y is at most this quantile, which should be its level

The quantiles of a target are sorted first (`uncrossed`). Where there are some, the point that mse to mase measure is the
one nearest to the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from torch import Tensor

from .target_transform import in_units

_ROUNDING = 1e-5  # of a number that was standardized in float32, as a share of mean and deviation


Values = TypeVar("Values", np.ndarray, Tensor)


def uncrossed(values: Values, count: int) -> Values:
    """Return forecasts (..., O) whose quantiles, so many of each target together, are sorted, and so do not cross.

    That never increases their pinball loss (Chernozhukov, Fernandez-Val & Galichon, 2010). count: 0 or 1 for none to sort.
    """
    if count < 2:
        return values
    apart = values.reshape(*values.shape[:-1], -1, count)
    if isinstance(apart, Tensor):
        return apart.sort(-1).values.reshape(values.shape)
    return np.sort(apart, -1).reshape(values.shape)


def pinball(found: np.ndarray, wanted: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Return 2 max(q e, (q - 1) e), e = wanted - found: (rows, K, Q).

    found: (rows, K, Q), or (1, K, Q). wanted: (rows, K).
    """
    errors = wanted[..., None] - found
    q = np.asarray(levels)
    return 2 * np.maximum(q * errors, (q - 1) * errors)


def scores(
    found: np.ndarray,
    wanted: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    usual: np.ndarray,
    levels: Sequence[float] = (),
    transform: str | None = None,
) -> dict[str, tuple[float, float]]:
    """Return (sum, count) of every metric; a target that is NaN does not count, and a forecast that is NaN makes the sum NaN.

    Args:
        found: Standardized forecasts, (rows, K) or (rows, K Q), the quantiles of a target together.
        wanted: Standardized targets, (rows, K).
        mean: Of each target, (K,); deviation: likewise; usual: What the absolute error is divided by in mase.
        levels: The quantiles, ascending; none for a forecast of the mean.
        transform: Of the targets, before they were standardized; see target_transform.py.
    """
    there = ~np.isnan(wanted)
    if levels:
        found = uncrossed(found, len(levels)).reshape(*wanted.shape, len(levels))
        losses = pinball(found, wanted, levels).mean(-1)
        point = found[..., int(np.argmin(np.abs(np.asarray(levels) - 0.5)))]
    else:
        point = found
        losses = np.square(found - wanted)
    y, guess = (in_units(values * deviation + mean, transform) for values in (wanted, point))
    zero = 0.0 if transform == "log" else _ROUNDING * (np.abs(mean) + deviation)  # log1p is as wide at 0 as y
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(y - guess)
        each = {
            "loss": losses,
            "mse": error**2,
            "mae": error,
            "mape": np.where(np.abs(y) <= zero, np.nan, error / np.abs(y)),
            "smape": np.where(np.isinf(guess), 2 + 0 * y, 2 * error / (np.abs(y) + np.abs(guess))),
            "mase": error / usual,
        }
    if len(levels) > 1:
        inside = (found[..., 0] <= wanted) & (wanted <= found[..., -1])
        each["coverage"] = np.where(there, inside, np.nan)
    for place, level in enumerate(levels):
        each[f"coverage_q{level:g}"] = np.where(there, wanted <= found[..., place], np.nan)
    bad = np.isnan(losses)  # where a target is there, of a forecast that overflowed, which is no missing value
    counted = {name: there & (bad | ~np.isnan(values)) for name, values in each.items()}
    return {name: (float(values[counted[name]].sum()), int(counted[name].sum())) for name, values in each.items()}
