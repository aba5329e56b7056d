r"""The parts of OrthogonalBlocks, pools and lags in integers, and their twin in Python; see fixed.py for the rest.

As int16, rotations with a radius r near 1 would not decay: a state below 1/(2 (1 - r)) units loses less than half a unit
per step, and rounding restores it. The state of rotations is therefore int32, h = H s / 2^10 with the scale s of an int16
state, c and s have 30 binary places, and R h is rounded once, to the nearest. Then, in the unit s/2^10 = 2^-25 of the
range:

    a step rounds each unit by at most 1/2, and the sum V x + b by at most 1/2: together at most sqrt(2) a pair
    rounding of c and s changes the radius and the angle by at most 2^-30.5 each
    |error_T| <= sqrt(2) T, and at most sqrt(2)/(1 - r) if r < 1; typically about sqrt(T)/2

This is below 2^-11 of the range in 10^4 steps for any inputs and any r <= 1. Rounding does not drift: of products with 30
places only one in 2^30 is a half, which rounds upwards. A state may be 8 times its calibrated range, and is clipped only
when it is read: exceeding the range for some steps does no harm later.

Features u are int32, with one unit for all blocks: 8 places finer than int16, like the sums of a layer, so adding a block
is exact. They may be 4 times their range. Their readers get int16, rounded or normalized,

    n = u / sqrt(mean(u^2) + eps) = sqrt(D) 32767^-1 v,    v = round(32767 c / sqrt(sum c^2 + D eps)),   c = u - mean(u)

which never leaves int16, since |c| <= sqrt(sum c^2). The mean is rounded to a unit; the sum of squares is exact, with 64
bits. After a shift to 2^60..2^62 its square root has 30 bits and its reciprocal 24: v is off by at most one.

sigmoid(z) = (1 + tanh(z/2))/2 by the table of tanh, off by at most 7e-5; gelu(z) = max(z, 0) - k(|z|) by a table of
k(a) = a Phi(-a) with as many entries, off by at most 1.1e-4: an eighth of the squared step 1/32 times the largest second
derivative, 0.8, and the rounding of the entries.

A mean of all steps is an exact sum with 64 bits, divided when it is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .blocks import FoldedBlock
from .fixed_arithmetic import (
    LARGEST,
    PLACES,
    TANH_END,
    TANH_PLACES,
    TANH_STEPS,
    TANH_TABLE,
    FixedMatrix,
    Multiplier,
    cut,
    ratio,
    root,
    scaled,
)
from .folded import Array, Base, swapped
from .reading import Reading

HELD_PLACES = 10  # binary places of an int32 state below int16
HELD = LARGEST << HELD_PLACES + 3  # the largest int32 state: 8 times the largest that is read
FEATURES = LARGEST << PLACES + 2  # the largest feature: 4 times the largest that is read
GATE_PLACES = (
    TANH_PLACES + TANH_STEPS.bit_length() - 2
)  # of z in sigmoid(z): a unit is a place in the table of tanh(z/2)
GELU_PLACES = TANH_PLACES + TANH_STEPS.bit_length() - 1  # binary places of z in gelu(z): a unit is a place in the table
SIGMOID_BITS = (LARGEST << TANH_PLACES).bit_length() + 1  # 2^26 stands for 65536/65534
SIGMOID_ONE = 2 * (LARGEST << TANH_PLACES)
TAIL_BITS = 17  # binary places of the entries of TAIL_TABLE
TAIL_TABLE = np.rint(
    [2.0**TAIL_BITS * a * math.erfc(a / math.sqrt(2)) / 2 for a in np.arange(TANH_STEPS * TANH_END + 1) / TANH_STEPS]
).astype(np.int64)
QUOTIENT_BITS = PLACES + 18  # bits of a mean
_MOST_FEATURES = 1 << 11  # their squares, of centered features of 26 bits, have a sum below 2^61
_LARGEST_EPS = 2.0**60
_LARGEST_GAIN = 3.0
_END = (TANH_STEPS * TANH_END << TANH_PLACES) - 1


def between_entries(table: Array, z: Array) -> Array:
    """Return the value of a table at the place |z|, with TANH_PLACES places more than its entries."""
    place = np.minimum(np.abs(z), _END)
    index, rest = place >> TANH_PLACES, place & ((1 << TANH_PLACES) - 1)
    return (table[index] << TANH_PLACES) + (table[index + 1] - table[index]) * rest


def sigmoid(z: Array) -> Array:
    """Return sigmoid(z / 2^GATE_PLACES) SIGMOID_ONE."""
    found = between_entries(TANH_TABLE, z)
    return SIGMOID_ONE // 2 + np.where(z < 0, -found, found)


def gelu(z: Array) -> Array:
    """Return gelu(z / 2^GELU_PLACES), in the same unit."""
    return np.maximum(z, 0) - scaled(between_entries(TAIL_TABLE, z), 1, TAIL_BITS + TANH_PLACES - GELU_PLACES)


def quotient(total: Array, count: int) -> Array:
    """Return round(total / count), halves away from 0."""
    found = (np.abs(total) + count // 2) // count
    return np.where(total < 0, -found, found)


@dataclass(frozen=True)
class FixedRotations:
    """c and s with `places` binary places, for an int32 state."""

    c: Array
    s: Array
    places: int

    @classmethod
    def of(cls, base: Base) -> FixedRotations:
        """Round c and s to int32."""
        gain, largest = (float(f(np.abs(base.c), np.abs(base.s)).max()) for f in (np.add, np.maximum))
        if gain > _LARGEST_GAIN:  # HELD times this gain and two sums of at most REACH are below 2^31
            raise ArgumentError(
                f"Expected rotations with |c| + |s| of at most {_LARGEST_GAIN:g} for integers, but got {gain:.3g}. Pass "
                f"numbers='float32'."
            )
        places = min(30, math.floor(math.log2((2**31 - 1) / max(largest, 1.0))))
        c, s = (np.rint(values * 2.0**places).astype(np.int64) for values in (base.c, base.s))
        return cls(c, s, places)

    def __call__(self, h: Array) -> Array:
        """Return c * h + s * swap(h) for rows h (..., N)."""
        return scaled(self.c * h + self.s * swapped(h), 1, self.places)


@dataclass(frozen=True)
class FixedNorm:
    """v = 32767 c / sqrt(sum c^2 + eps), c = u - mean, or u unless centered; mean = round((sum u >> down) m / 2^shift)."""

    centered: bool
    eps: int
    m: int
    shift: int
    down: int

    @classmethod
    def of(cls, block: FoldedBlock, size: int, unit: float) -> FixedNorm:
        """Return the normalization of features (D,) in this unit."""
        eps = size * block.eps / unit**2
        if size > _MOST_FEATURES or eps > _LARGEST_EPS:
            raise ArgumentError(
                f"Expected at most {_MOST_FEATURES} features for integers, and none far below the eps of the normalization, "
                f"but got {size} features up to {unit * FEATURES:.3g} and eps={block.eps:.3g}. Pass numbers='float32'."
            )
        down = max(0, (size - 1).bit_length() - 5)  # a sum of D features has 25 + log2(D) bits; 30 of them remain
        shift = 29 + (size - 1).bit_length() - down
        return cls(block.norm == "layer", max(1, round(eps)), round(2.0 ** (shift + down) / size), shift, down)

    def __call__(self, u: Array) -> Array:
        """Return v (..., D) from features u (..., D)."""
        c = u
        if self.centered:
            c = u - scaled(u.sum(-1, keepdims=True) >> self.down, self.m, self.shift)
        square = (c * c).sum(-1, keepdims=True) + self.eps
        places = np.ones_like(square)
        for by in (16, 8, 4, 2, 1):
            fits = square < 1 << (62 - 2 * by)
            square, places = np.where(fits, square << 2 * by, square), np.where(fits, places << by, places)
        m = ((ratio(np.full_like(square, 1 << 30), root(square)) * LARGEST) >> 9) * places
        return cut(scaled(c, m, 45))


@dataclass(frozen=True)
class FixedBlock:
    """The parts of a block next to its recurrence, in the unit of features.

    Attributes:
        block: The block before rounding. norm: None if its recurrence reads the features without normalization.
        A, a: Weights of the gated value, or of the argument of gelu. G, g: Weights of the gate.
        gelu: Conversion from gelu to features, or to the int16 of hidden units.
        C, c: Weights of "mlp". S: Weights of the residual connection of the first block.
    """

    block: FoldedBlock
    norm: FixedNorm | None
    A: FixedMatrix
    a: Array | None
    G: FixedMatrix | None = None
    g: Array | None = None
    gelu: Multiplier | None = None
    C: FixedMatrix | None = None
    c: Array | None = None
    S: FixedMatrix | None = None

    def reads(self, u: Array) -> Array:
        """Return the int16 input of the recurrence from features (..., D)."""
        return cut(scaled(u, 1, PLACES)) if self.norm is None else self.norm(u)

    def out(self, u: Array | None, x: Array, h: Array, tokens: int | None) -> Array:
        """Return features (..., D).

        Args:
            u: Input features of the block; None for the first block.
            x: Inputs of the first block.
            h: State as int16, (..., N).
            tokens: Number of classes, if x is a class.
        """
        z = plus(self.A(h), self.a)
        if self.G is not None:
            z = scaled(z, sigmoid(plus(self.G(h), self.g)), SIGMOID_BITS)
        else:
            assert self.gelu is not None
            z = self.gelu(gelu(z))
            if self.C is not None:
                z = plus(self.C(cut(z)), self.c)
        if self.S is not None:
            z = z + (self.S(x) if tokens is None else column(self.S, x, tokens))
        elif self.block.residual:
            assert u is not None
            z = z + u
        return np.clip(z, -FEATURES, FEATURES)


@dataclass(frozen=True)
class FixedReading:
    """The input of the readout besides the last output. A: Weights of the lags, in the unit of outputs."""

    reading: Reading
    A: FixedMatrix | None = None

    def first(self) -> list[Array]:
        """Return the pool's memory before the first step."""
        return [values.astype(np.int64) for values in self.reading.first()]

    def after(self, output: Array, x: Array, seen: list[Array]) -> tuple[Array, list[Array]]:
        """Return the int16 input of the readout after a step, and the updated memory.

        Args:
            output: Output of the step, (..., F), in the unit of features.
            x: Inputs of the step, (..., I).
            seen: Memory before the step.
        """
        last = cut(scaled(output, 1, PLACES))
        if not self.reading.counts:
            return last, []
        count, total, largest, recent = seen
        first, count, total = not count, count + 1, total + output
        largest = last if first else np.maximum(largest, last)
        recent = self.reading.newer(x, recent, first)
        parts = [last] if self.reading.pool != "mean" else []
        if self.reading.has_mean:
            parts.append(cut(scaled(quotient(total, int(count)), 1, PLACES)))
        if self.reading.has_maximum:
            parts.append(largest)
        return np.concatenate(parts, -1), [count, total, largest, recent]


def plus(values: Array, added: Array | None) -> Array:
    """Return a sum whose second part may be missing."""
    return values if added is None else values + added


def column(matrix: FixedMatrix, token: Array, tokens: int) -> Array:
    """Return the column of a class (...,), in the unit of sums; zeros for an unknown class."""
    known = (token >= 0) & (token < tokens)
    return matrix.multiplier(np.where(known[..., None], matrix.q.T[np.where(known, token, 0)], 0))
