"""The expected outputs of a network on an example, and the tolerance for rounding.

If errors grow, as in a chaotic or diverging network, the example ends before they exceed the tolerance: after that, two
correct programs may differ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import NonFiniteError
from .folded import Array, FoldedNetwork

_LARGEST = 1e37  # largest state, output or tolerance: float32 ends at 3.4e38
_MARGIN = 2.0  # ratio of the tolerance to the effect of rounding every state


class Reference(NamedTuple):
    """Raw inputs x (T, I), or tokens (T,), outputs y (T, O) in float64, and the tolerance for rounding."""

    x: Array
    y: Array
    tolerance: float


def example(network: FoldedNetwork, steps: int) -> Array:
    """Return an example of raw inputs (T, I), or tokens (T,); the result is deterministic."""
    random = np.random.default_rng(0)
    if network.tokens:
        return random.integers(0, network.input_size, steps)
    x = random.standard_normal((steps, network.input_size))
    if network.input_scale is not None and network.input_offset is not None:
        scale = np.where(network.input_scale == 0, 1, network.input_scale)
        x = (x - network.input_offset) / scale
    if network.vectors is not None:
        x[:, -1] = random.integers(0, len(network.vectors), steps)
    return x.astype(np.float32)


def follow(network: FoldedNetwork, steps: int, eps: float) -> Reference:
    """Return at least one and at most `steps` steps of the example, for numbers with this epsilon.

    Raises:
        NonFiniteError: If the first step exceeds the range of float32.
    """
    x, random = example(network, steps), np.random.default_rng(1)
    sums = max(layer.size + layer.V.shape[1] for layer in network.layers)
    states, rounded = network.first_states(), network.first_states()
    rows: list[Array] = []
    largest, tolerance = 1.0, 0.0
    for row in x:
        for k, h in enumerate(rounded[: len(network.layers)]):
            signs = random.choice([-1.0, 1.0], len(h))
            rounded[k] = h + signs * eps * sums**0.5 * float(np.abs(h).max())
        with np.errstate(over="ignore", invalid="ignore"):
            (y, states), (z, rounded) = network.step(row, states), network.step(row, rounded)
            largest = max(largest, *(float(np.abs(values).max()) for values in (y, *states[: len(network.layers)])))
            allowed = 8 * eps * (steps + sums) * largest * network.readout_norm
            off = _MARGIN * float(np.abs(y - z).max())
        if not (np.isfinite(largest) and max(largest, allowed) <= _LARGEST):
            break
        if off > allowed:
            if rows:
                break
            allowed = off
        rows.append(y)
        tolerance = max(tolerance, allowed)
    if not rows:
        raise NonFiniteError(
            f"Expected a network whose first step is in the range of float32, but got a value of {largest:.2g} on inputs of "
            f"size 1. Train it again, with a lower learning rate."
        )
    return Reference(x[: len(rows)], np.stack(rows), tolerance)
