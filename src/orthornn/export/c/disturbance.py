"""Bounds on how far rounding to integers moves the outputs of a network, for all inputs and states within the ranges.

The error of a layer's state is its previous error, propagated by W and V, plus a disturbance of the step: weights,
products, nonlinearity and state are rounded. The comments cite the terms of docs/derivations/certificates.md by number.
The exact state is inside the box of its range, so clipping a rounded state to the box never increases its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .fixed import FixedLayer, FixedNetwork
from .fixed_arithmetic import LARGEST, PLACES, REACH, TANH_PLACES, TANH_STEPS, FixedMatrix
from .folded import Array

_TABLE = 0.7699 / (8 * TANH_STEPS**2) + 0.5 / LARGEST + 2.3e-7  # errors of tanh: chords, entries, and beyond the end
_OUTWARD = 1 + 1e-6  # covers float64 rounding in these sums
_JUMPS = ("modrelu", "complex_modrelu")


@dataclass(frozen=True)
class Disturbance:
    """The growth of the error of a layer's state, in the units of the network and the Euclidean norm.

    Attributes:
        first: Error of the initial state.
        rho, kappa: Factors on the errors of this state and of the layer's input.
        each: Error added by every step.
    """

    first: float
    rho: float
    kappa: float
    each: float


def has_rounding_bounds(fixed: FixedNetwork) -> bool:
    """Return whether the bounds cover a network: layers with a linear readout of the last one, no pools, lags or series."""
    network = fixed.network
    return not (network.blocks or network.reading.counts or network.H is not None or network.vectors is not None)


def rounding_bounds(fixed: FixedNetwork, steps: Sequence[int]) -> list[float]:
    """Return, for each number of steps, a bound on the distance between outputs after and before rounding (Euclidean norm).

    It holds while the inputs, and the states of the network before rounding, are within the ranges of the integers. It is
    infinite for modReLU with b > 0, which jumps, and for sums that saturate inside the ranges.

    Raises:
        ArgumentError: If the network has parts that the bounds do not cover.
    """
    if not has_rounding_bounds(fixed):
        raise ArgumentError(
            "Expected layers with a linear readout of the last one, but got blocks, a pool, lags, series or a perceptron, "
            "which the bounds do not cover. Measure `integers` on data."
        )
    layers = [_disturbance(fixed, k) for k in range(len(fixed.layers))]
    slope, added = _readout(fixed)
    return [(slope * _largest(layers, count) + added) * _OUTWARD for count in steps]


def _largest(layers: Sequence[Disturbance], steps: int) -> float:
    """Return the largest error of the last layer's state within `steps` steps."""
    errors, largest = [layer.first for layer in layers], 0.0
    for _ in range(steps):
        before, entering = list(errors), 0.0
        for k, layer in enumerate(layers):
            errors[k] = layer.rho * errors[k] + layer.kappa * entering + layer.each
            entering = errors[k]
        largest = max(largest, errors[-1])
        if errors == before or not np.isfinite(errors[-1]):
            break
    return largest


def _readout(fixed: FixedNetwork) -> tuple[float, float]:
    """Return the factor by which the readout multiplies an error of the state, and the error that it adds."""
    network = fixed.network
    if fixed.Y is None or network.Y is None:
        return 1.0, 0.0
    scale = fixed.layers[-1].scale
    reach = np.full(network.Y.shape[1], scale * LARGEST)
    added = _product(fixed.Y, network.Y, scale / fixed.output_scale, reach, fixed.output_scale)
    if fixed.d is not None:
        added += 0.5 * fixed.output_scale * len(fixed.d) ** 0.5
    return _norm(network.Y), added


def _norm(A: Array) -> float:
    return float(np.linalg.norm(A, 2)) * _OUTWARD


def _length(errors: Array) -> float:
    return float(np.linalg.norm(errors))


def _product(matrix: FixedMatrix, A: Array, factor: float, reach: Array, unit: float) -> float:
    """Return the largest distance between the integer product and A x, for quantized entries x of size up to `reach`.

    factor: Ratio between a sum of integers, times the value of one unit of A, and the result in `unit`s.
    """
    size = matrix.multiplier.m * 2.0**-matrix.multiplier.shift / factor
    moved = np.abs(matrix.q * size[:, None] - A)  # rounding of weights and multipliers
    by_row = moved @ reach
    together = _norm(moved) * _length(reach)
    return min(_length(by_row), together) + 0.5 * unit * len(A) ** 0.5


