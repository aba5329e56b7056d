r"""A network in integers, and its twin in Python: the same bits as the generated C, by NumPy.

Numbers. A state h of a layer is int16, h = s q with the scale s = (largest value)/32767. Sums are int32 in the unit
u = s/256: eight binary places below the state, so that the parts of a pre-activation are rounded to 1/256 of what the
state resolves. A product of a matrix with a vector is an exact int32 sum of (int8 or int16) x int16, times a
fixed-point
multiplier: round(sum m / 2^S), m an int32, the product an int64.

No sum overflows, for any input: the rows of a matrix are scaled so that sum |w| <= 65535, and 65535 x 32767 < 2^31.
This limits int16 weights of N units to about 16 - log2(N)/2 bits. What a sum becomes in the unit u is limited to 2^28,
so that three of them and a bias stay below 2^30; a state is limited to +-32767.

Reflections are integers of any scale: H = I - (2/|q|^2) q q' does not depend on the length of q. So a product of
rounded reflections is as orthogonal as its factors 2/|q|^2, int32 numbers, and the rounding of the state after each
reflection.

tanh is a table of 257 int16 between 0 and 8, with linear interpolation; the modulus and the unit vector of a complex
unit are a square root and a division, bit by bit. No instruction is skipped for any value, so a step takes the same
time always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .bounds import ROOM, Ranges
from .folded import Array, Base, FoldedLayer, FoldedNetwork, swapped

LARGEST = 32767
LARGEST_ROW = 65535
PLACES = 8
REACH = ROOM << (PLACES + 15)
TANH_STEPS, TANH_END, TANH_PLACES = 32, 8, 10  # entries per unit, where the table ends, bits between entries
TANH_TABLE = np.rint(LARGEST * np.tanh(np.arange(TANH_STEPS * TANH_END + 1) / TANH_STEPS)).astype(np.int64)
RATIO_BITS = 24
_PER_ROW = 16  # columns from which on each row has a multiplier of its own
_LARGEST_SLOPE = 2.0
_UNLIKE_INPUTS, _UNLIKE_OUTPUTS = 2.0**10, 2.0**16  # largest over smallest: 5 bits of int16 and 11 of int32 are left


def scaled(value: Array, m: Array | int, shift: int) -> Array:
    """Return round(value m / 2^shift), halves upwards."""
    return (value * m + (1 << (shift - 1))) >> shift


@dataclass(frozen=True)
class Multiplier:
    """factor = m / 2^shift, by rows; sums beyond `limit` are cut, None where none can be."""

    m: Array
    shift: int
    limit: int | None

    @classmethod
    def of(cls, factors: Array, largest_sum: int, what: str) -> Multiplier:
        """Return multipliers of these factors for sums of at most this size."""
        top = float(factors.max())
        shift = min(62, 29 - math.floor(math.log2(top)))
        if shift < 1:
            raise ArgumentError(
                f"Expected ranges that integers can hold, but got a factor of {top:.3g} in {what}. "
                f"Calibrate the network on data."
            )
        limit = math.floor(REACH / top)
        return cls(np.rint(factors * 2.0**shift).astype(np.int64), shift, limit if limit < largest_sum else None)

    def __call__(self, sums: Array) -> Array:
        """Return sums (..., R) times the factors."""
        if self.limit is not None:
            sums = np.clip(sums, -self.limit, self.limit)
        return scaled(sums, self.m, self.shift)


def row_units(A: Array, bits: int, largest: int = LARGEST, by_row: bool = False) -> Array:
    """Return what 1 stands for in each row of a matrix of integers, (R,), or (1,) for all rows of a narrow one, unless rows
    have nothing to do with each other.
    """
    size = np.abs(A).max(1) / ((1 << (bits - 1)) - 1)
    if largest > 1:  # else a row is read at one place only
        size = np.maximum(size, np.abs(A).sum(1) / (LARGEST_ROW - A.shape[1] / 2))
    top = max(float(size.max()), 1e-30)
    return np.maximum(size, top * 2.0**-24) if by_row or A.shape[1] >= _PER_ROW else np.full(1, top)


def column_units(U: Array, bits: int) -> Array:
    """Return what 1 stands for in each reflector, a column of U."""
    size = np.maximum(np.abs(U).max(0) / ((1 << (bits - 1)) - 1), np.abs(U).sum(0) / (LARGEST_ROW - len(U) / 2))
    return np.where(size > 0, size, 1)


def rounded_rows(A: Array, bits: int, largest: int = LARGEST, by_row: bool = False) -> Array:
    """Return the matrix whose numbers the integers of a FixedMatrix stand for."""
    size = row_units(A, bits, largest, by_row)[:, None]
    return np.rint(A / size) * size


def rounded_columns(U: Array, bits: int) -> Array:
    """Return the reflectors whose directions the integers of FixedReflections have."""
    size = column_units(U, bits)
    return np.rint(U / size) * size


@dataclass(frozen=True)
class FixedMatrix:
    """q: (R, K) integers, and what their sums are multiplied by."""

    q: Array
    multiplier: Multiplier

    @classmethod
    def of(
        cls, A: Array, bits: int, factor: float, what: str, largest: int = LARGEST, by_row: bool = False
    ) -> FixedMatrix:
        """Round A (R, K); a sum becomes factor * (A x). largest: of the integers that it is multiplied with. by_row: as in
        `row_units`.
        """
        size = row_units(A, bits, largest, by_row)
        q = np.rint(A / size[:, None]).astype(np.int64)
        sums = int((np.abs(q).sum(1) if largest > 1 else np.abs(q)).max()) * largest
        return cls(q, Multiplier.of(size * factor, sums, what))

    def __call__(self, x: Array) -> Array:
        """Return the product with rows x (..., K), in the unit of sums. Float64 holds these sums exactly."""
        sums = x.astype(np.float64) @ self.q.T.astype(np.float64)
        return self.multiplier(sums.astype(np.int64))


@dataclass(frozen=True)
class FixedReflections:
    """q: (N, M). A reflection is h - round(q k / 2^places), k = round((q'h) m / 2^shift)."""

    q: Array
    m: Array
    shift: int
    places: int

    @classmethod
    def of(cls, U: Array, bits: int) -> FixedReflections:
        """Round reflectors (N, M), each at its own scale."""
        q = np.rint(U / column_units(U, bits)).astype(np.int64)
        norm, row = (q * q).sum(0), np.abs(q).sum(0)
        tau = np.where(norm > 0, 2 / np.maximum(norm, 1), 0)
        reach = float((np.abs(q).max(0) * row * tau).max()) * LARGEST  # of |q_i k|
        places = min(14, math.floor(math.log2((2.0**31 - 2**15) / max(reach, 1.0))))
        if places < 2:
            raise ArgumentError("Expected reflectors that integers can hold; these are too long. Pass form='dense'.")
        factors = tau * 2.0**places
        shift = min(62, 29 - math.floor(math.log2(max(float(factors.max()), 2.0**-32))))
        return cls(q, np.rint(factors * 2.0**shift).astype(np.int64), shift, places)

    def __call__(self, h: Array) -> Array:
        """Return the product applied to rows h (..., N)."""
        for q, m in zip(self.q.T[::-1], self.m[::-1]):
            sums = (h.astype(np.float64) @ q.astype(np.float64)).astype(np.int64)
            k = scaled(sums, int(m), self.shift)
            h = cut(h - ((q * k[..., None] + (1 << (self.places - 1))) >> self.places))
        return h


@dataclass(frozen=True)
class FixedBase:
    """c and s with so many binary places."""

    c: Array
    s: Array
    places: int

    @classmethod
    def of(cls, base: Base) -> FixedBase:
        """Round c and s to int16."""
        largest = max(float(np.abs(base.c).max()), float(np.abs(base.s).max()), 2.0**-15)
        # |c| + |s| is at most twice LARGEST: no sum overflows, with half a unit to round it as long as that is below 2^17.
        places = min(17, math.floor(math.log2(LARGEST / largest)))
        if places < 1:
            raise ArgumentError(f"Expected a gain that int16 can hold, but got {largest:.3g}. Pass numbers='float32'.")
        c, s = (np.rint(values * 2.0**places).astype(np.int64) for values in (base.c, base.s))
        return cls(c, s, places)

    def __call__(self, h: Array) -> Array:
        """Return c * h + s * swap(h) for rows h (..., N)."""
        return cut(scaled(self.c * h + self.s * swapped(h), 1, self.places))


@dataclass(frozen=True)
class FixedTanh:
    """tanh(c z)/c: position in the table = z m_in, result = table m_out; m_in = 0 stands for c = 0."""

    into: Multiplier
    out: Multiplier

    @classmethod
    def of(cls, c: Array, unit: float) -> FixedTanh:
        """Return c: (1,) or (N,)."""
        c = np.abs(c)
        per_unit = TANH_STEPS << TANH_PLACES
        into = c * unit * per_unit
        out = 1 / (np.where(c > 0, c, 1) * LARGEST * (1 << TANH_PLACES) * unit)
        first, second = Multiplier.of(np.maximum(into, 1e-12), 1 << 30, "tanh"), Multiplier.of(out, 1, "tanh")
        return cls(
            Multiplier(
                np.where(c > 0, first.m, 0),
                first.shift,
                math.floor(min(1.0, 1 / max(float(into.max()), 1e-12)) * 2**30),
            ),
            second,
        )

    def __call__(self, z: Array) -> Array:
        """Return tanh(c z)/c for rows z (..., N)."""
        place = np.minimum(self.into(np.abs(z)), (TANH_STEPS * TANH_END << TANH_PLACES) - 1)
        index, rest = place >> TANH_PLACES, place & ((1 << TANH_PLACES) - 1)
        found = (TANH_TABLE[index] << TANH_PLACES) + (TANH_TABLE[index + 1] - TANH_TABLE[index]) * rest
        found = scaled(found, self.out.m, self.out.shift)
        return np.where(self.into.m == 0, z, np.where(z < 0, -found, found))


@dataclass(frozen=True)
class FixedLayer:
    """A layer in integers. parameter: of phi, in the unit of sums, or as multiples of 2^-16 for slopes."""

    layer: FoldedLayer
    scale: float
    W: FixedMatrix | None
    U: FixedReflections | None
    base: FixedBase | None
    V: FixedMatrix
    b: Array | None
    parameter: Array | None
    tanh: FixedTanh | None
    h0: Array

    def step(self, h: Array, taken: Array) -> Array:
        """Return the next state from a state (..., N) and V x in the unit of sums."""
        if self.base is not None:
            h = self.base(h)
        if self.U is not None:
            h = self.U(h)
        carried = h << PLACES if self.W is None else self.W(h)
        z = taken if self.b is None else taken + self.b
        value = carried + self.phi(z) if self.layer.linear else self.phi(carried + z)
        return cut(scaled(value, 1, PLACES))

    def phi(self, z: Array) -> Array:
        """Return phi(z) in the unit of sums."""
        name, p = self.layer.phi.name, self.parameter
        half = z.shape[-1] // 2
        gap = z.shape[-1] - half
        if name == "identity":
            return z
        if name == "relu":
            return np.maximum(z, 0)
        if self.tanh is not None:
            return self.tanh(z)
        if name in ("leaky_relu", "prelu"):
            return np.where(z > 0, z, scaled(z, p, 16))  # type: ignore[arg-type]
        if name == "modrelu":
            size = np.maximum(np.abs(z) + p, 0)
            return np.where(z == 0, 0, np.where(z < 0, -size, size))
        first, alone, second = z[..., :half], z[..., half:gap], z[..., gap:]
        if name == "oplu":
            return np.concatenate([np.maximum(first, second), alone, np.minimum(first, second)], -1)
        r = _root(first * first + second * second)
        size = np.maximum(r + p, 0)
        turned = [np.where(x < 0, -1, 1) * scaled(size, _ratio(np.abs(x), r), RATIO_BITS) for x in (first, second)]
        return np.concatenate(turned, -1)


@dataclass(frozen=True)
class FixedNetwork:
    """A network in integers; see the module's docstring.

    Attributes:
        input_scale, input_offset: (I,), a raw input x is the integer round(x * input_scale + input_offset).
        output_scale: An output y is y * output_scale as a number.
        ranges: What the scales come from. bits: Of weights.
    """

    network: FoldedNetwork
    layers: tuple[FixedLayer, ...]
    Y: FixedMatrix | None
    d: Array | None
    input_scale: Array
    input_offset: Array
    output_scale: float
    ranges: Ranges
    bits: int

    def quantize(self, x: Array) -> Array:
        """Return raw inputs (..., I) as integers; tokens as they are."""
        if self.network.tokens:
            return np.asarray(x, np.int64)
        scale, offset = self.input_scale.astype(np.float32), self.input_offset.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # the C cuts infinities, and NaN, as what follows does
            found = np.asarray(x, np.float32) * scale + offset
        found = np.where(found > -LARGEST, np.minimum(found, np.float32(LARGEST)), np.float32(-LARGEST))
        half = np.where(found < 0, np.float32(-0.5), np.float32(0.5))
        return np.trunc(found + half).astype(np.int64)

    def first_states(self) -> list[Array]:
        """Return the state before the first step."""
        return [layer.h0 for layer in self.layers]

    def step(self, x: Array, states: list[Array]) -> tuple[Array, list[Array]]:
        """Return y (..., O) and the next states from integers x (..., I), or tokens (...,)."""
        after: list[Array] = []
        for k, (layer, h) in enumerate(zip(self.layers, states)):
            if k or not self.network.tokens:
                taken = layer.V(after[-1] if k else x)
            else:
                known = (x >= 0) & (x < self.network.input_size)
                taken = layer.V.multiplier(np.where(known[..., None], layer.V.q.T[np.where(known, x, 0)], 0))
            after.append(layer.step(h, taken))
        return self.read(after[-1]), after

    def read(self, h: Array) -> Array:
        """Return y from the state of the last layer."""
        if self.Y is None:
            return h
        y = self.Y(h)
        return y if self.d is None else y + self.d

    def run(self, x: Array) -> Array:
        """Return y (B, T, O), or (B, O) of a network that is read after the last step, from raw x (B, T, I) or (B, T).

        A network that reads the steps in an order of its own gets them in that order.
        """
        q = self.quantize(self.network.ordered(np.asarray(x)))
        states = [np.broadcast_to(h, (len(q), len(h))) for h in self.first_states()]
        outputs = []
        for t in range(q.shape[1]):
            y, states = self.step(q[:, t], states)
            outputs.append(y)
        return outputs[-1] if self.network.last else np.stack(outputs, 1)


def cut(h: Array) -> Array:
    """Return what int16 holds of a state, without its lowest number."""
    return np.clip(h, -LARGEST, LARGEST)


def _root(square: Array) -> Array:
    """Return floor(sqrt(square)) of integers below 2^62."""
    root = np.floor(np.sqrt(square.astype(np.float64))).astype(np.int64)
    root -= root * root > square
    return root + ((root + 1) * (root + 1) <= square)


def _ratio(part: Array, whole: Array) -> Array:
    """Return floor(part 2^24 / whole); 0 where whole is 0."""
    return np.where(whole > 0, (part << RATIO_BITS) // np.maximum(whole, 1), 0)


def quantize(network: FoldedNetwork, bits: int, ranges: Ranges) -> FixedNetwork:
    """Return a network in integers with weights of so many bits.

    Raises:
        ArgumentError: If some part of it does not fit into integers.
    """
    check_has_integers(network)
    largest_input = float(np.max(ranges.inputs, initial=0))
    _check_alike("inputs", ranges.inputs, _UNLIKE_INPUTS, "Standardize them")
    x_scale = (max(largest_input, 1e-30) if largest_input > 0 else 1.0) / LARGEST
    layers: list[FixedLayer] = []
    entering = x_scale
    for k, (layer, largest) in enumerate(zip(network.layers, ranges.states)):
        largest = max(largest, float(np.abs(layer.h0).max(initial=0)))
        scale = (largest if largest > 0 else 1.0) / LARGEST  # of a layer that is silent on the data, any
        unit = scale / (1 << PLACES)
        of_tokens = network.tokens and not k
        factor = (1.0 if of_tokens else entering) / unit
        read = np.full(layer.V.shape[1], entering * LARGEST) if k else ranges.inputs
        projected = np.abs(layer.V).max(1) if of_tokens else np.abs(layer.V) @ read
        layers.append(
            FixedLayer(
                layer=layer,
                scale=scale,
                W=None if layer.W is None else FixedMatrix.of(layer.W, bits, scale / unit, f"W of layer {k}"),
                U=None if layer.U is None else FixedReflections.of(layer.U, bits),
                base=None if layer.base is None else FixedBase.of(layer.base),
                V=FixedMatrix.of(layer.V, bits, factor, f"V of layer {k}", 1 if of_tokens else LARGEST),
                b=None if layer.b is None else _bias(layer.b, projected, unit, k),
                parameter=_parameter(layer, unit, k),
                tanh=_tanh(layer, unit),
                h0=cut(np.rint(layer.h0 / scale).astype(np.int64)),
            )
        )
        entering = scale
    Y, d, output_scale = None, None, entering
    if network.Y is not None:
        reach = np.abs(network.Y).sum(1) * entering * LARGEST + (0 if network.d is None else np.abs(network.d))
        _check_alike("outputs", reach, _UNLIKE_OUTPUTS, "Train on targets in other units")
        output_scale = max(float(reach.max()), 1e-30) / (REACH // 2)
        Y = FixedMatrix.of(network.Y, bits, entering / output_scale, "the readout", by_row=True)
        d = None if network.d is None else np.rint(network.d / output_scale).astype(np.int64)
    raw = np.ones(network.input_size) if network.input_scale is None else network.input_scale
    shift = np.zeros(network.input_size) if network.input_offset is None else network.input_offset
    raw, shift = raw / x_scale, shift / x_scale
    steepest = max(float(np.abs(values).max()) for values in (raw, shift))
    if steepest > np.finfo(np.float32).max:
        raise ArgumentError(
            f"Expected ranges that integers can hold, but inputs would be scaled by {steepest:.3g}. Calibrate the network on "
            f"data."
        )
    return FixedNetwork(network, tuple(layers), Y, d, raw, shift, float(output_scale), ranges, bits)


def check_has_integers(network: FoldedNetwork) -> None:
    """Raise ArgumentError for a network whose parts are written in float32 only."""
    reading = network.reading
    reasons = {
        "OrthogonalBlocks, whose normalization and gates are written in floating point only": bool(network.blocks),
        f"pool={reading.pool!r}": reading.pool != "last",
        "lags": reading.A is not None,
        "vectors of series": network.vectors is not None,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ArgumentError(
            f"Expected an OrthogonalRNN that is read at its last step for integers, but got {' and '.join(found)}. Pass "
            f"numbers='float32', --numbers float32."
        )
    if network.H is not None:
        raise ArgumentError("Expected a linear readout for integers, but got a perceptron. Pass numbers='float32'.")


def _check_alike(what: str, sizes: Array, most: float, advice: str) -> None:
    """Raise ArgumentError if the largest is so many times the smallest that this would have no digits left."""
    there = sizes[sizes > 0]
    if there.size and there.max() > most * there.min():
        raise ArgumentError(
            f"Expected {what} of about one size for integers, which share a scale, but got sizes from {there.min():.3g} to "
            f"{there.max():.3g}. {advice}, or pass numbers='float32'."
        )


def _bias(b: Array, projected: Array, unit: float, index: int) -> Array:
    """Return the bias in the unit of sums, cut where it saturates a unit by itself.

    Raises:
        ArgumentError: If it would be cut where an input, which is at most `projected`, may cancel it.
    """
    cancelled = (np.abs(b) > REACH * unit) & (projected > np.abs(b) / 2)
    if cancelled.any():
        raise ArgumentError(
            f"Expected biases within {ROOM} times the range of states where inputs cancel them, but layer "
            f"{index} has {np.abs(b[cancelled]).max():.3g} for states up to {unit * (1 << PLACES) * LARGEST:.3g}. Center the "
            f"inputs, or pass numbers='float32'."
        )
    return _in_unit(b, unit)


def _in_unit(values: Array, unit: float) -> Array:
    return np.clip(np.rint(values / unit), -REACH, REACH).astype(np.int64)


def _tanh(layer: FoldedLayer, unit: float) -> FixedTanh | None:
    if layer.phi.name == "tanh":
        return FixedTanh.of(np.ones(1), unit)
    if layer.phi.name == "scaled_tanh" and layer.parameter is not None:
        # Where c z stays small, tanh(cz)/c is z, and its place in the table would have too few digits.
        linear = np.square(layer.parameter * unit * (1 << PLACES) * LARGEST) < 3 * 2.0**-15
        return FixedTanh.of(np.where(linear, 0, layer.parameter), unit)
    return None


def _parameter(layer: FoldedLayer, unit: float, index: int) -> Array | None:
    if layer.phi.name in ("leaky_relu", "prelu"):
        slopes = np.array([layer.phi.slope]) if layer.parameter is None else layer.parameter
        if np.abs(slopes).max() > _LARGEST_SLOPE:
            raise ArgumentError(
                f"Expected slopes between -2 and 2 for integers, but layer {index} has {np.abs(slopes).max():.3g}. Pass "
                f"numbers='float32'."
            )
        return np.rint(slopes * 65536).astype(np.int64)
    if layer.parameter is None or layer.phi.name == "scaled_tanh":
        return None
    return _in_unit(layer.parameter, unit)
