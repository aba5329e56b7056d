r"""A network in integers, and its twin in NumPy, which computes the same bits as the generated C.

Numbers. A state h of a layer is int16, h = s q with the scale s = (largest value)/32767. Sums are int32 in the unit
u = s/256, eight binary places finer than the state: the parts of a pre-activation are rounded to 1/256 of the state's
resolution. A product of a matrix with a vector is an exact int32 sum of (int8 or int16) x int16, times a fixed-point
multiplier: round(sum m / 2^S), m an int32, the product an int64.

No sum overflows, for any input: the rows of a matrix are scaled so that sum |w| <= 65535, and 65535 x 32767 < 2^31.
This limits int16 weights of N units to about 16 - log2(N)/2 bits. In the unit u a sum is clipped to 2^28, which keeps
three of them and a bias below 2^30; a state is clipped to +-32767.

Reflections are integers of any scale: H = I - (2/|q|^2) q q' does not depend on the length of q. A product of rounded
reflections is therefore orthogonal up to the rounding of its factors 2/|q|^2, int32 numbers, and of the state after each
reflection.

The sums of a transform are exact: up to 2^16 numbers of an int16 state, with signs, fit in int32. One multiplier brings them
to the unit of sums.

tanh is a table of 257 int16 between 0 and 8, with linear interpolation; the modulus and the unit vector of a complex
unit are a square root and a division, bit by bit. A step executes the same instructions for all values, and so always
takes the same time.

The parts of OrthogonalBlocks, pools and lags are in fixed_blocks.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .blocks import FoldedBlock
from .bounds import Ranges
from .fixed_arithmetic import (
    LARGEST,
    LARGEST_ROW,
    PLACES,
    RATIO_BITS,
    REACH,
    TANH_END,
    TANH_PLACES,
    TANH_STEPS,
    TANH_TABLE,
    FixedMatrix,
    Multiplier,
    cut,
    ratio,
    root,
    row_units,
    scaled,
)
from .fixed_blocks import (
    GATE_PLACES,
    GELU_PLACES,
    HELD,
    HELD_PLACES,
    SIGMOID_BITS,
    SIGMOID_ONE,
    FixedBlock,
    FixedNorm,
    FixedReading,
    FixedRotations,
    column,
    gelu,
    plus,
)
from .folded import Array, Base, FoldedLayer, FoldedNetwork, swapped, with_vectors
from .reading import Reading

_LARGEST_SLOPE = 2.0
_UNLIKE_INPUTS, _UNLIKE_OUTPUTS = 2.0**10, 2.0**16  # largest over smallest: 5 bits of int16 and 11 of int32 remain


def column_units(U: Array, bits: int) -> Array:
    """Return the value of one unit in each reflector, a column of U."""
    size = np.maximum(np.abs(U).max(0) / ((1 << (bits - 1)) - 1), np.abs(U).sum(0) / (LARGEST_ROW - len(U) / 2))
    return np.where(size > 0, size, 1)


def rounded_rows(A: Array, bits: int, largest: int = LARGEST, by_row: bool = False) -> Array:
    """Return the matrix that the integers of a FixedMatrix represent."""
    size = row_units(A, bits, largest, by_row)[:, None]
    return np.rint(A / size) * size


def rounded_columns(U: Array, bits: int) -> Array:
    """Return the reflectors that the integers of FixedReflections represent."""
    size = column_units(U, bits)
    return np.rint(U / size) * size


@dataclass(frozen=True)
class FixedReflections:
    """q: (N, M). A reflection is h - round(q k / 2^places), k = round((q'h) m / 2^shift)."""

    q: Array
    m: Array
    shift: int
    places: int

    @classmethod
    def of(cls, U: Array, bits: int) -> FixedReflections:
        """Round reflectors (N, M), each with a separate scale."""
        q = np.rint(U / column_units(U, bits)).astype(np.int64)
        norm, row = (q * q).sum(0), np.abs(q).sum(0)
        tau = np.where(norm > 0, 2 / np.maximum(norm, 1), 0)
        reach = float((np.abs(q).max(0) * row * tau).max()) * LARGEST  # bounds |q_i k|
        places = min(14, math.floor(math.log2((2.0**31 - 2**15) / max(reach, 1.0))))
        if places < 2:
            raise ArgumentError(
                "Expected reflectors that integers can hold, but these are too long. Pass form='dense'."
            )
        factors = tau * 2.0**places
        shift = min(62, 29 - math.floor(math.log2(max(float(factors.max()), 2.0**-32))))
        return cls(q, np.rint(factors * 2.0**shift).astype(np.int64), shift, places)

    def __call__(self, h: Array) -> Array:
        """Return the product of reflections applied to rows h (..., N)."""
        for q, m in zip(self.q.T[::-1], self.m[::-1]):
            sums = (h.astype(np.float64) @ q.astype(np.float64)).astype(np.int64)
            k = scaled(sums, int(m), self.shift)
            h = cut(h - ((q * k[..., None] + (1 << (self.places - 1))) >> self.places))
        return h


@dataclass(frozen=True)
class FixedBase:
    """c and s with `places` binary places."""

    c: Array
    s: Array
    places: int

    @classmethod
    def of(cls, base: Base) -> FixedBase:
        """Round c and s to int16."""
        largest = max(float(np.abs(base.c).max()), float(np.abs(base.s).max()), 2.0**-15)
        # |c| + |s| is at most twice LARGEST: no sum overflows, not even with the half unit for rounding if it is below 2^17.
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
    """tanh(c z)/c: position in the table = z m_in, result = table m_out; m_in = 0 represents c = 0."""

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
    """A layer in integers.

    Attributes:
        layer: The layer before rounding. scale: Value of one unit of its int16 state.
        turns: Rotations whose state is int32, in the unit of sums; W, U and base are None then.
        transform: Multiplier of the sums of a transform.
        parameter: Parameter of phi, in the unit of sums, or in multiples of 2^-16 for slopes.
    """

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
    turns: FixedRotations | None = None
    transform: Multiplier | None = None

    def narrow(self, h: Array) -> Array:
        """Return a state as int16."""
        return h if self.turns is None else cut(scaled(h, 1, HELD_PLACES))

    def step(self, h: Array, taken: Array) -> Array:
        """Return the next state from a state (..., N) and V x in the unit of sums."""
        if self.turns is not None:
            return np.clip(self.turns(h) + plus(taken, self.b), -HELD, HELD)
        if self.base is not None:
            h = self.base(h)
        if self.U is not None:
            h = self.U(h)
        if self.transform is not None and self.layer.transform is not None:
            carried = self.transform(self.layer.transform.sums(h))
        else:
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
        r = root(first * first + second * second)
        size = np.maximum(r + p, 0)
        turned = [np.where(x < 0, -1, 1) * scaled(size, ratio(np.abs(x), r), RATIO_BITS) for x in (first, second)]
        return np.concatenate(turned, -1)


@dataclass(frozen=True)
class FixedNetwork:
    """A network in integers; see the module's docstring.

    Attributes:
        input_scale, input_offset: (I,), a raw input x becomes the integer round(x * input_scale + input_offset).
        output_scale: Value of one unit of the outputs.
        ranges: Ranges from which the scales follow. bits: Bits of a weight.
        blocks: The parts of OrthogonalBlocks next to each layer. reading: The readout's input besides the last output.
        H, e, gelu: A perceptron as readout; gelu converts to the int16 of its hidden units.
        vectors: Vectors of series, (S + 1, E).
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
    blocks: tuple[FixedBlock, ...] = ()
    reading: FixedReading = field(default_factory=lambda: FixedReading(Reading()))
    H: FixedMatrix | None = None
    e: Array | None = None
    gelu: Multiplier | None = None
    vectors: Array | None = None

    def quantize(self, x: Array) -> Array:
        """Return raw inputs (..., I) as integers, and tokens unchanged."""
        if self.network.tokens:
            return np.asarray(x, np.int64)
        scale, offset = self.input_scale.astype(np.float32), self.input_offset.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are clipped below, as in C
            found = np.asarray(x, np.float32) * scale + offset
        found = np.where(found > -LARGEST, np.minimum(found, np.float32(LARGEST)), np.float32(-LARGEST))
        half = np.where(found < 0, np.float32(-0.5), np.float32(0.5))
        return np.trunc(found + half).astype(np.int64)

    def first_states(self) -> list[Array]:
        """Return the state before the first step."""
        return [*(layer.h0 for layer in self.layers), *self.reading.first()]

    def step(self, x: Array, states: list[Array]) -> tuple[Array, list[Array]]:
        """Return y (..., O) and the next states from integers x (..., I), or tokens (...,)."""
        after: list[Array] = []
        given, x = with_vectors(self.vectors, x)
        out, read = x, x
        for k, (layer, h) in enumerate(zip(self.layers, states)):
            tokens = self.network.input_size if self.network.tokens and not k else None
            block = self.blocks[k] if self.blocks else None
            if block is not None and k:
                read = block.reads(out)
            taken = layer.V(read) if tokens is None else column(layer.V, read, tokens)
            h = layer.step(h, taken)
            after.append(h)
            read = layer.narrow(h)
            out = read << PLACES if block is None else block.out(out if k else None, x, read, tokens)
        pooled, seen = self.reading.after(out, given, states[len(self.layers) :])
        if self.Y is None:
            return out if self.blocks else read, [*after, *seen]
        if self.H is not None:
            assert self.gelu is not None
            pooled = cut(self.gelu(gelu(plus(self.H(pooled), self.e))))
        y = plus(self.Y(pooled), self.d)
        return y if self.reading.A is None else y + self.reading.A(seen[-1]), [*after, *seen]

    def run(self, x: Array) -> Array:
        """Return y (B, T, O), or (B, O) if the network is read after the last step, from raw x (B, T, I) or (B, T).

        If the network reads the steps in another order, they are permuted first.
        """
        q = self.quantize(self.network.ordered(np.asarray(x)))
        states = [np.broadcast_to(h, (len(q), *h.shape)) if h.ndim else h for h in self.first_states()]
        outputs = []
        for t in range(q.shape[1]):
            y, states = self.step(q[:, t], states)
            outputs.append(y)
        return outputs[-1] if self.network.last else np.stack(outputs, 1)


def quantize(network: FoldedNetwork, bits: int, ranges: Ranges) -> FixedNetwork:
    """Return a network in integers with weights of `bits` bits.

    Raises:
        ArgumentError: If a part does not fit into integers.
    """
    largest_input = float(np.max(ranges.inputs, initial=0))
    _check_alike("inputs", ranges.inputs, _UNLIKE_INPUTS, "Standardize them")
    x_scale = (max(largest_input, 1e-30) if largest_input > 0 else 1.0) / LARGEST
    layers: list[FixedLayer] = []
    blocks: list[FixedBlock] = []
    features = _scale_of(ranges.between.get("features", 0.0))  # as int16
    entering = x_scale
    for k, (layer, largest) in enumerate(zip(network.layers, ranges.states)):
        of_tokens = network.tokens and not k
        read = np.full(layer.V.shape[1], entering * LARGEST) if k else ranges.inputs
        norm = None
        if network.blocks and k:
            entering = features
            if network.blocks[k].norm != "none":
                size = layer.V.shape[1]
                norm = FixedNorm.of(network.blocks[k], size, features / (1 << PLACES))
                entering = math.sqrt(size) / LARGEST
            read = np.full(layer.V.shape[1], entering * LARGEST)
        scale = _scale_of(max(largest, float(np.abs(layer.h0).max(initial=0))))
        layers.append(
            _layer(layer, bits, scale, 1.0 if of_tokens else entering, read, of_tokens, k, bool(network.blocks))
        )
        entering = scale
        if network.blocks:
            hidden = _scale_of(ranges.between.get(f"hidden{k}", 0.0))
            blocks.append(_block(network.blocks[k], bits, norm, scale, x_scale, features, hidden, of_tokens, k))
    if blocks:
        entering = features
    made = _readout(network, bits, entering, x_scale, ranges)
    if network.Y is None and blocks:
        made["output_scale"] = features / (1 << PLACES)
    raw = np.ones(network.input_size) if network.input_scale is None else network.input_scale
    shift = np.zeros(network.input_size) if network.input_offset is None else network.input_offset
    raw, shift = raw / x_scale, shift / x_scale
    vectors = None
    if network.vectors is not None:
        if len(network.vectors) > LARGEST:
            raise ArgumentError(
                f"Expected at most {LARGEST - 1} series for integers, as the number of a series is an int16, but got "
                f"{len(network.vectors) - 1}. Pass numbers='float32'."
            )
        raw[-1], shift[-1] = 1.0, 0.0  # the number of the series
        vectors = np.rint(network.vectors / x_scale).astype(np.int64)
    steepest = max(float(np.abs(values).max()) for values in (raw, shift))
    if steepest > np.finfo(np.float32).max:
        raise ArgumentError(
            f"Expected ranges that integers can hold, but inputs would be scaled by {steepest:.3g}. Calibrate the network on "
            f"data."
        )
    return FixedNetwork(
        network=network,
        layers=tuple(layers),
        input_scale=raw,
        input_offset=shift,
        ranges=ranges,
        bits=bits,
        blocks=tuple(blocks),
        vectors=vectors,
        **made,
    )


def _scale_of(largest: float) -> float:
    """Return the value of one unit of an int16; an arbitrary one if the quantity is always 0 on the data."""
    return (largest if largest > 0 else 1.0) / LARGEST


def _layer(
    layer: FoldedLayer, bits: int, scale: float, entering: float, read: Array, of_tokens: bool, k: int, in_block: bool
) -> FixedLayer:
    """Return a layer in integers.

    Args:
        layer: The layer before rounding.
        bits: Bits of a weight.
        scale: Scale of its state as int16.
        entering: Scale of its input; 1 for tokens.
        read: Largest values of its input, (K,).
        of_tokens: Whether its input is a class.
        k: Index of the layer.
        in_block: Whether it is the recurrence of a block.
    """
    turns = FixedRotations.of(layer.base) if in_block and layer.form == "rotations" and layer.base is not None else None
    unit = scale / (1 << (PLACES if turns is None else HELD_PLACES))
    projected = np.abs(layer.V).max(1) if of_tokens else np.abs(layer.V) @ read
    return FixedLayer(
        layer=layer,
        scale=scale,
        W=None if layer.W is None else FixedMatrix.of(layer.W, bits, scale / unit, f"W of layer {k}"),
        U=None if layer.U is None else FixedReflections.of(layer.U, bits),
        base=None if layer.base is None or turns is not None else FixedBase.of(layer.base),
        V=FixedMatrix.of(layer.V, bits, entering / unit, f"V of layer {k}", 1 if of_tokens else LARGEST),
        b=None if layer.b is None else _bias(layer.b, projected, unit, f"layer {k}"),
        parameter=_parameter(layer, unit, k),
        tanh=_tanh(layer, unit),
        h0=cut(np.rint(layer.h0 / scale).astype(np.int64))
        if turns is None
        else np.rint(layer.h0 / unit).astype(np.int64),
        turns=turns,
        transform=_transform(layer, k),
    )


def _transform(layer: FoldedLayer, k: int) -> Multiplier | None:
    """Return the multiplier of the sums of a transform, which int32 must hold."""
    if layer.transform is None:
        return None
    if layer.transform.block > 1 << 16:
        raise ArgumentError(
            f"Expected Hadamard matrices of at most {1 << 16} units for integers, but layer {k} has "
            f"{layer.transform.block}. Pass numbers='float32'."
        )
    factor = np.array([layer.transform.scale * (1 << PLACES)])
    return Multiplier.of(factor, layer.transform.block * LARGEST, f"W of layer {k}")


def _block(
    block: FoldedBlock,
    bits: int,
    norm: FixedNorm | None,
    state: float,
    inputs: float,
    features: float,
    hidden: float,
    of_tokens: bool,
    k: int,
) -> FixedBlock:
    """Return the parts of a block. state, inputs, features, hidden: Value of one int16 unit of each."""
    unit, where = features / (1 << PLACES), f"block {k}"
    largest = np.full(block.A.shape[1], state * LARGEST)

    def matrix(A: Array, factor: float, name: str, most: int = LARGEST) -> FixedMatrix:
        return FixedMatrix.of(A, bits, factor, f"{name} of {where}", most, by_row=True)

    def bias(b: Array | None, A: Array, of: float) -> Array | None:
        return None if b is None else _bias(b, np.abs(A) @ largest, of, where)

    S = None
    if block.residual and block.S is not None:
        S = matrix(block.S, (1.0 if of_tokens else inputs) / unit, "S", 1 if of_tokens else LARGEST)
    if block.mixing == "glu":
        first, gates = np.split(block.A, 2)
        a, g = (None, None) if block.a is None else np.split(block.a, 2)
        value, gate = unit * SIGMOID_ONE / 2**SIGMOID_BITS, 2.0**-GATE_PLACES
        return FixedBlock(
            block=block,
            norm=norm,
            A=matrix(first, state / value, "A"),
            a=bias(a, first, value),
            G=matrix(gates, state / gate, "G"),
            g=None if g is None else _in_unit(g, gate),
            S=S,
        )
    z = 2.0**-GELU_PLACES
    C, c, into = None, None, unit
    if block.C is not None:
        C, into = matrix(block.C, hidden / unit, "C"), hidden
        projected = np.abs(block.C).sum(1) * hidden * LARGEST
        c = None if block.c is None else _bias(block.c, projected, unit, where)
    return FixedBlock(
        block=block,
        norm=norm,
        A=matrix(block.A, state / z, "A"),
        a=None if block.a is None else _in_unit(block.a, z),
        gelu=Multiplier.of(np.array([z / into]), 2**30, f"gelu of {where}"),
        C=C,
        c=c,
        S=S,
    )


def _readout(network: FoldedNetwork, bits: int, entering: float, inputs: float, ranges: Ranges) -> dict[str, Any]:
    """Return the fields of a FixedNetwork for the readout. entering, inputs: Value of one int16 unit of its inputs."""
    if network.Y is None:
        return {"Y": None, "d": None, "output_scale": entering}
    made: dict[str, Any] = {}
    if network.H is not None:
        z, read = 2.0**-GELU_PLACES, entering
        entering = _scale_of(ranges.between.get("hidden", 0.0))
        made["H"] = FixedMatrix.of(network.H, bits, read / z, "the readout", by_row=True)
        made["e"] = None if network.e is None else _in_unit(network.e, z)
        made["gelu"] = Multiplier.of(np.array([z / entering]), 2**30, "gelu of the readout")
    A = network.reading.A
    reach = np.abs(network.Y).sum(1) * entering * LARGEST + (0 if network.d is None else np.abs(network.d))
    reach = reach + (0 if A is None else np.abs(A).sum(1) * inputs * LARGEST)
    _check_alike("outputs", reach, _UNLIKE_OUTPUTS, "Train on targets in other units")
    scale = max(float(reach.max()), 1e-30) / (REACH // 2)
    made["Y"] = FixedMatrix.of(network.Y, bits, entering / scale, "the readout", by_row=True)
    made["d"] = None if network.d is None else np.rint(network.d / scale).astype(np.int64)
    lags = None if A is None else FixedMatrix.of(A, bits, inputs / scale, "the matrix of lags", by_row=True)
    return {**made, "reading": FixedReading(network.reading, lags), "output_scale": float(scale)}


def _check_alike(what: str, sizes: Array, most: float, advice: str) -> None:
    """Raise ArgumentError if the sizes are so different that the smallest would have no significant digits left."""
    there = sizes[sizes > 0]
    if there.size and there.max() > most * there.min():
        raise ArgumentError(
            f"Expected {what} of similar size, since integers share one scale, but got sizes from {there.min():.3g} to "
            f"{there.max():.3g}. {advice}, or pass numbers='float32'."
        )


def _bias(b: Array, projected: Array, unit: float, where: str) -> Array:
    """Return the bias in the unit of sums, clipped where it saturates a unit by itself.

    Raises:
        ArgumentError: If an entry would be clipped although an input, which is at most `projected`, may cancel it.
    """
    cancelled = (np.abs(b) > REACH * unit) & (projected > np.abs(b) / 2)
    if cancelled.any():
        raise ArgumentError(
            f"Expected biases that inputs cancel to be below {REACH * unit:.3g}, several times the calibrated range, but "
            f"{where} has {np.abs(b[cancelled]).max():.3g}. Center the inputs, or pass numbers='float32'."
        )
    return _in_unit(b, unit)


def _in_unit(values: Array, unit: float) -> Array:
    return np.clip(np.rint(values / unit), -REACH, REACH).astype(np.int64)


def _tanh(layer: FoldedLayer, unit: float) -> FixedTanh | None:
    if layer.phi.name == "tanh":
        return FixedTanh.of(np.ones(1), unit)
    if layer.phi.name == "scaled_tanh" and layer.parameter is not None:
        # While c z stays small, tanh(cz)/c is z, and its position in the table would have too few digits.
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