def _disturbance(fixed: FixedNetwork, k: int) -> Disturbance:
    made = fixed.layers[k]
    layer, unit = made.layer, made.scale / (1 << PLACES)
    n, largest = layer.size, made.scale * LARGEST
    W = layer.matrix()
    slope = _slope(made)
    carried = _carried(made, W)
    if fixed.network.tokens and not k:
        reach, entering, factor = np.ones(1), 0.0, 1.0 / unit
        moved = np.abs(made.V.q * (made.V.multiplier.m * 2.0**-made.V.multiplier.shift / factor)[:, None] - layer.V)
        taken = float(np.linalg.norm(moved, axis=0).max()) + 0.5 * unit * n**0.5
        projected = np.abs(layer.V).max(1)
    else:
        below = fixed.layers[k - 1].scale if k else _input_scale(fixed)
        reach = np.full(layer.V.shape[1], below * LARGEST) if k else fixed.ranges.inputs + below
        entering = 0.0 if k else _length(below * (0.5 + 2.0**-22 * (LARGEST + 2 * np.abs(fixed.input_offset))))
        taken = _product(made.V, layer.V, below / unit, reach, unit) + _norm(layer.V) * entering
        projected = np.abs(layer.V) @ reach
    if made.b is not None and layer.b is not None:
        taken += 0.5 * unit * n**0.5
        projected = projected + np.abs(layer.b)
        saturates = (np.abs(layer.b) > REACH * unit).any()
    else:
        saturates = np.bool_(False)
    inside = np.abs(W).sum(1) * largest
    saturates = saturates or (inside > REACH * unit).any() or (projected > REACH * unit).any()
    z = projected if layer.linear else projected + inside
    added = _nonlinearity(made, z, unit)
    moved = carried + slope * taken if layer.linear else slope * (carried + taken)
    each = np.inf if saturates else moved + added + 0.5 * made.scale * n**0.5
    rho = _norm(W) * (1.0 if layer.linear else slope)
    kappa = slope * _norm(layer.V) if k else 0.0
    return Disturbance(0.5 * made.scale * n**0.5, rho, kappa, float(each) * _OUTWARD)


def _input_scale(fixed: FixedNetwork) -> float:
    """Return the value of one unit of the first layer's inputs."""
    raw = fixed.network.input_scale
    return float((np.ones(1) if raw is None else raw)[0] / fixed.input_scale[0])


def _carried(made: FixedLayer, W: Array) -> float:
    """Return the largest error of W h in integers, for the same state."""
    layer, n, largest = made.layer, made.layer.size, made.scale * LARGEST
    if made.W is not None:
        unit = made.scale / (1 << PLACES)
        return _product(made.W, W, made.scale / unit, np.full(n, largest), unit)
    total, grown = 0.0, largest * n**0.5
    if made.transform is not None and layer.transform is not None:  # exact sums times a rounded factor
        unit = made.scale / (1 << PLACES)
        factor = float(made.transform.m[0]) * 2.0**-made.transform.shift * 2.0**-PLACES
        return abs(factor / layer.transform.scale - 1) * _norm(W) * grown + 0.5 * unit * n**0.5
    if made.base is not None and layer.base is not None:
        moved = sum(
            np.abs(q * 2.0**-made.base.places - exact)
            for q, exact in ((made.base.c, layer.base.c), (made.base.s, layer.base.s))
        )
        total += _length(moved * largest) + 0.5 * made.scale * n**0.5
    if made.U is not None and layer.U is not None:
        for j, u in enumerate(layer.U.T):
            q = made.U.q[:, j].astype(float)
            norm = float(q @ q)
            if norm == 0:
                total += 0.0 if not u.any() else 2 * grown
                continue
            # I - tau q q' with the quantized tau, against I - u u'; then the rounding of k, and of the state.
            tau = float(made.U.m[j]) * 2.0**-made.U.shift * 2.0**-made.U.places
            apart = _symmetric_norm(q, tau, u)
            total += apart * grown + made.scale * (0.5 * norm**0.5 * 2.0**-made.U.places + 0.5 * n**0.5)
    return total


def _symmetric_norm(q: Array, tau: float, u: Array) -> float:
    """Return ||tau q q' - u u'||, of rank 2."""
    R = np.linalg.qr(np.column_stack([q * tau**0.5, u]))[1]
    return _norm(R @ np.diag([1.0, -1.0]) @ R.T)


def _slope(made: FixedLayer) -> float:
    layer = made.layer
    if layer.phi.name == "leaky_relu":
        return max(1.0, abs(layer.phi.slope))
    if layer.phi.name == "prelu" and layer.parameter is not None:
        return max(1.0, float(np.abs(layer.parameter).max()))
    return 1.0


def _nonlinearity(made: FixedLayer, z: Array, unit: float) -> float:
    """Return the largest error of phi in integers, at arguments up to z (N,)."""
    layer, n = made.layer, made.layer.size
    name, z = layer.phi.name, 1.01 * z + 2 * made.scale
    if name in ("leaky_relu", "prelu"):
        return _length(2.0**-17 * z) + 0.5 * unit * n**0.5
    if name in _JUMPS:
        if layer.parameter is not None and (layer.parameter > 0).any():
            return np.inf
        return _length(3.5 * unit + 2.0**-22 * z)  # b, root, ratio and products; for modrelu only b
    if made.tanh is None:
        return 0.0
    c = np.ones(n) if layer.parameter is None else np.broadcast_to(np.abs(layer.parameter), (n,))
    into, out = made.tanh.into, made.tanh.out
    m = np.broadcast_to(into.m, (n,))
    curved = np.where(m == 0, 1, c)
    place = 0.5 + 0.5 * 2.0**-into.shift * np.minimum(z / unit, into.limit or np.inf)
    off = (_TABLE + place / (TANH_STEPS << TANH_PLACES)) / curved
    off = off + 0.5 * 2.0**-out.shift * (LARGEST << TANH_PLACES) * unit + 0.5 * unit
    linear = np.square(c) * (made.scale * LARGEST) ** 3 / 3  # tanh(cz)/c of a c that is taken for 0, inside the range
    return _length(np.where(m == 0, linear, off))
