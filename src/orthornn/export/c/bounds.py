"""Ranges of the inputs and states of a network, from a bound that holds for all inputs or measured on data.

The bound. With ||W||_2 = r (1 for an orthogonal W, times the gain), |phi(z)| <= L |z| + p for each unit, and ||V x + b||
<= a for every x in the range of the inputs, the norm of the state obeys

    B_0 = ||h_0||,    B_t = L (r B_{t-1} + a) + ||p||        (a linear transition: B_t = r B_{t-1} + L a + ||p||)

For an orthogonal W it grows by at most a per step, and for L r < 1 it has a limit. tanh bounds every unit by 1, and
tanh(cz)/c by 1/|c|, independently of the past. A unit is at most as large as the norm of its layer.

Reflections and rotations are applied to the int16 state in place, so its range includes every intermediate vector between
h and W h. If units are bounded one by one, these vectors may be sqrt(N) times as large.

For L r > 1 the bound grows like (L r)^T, although the state may not: ||W||_2 of a matrix that is not orthogonal is often
above 1 while its powers decay. `bits_lost` returns how many of the 15 bits of a state this costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..._checks import check_integer, check_number
from ..._masked import as_array
from ...errors import ArgumentError, ArgumentTypeError, NonFiniteError, ShapeError
from .folded import Array, FoldedLayer, FoldedNetwork, with_vectors

ROOM = 32  # pre-activations up to this many times the largest state are represented; see fixed.py
_SHRINKING = (
    "leaky_relu",
    "prelu",
    "modrelu",
    "complex_modrelu",
)  # their states may be far smaller than pre-activations
_SIMULATED = 500  # steps
_ROUNDING = 1e-5  # a product of reflections in float32 has ||W||_2 = 1 up to a few epsilon


@dataclass(frozen=True)
class Ranges:
    """Largest absolute values.

    Attributes:
        inputs: Inputs of the first layer, (I,).
        states: Units, one number per layer.
        source: Description of their origin, for the head of the generated files.
        between: Quantities that `FoldedNetwork.step` passes to `watch`, by name.
    """

    inputs: Array
    states: tuple[float, ...]
    source: str
    between: Mapping[str, float] = field(default_factory=dict)


def find_ranges(folded: FoldedNetwork, calibration: Any, input_range: Any, steps: int | None, margin: float) -> Ranges:
    """Return the ranges of inputs and states, on data or by the bound.

    Raises:
        ArgumentError, ArgumentTypeError, ShapeError, NonFiniteError: If the data or the bound do not fit the network.
    """
    if (calibration is None) == (input_range is None):
        raise ArgumentError(
            "Expected either calibration or input_range for integers. Pass typical inputs, or their lowest and "
            "highest value."
        )
    if calibration is None:
        if not isinstance(input_range, (tuple, list)) or len(input_range) != 2:
            raise ArgumentTypeError(f"Expected input_range to be a pair of numbers, but got {input_range!r}.")
        low, high = (check_number("input_range", value) for value in input_range)
        if folded.vectors is not None:
            raise ArgumentError(
                "Expected calibration for a network with vectors of series, since the number of the series is an input, but "
                "got input_range. Pass typical inputs, --calibration."
            )
        if low > high:
            raise ArgumentError(
                f"Expected input_range to be (lowest, highest), but got ({low:g}, {high:g}). Swap them."
            )
        return bounded(folded, low, high, None if steps is None else check_integer("steps", steps, 1, 10**7))
    if steps is not None:
        raise ArgumentError("Expected steps only with input_range, but got it with calibration. Leave it out.")
    found = [calibrated(folded, _checked(folded, x), margin) for x in _by_length(calibration)]
    if len(found) == 1:
        return found[0]
    states = tuple(max(of_layer) for of_layer in zip(*(ranges.states for ranges in found)))
    return Ranges(
        np.max([ranges.inputs for ranges in found], axis=0),
        states,
        f"the largest values on {len(calibration)} sequences of {len(found)} lengths, "
        f"{'all' if folded.blocks else 'states'} times {margin:g}",
        {name: max(ranges.between[name] for ranges in found) for name in found[0].between},
    )


def _checked(folded: FoldedNetwork, x: Array) -> Array:
    """Return calibration data (B, T, I), or tokens (B, T), with the steps in the order in which the network reads them."""
    dimensions = 2 if folded.tokens else 3
    x = x[None] if x.ndim == dimensions - 1 else x
    wide = folded.tokens or (x.ndim == dimensions and x.shape[-1] == folded.input_size)
    if x.ndim != dimensions or not wide or not x.size or x.dtype.kind not in ("iu" if folded.tokens else "iuf"):
        wanted = "(B, T) integers" if folded.tokens else f"(B, T, {folded.input_size}) numbers"
        raise ShapeError(f"Expected calibration to be {wanted}, but got {x.dtype} of shape {x.shape}.")
    if folded.tokens and not ((x >= 0) & (x < folded.input_size)).all():
        raise ArgumentError(f"Expected tokens in 0..{folded.input_size - 1}, but got {x.min()}..{x.max()}.")
    if not (np.abs(x) <= np.finfo(np.float32).max).all():
        raise NonFiniteError(
            "Expected calibration data within the range of float32, but got NaN, infinities or larger numbers. Leave them "
            "out."
        )
    return folded.ordered(x)


def _by_length(calibration: Any) -> list[Array]:
    """Return calibration data as arrays of sequences of one length each."""
    if isinstance(calibration, torch.Tensor):
        tensor = calibration.detach().cpu()
        return [(tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()]
    try:
        return [as_array(calibration)]
    except ValueError as error:
        try:
            sequences = [as_array(sequence) for sequence in calibration]
        except ValueError:
            raise ShapeError(
                "Expected calibration to hold sequences (T, I), but got rows of unequal lengths."
            ) from error
    alike: dict[tuple[int, ...], list[Array]] = {}
    for sequence in sequences:
        alike.setdefault(sequence.shape, []).append(sequence)
    return [np.stack(group) for group in alike.values()]


def bounded(network: FoldedNetwork, low: float, high: float, steps: int | None) -> Ranges:
    """Return the bound for raw inputs between low and high, for sequences of `steps` steps, or of any length.

    Raises:
        ArgumentError: If no bound holds for every length.
    """
    if network.blocks or network.H is not None:
        what = "OrthogonalBlocks" if network.blocks else "a perceptron as readout"
        raise ArgumentError(
            f"Expected calibration for {what}, whose bounds are too loose, but got input_range. Pass typical inputs, "
            f"--calibration."
        )
    ends = network.prepared(np.array([[low] * network.input_size, [high] * network.input_size], np.float64))
    inputs = np.abs(ends).max(0)
    entries = inputs
    states = []
    for k, layer in enumerate(network.layers):
        by_unit = np.abs(layer.V).max(1) if network.tokens and not k else np.abs(layer.V) @ entries
        reach = float(np.linalg.norm(by_unit + (0 if layer.b is None else np.abs(layer.b))))
        bound = _layer_bound(layer, reach, steps, k)
        entries = np.full(layer.size, bound)
        states.append(bound * _growth_on_the_way(layer))
    until = "sequences of any length" if steps is None else f"{steps} steps"
    source = f"the bound on the state for inputs from {low:g} to {high:g} and {until}"
    return Ranges(inputs, tuple(states), source)


def bits_lost(network: FoldedNetwork, low: float, high: float, steps: int | None, bound: Ranges) -> tuple[float, ...]:
    """Return for each layer how many of a state's 15 bits the bound leaves unused: log2 of its ratio to the range that
    calibration on inputs from the same interval measures.

    The inputs are random numbers and the ends of the interval, each held for 1, 4, 16, T/4 or T steps, including the highest
    value throughout: a constant input drives a state further than independent inputs. For longer sequences the measured
    state is extrapolated in proportion to the length, which is the fastest growth under an orthogonal W.

    Args:
        network: The network.
        low: Lowest raw input.
        high: Highest raw input.
        steps: Length of the longest sequence, or None for any.
        bound: Result of `bounded` for these arguments.
    """
    T, rng = min(steps or _SIMULATED, _SIMULATED), np.random.default_rng(0)
    rows = []
    for hold in sorted({min(hold, T) for hold in (1, 4, 16, -(-T // 4), T)}):
        shape = (-(-T // hold),) if network.tokens else (-(-T // hold), network.input_size)
        values = rng.integers(network.input_size, size=shape) if network.tokens else rng.uniform(low, high, shape)
        rows += [values.repeat(hold, 0)[:T]]
        if not network.tokens:
            rows += [np.where(rng.random(shape) < 0.5, low, high).repeat(hold, 0)[:T]]
    if not network.tokens:
        rows += [np.full((T, network.input_size), high)]
    found = calibrated(network, np.stack(rows), 1.25).states
    longer = 1.0 if steps is None else steps / T
    pairs = zip(bound.states, found)
    return tuple(math.log2(wide / (own * longer)) if own > 0 else 0.0 for wide, own in pairs)


def _growth_on_the_way(layer: FoldedLayer) -> float:
    """Return by which factor, at least 1, an entry between h and W h can exceed the bound of `_layer_bound`.

    If that bound limits the norm, no entry exceeds it. If it limits every unit, as for tanh, a product of reflections can
    concentrate the norm of all units in one, and a rotation that of two.
    """
    if layer.W is not None or layer.transform is not None or not _has_bounded_units(layer):
        return 1.0
    gathered = layer.size if layer.U is not None else min(layer.size, 2)
    return max(1.0, math.sqrt(gathered) * _norm(layer))


def _norm(layer: FoldedLayer) -> float:
    """Return ||W||_2."""
    radius = float(np.linalg.norm(layer.matrix(), 2))
    # Of reflections, rotations or additions, orthogonal but for rounding.
    product = layer.U is not None or layer.base is not None or layer.transform is not None
    return 1.0 if product and abs(radius - 1) < _ROUNDING else radius


def _has_bounded_units(layer: FoldedLayer) -> bool:
    """Return whether phi bounds every unit, independently of the past."""
    if layer.linear or layer.phi.name not in ("tanh", "scaled_tanh"):
        return False
    return layer.parameter is None or bool((layer.parameter != 0).all())


def _layer_bound(layer: FoldedLayer, reach: float, steps: int | None, index: int) -> float:
    parameter = layer.parameter
    if _has_bounded_units(layer):
        c = np.ones(1) if parameter is None else np.abs(parameter)
        return max(float((1 / c).max()), float(np.abs(layer.h0).max(initial=0)))
    slope, added = 1.0, 0.0
    if layer.phi.name == "leaky_relu":
        slope = max(1.0, layer.phi.slope)
    elif layer.phi.name == "prelu" and parameter is not None:
        slope = max(1.0, float(np.abs(parameter).max()))
    elif layer.phi.name in ("modrelu", "complex_modrelu") and parameter is not None:
        added = float(np.linalg.norm(np.maximum(parameter, 0)))
    radius = _norm(layer)
    grows = radius * (1.0 if layer.linear else slope)
    gains = slope * reach + added
    bound = float(np.linalg.norm(layer.h0))
    if grows < 1:
        return max(bound, gains / (1 - grows))
    if steps is None:
        raise ArgumentError(
            f"Expected steps, the length of the longest sequence, or data to calibrate on, but got neither. The state of "
            f"layer {index} ({layer.phi.name}, norm of W {radius:.4g}) is not bounded for sequences of any length."
        )
    for _ in range(steps):
        bound = grows * bound + gains
    if not np.isfinite(bound):
        raise ArgumentError(
            f"Expected a finite bound on the state over {steps} steps, but it overflows. Pass calibration= instead."
        )
    return bound


def calibrated(network: FoldedNetwork, x: Array, margin: float) -> Ranges:
    """Return the largest values on raw data (B, T, I), or tokens (B, T), those of states times a margin.

    The range of a state includes its intermediate vectors on the way to W h, which int16 must hold, too. If phi maps large
    pre-activations to small states, the range is at least a fraction of the pre-activation, which would otherwise be
    clipped.
    """
    x = np.asarray(x)
    states, count = network.first_states(), len(network.layers)
    largest = [float(np.abs(h).max(initial=0)) for h in states[:count]]
    between = [0.0] * len(largest)
    watched: dict[str, float] = {}

    def watch(name: str, values: Array) -> None:
        watched[name] = max(watched.get(name, 0.0), float(np.abs(values).max(initial=0)))

    now = [np.broadcast_to(h, (len(x), *h.shape)) if h.ndim else h for h in states]
    for t in range(x.shape[1]):
        for k, (layer, h) in enumerate(zip(network.layers, now)):
            for part in layer.on_the_way(h):
                between[k] = max(between[k], float(np.abs(part).max(initial=0)))
        before = now
        _, now = network.step(x[:, t], list(now), watch)
        read = x[:, t] if network.tokens else network.prepared(np.asarray(x[:, t], np.float64))
        read = with_vectors(network.vectors, read)[1]
        for k, (layer, h) in enumerate(zip(network.layers, before)):
            if layer.phi.name in _SHRINKING:
                a = layer.projected(read, network.tokens and not k)
                z = a if layer.linear else layer.carry(h) + a
                between[k] = max(between[k], float(np.abs(z).max(initial=0)) / ROOM)
            read = now[k]
        largest = [max(old, float(np.abs(h).max(initial=0))) for old, h in zip(largest, now)]
    if not np.isfinite([*largest, *between, *watched.values()]).all():
        raise ArgumentError(
            "Expected the state to stay finite on the calibration data, but it reached NaN or infinity. Check the data and "
            "the weights."
        )
    inputs = np.ones(network.input_size) if network.tokens else np.abs(network.prepared(x)).max((0, 1))
    if network.vectors is not None:  # they replace the number of a series
        inputs = np.concatenate([inputs[:-1], np.abs(network.vectors).max(0)])
    if network.blocks:  # the inputs are standardized columns without a largest value
        inputs = inputs * margin
    what = "all" if network.blocks else "states"
    source = f"the largest values on {len(x)} sequences of {x.shape[1]} steps, {what} times {margin:g}"
    limits = tuple(
        max(1.0 if layer.phi.name == "tanh" and not layer.linear else value * margin, way * margin)
        for layer, value, way in zip(network.layers, largest, between)
    )
    return Ranges(inputs, limits, source, {name: value * margin for name, value in watched.items()})
