"""Sums, products and tables in integers, identical to those of the generated C; see fixed.py for their units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .bounds import ROOM
from .folded import Array

LARGEST = 32767
LARGEST_ROW = 65535
PLACES = 8
REACH = ROOM << (PLACES + 15)
TANH_STEPS, TANH_END, TANH_PLACES = 32, 8, 10  # entries per unit, where the table ends, bits between entries
TANH_TABLE = np.rint(LARGEST * np.tanh(np.arange(TANH_STEPS * TANH_END + 1) / TANH_STEPS)).astype(np.int64)
RATIO_BITS = 24
_PER_ROW = 16  # from this number of columns on, each row has a separate multiplier


def scaled(value: Array, m: Array | int, shift: int) -> Array:
    """Return round(value m / 2^shift), halves upwards."""
    return (value * m + (1 << (shift - 1))) >> shift


@dataclass(frozen=True)
class Multiplier:
    """factor = m / 2^shift for each row; sums beyond `limit` are clipped, None if no sum can exceed it."""

    m: Array
    shift: int
    limit: int | None

    @classmethod
    def of(cls, factors: Array, largest_sum: int, what: str) -> Multiplier:
        """Return multipliers with these factors for sums of at most this size."""
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
    """Return the value of one integer unit in each row of a matrix, (R,), or in all rows, (1,), if the matrix is narrow and
    its rows are related.
    """
    size = np.abs(A).max(1) / ((1 << (bits - 1)) - 1)
    if largest > 1:  # else a row is read at one place only
        size = np.maximum(size, np.abs(A).sum(1) / (LARGEST_ROW - A.shape[1] / 2))
    top = max(float(size.max()), 1e-30)
    return np.maximum(size, top * 2.0**-24) if by_row or A.shape[1] >= _PER_ROW else np.full(1, top)


@dataclass(frozen=True)
class FixedMatrix:
    """q: (R, K) integers, and the multiplier of their sums."""

    q: Array
    multiplier: Multiplier

    @classmethod
    def of(
        cls, A: Array, bits: int, factor: float, what: str, largest: int = LARGEST, by_row: bool = False
    ) -> FixedMatrix:
        """Round A (R, K); a sum becomes factor * (A x).

        largest: Largest integer that A is multiplied with. by_row: Same as for `row_units`.
        """
        size = row_units(A, bits, largest, by_row)
        q = np.rint(A / size[:, None]).astype(np.int64)
        sums = int((np.abs(q).sum(1) if largest > 1 else np.abs(q)).max()) * largest
        return cls(q, Multiplier.of(size * factor, sums, what))

    def __call__(self, x: Array) -> Array:
        """Return the product with rows x (..., K), in the unit of sums. float64 represents these sums exactly."""
        sums = x.astype(np.float64) @ self.q.T.astype(np.float64)
        return self.multiplier(sums.astype(np.int64))


def cut(h: Array) -> Array:
    """Return a state clipped to the range of int16 without -32768."""
    return np.clip(h, -LARGEST, LARGEST)


def root(square: Array) -> Array:
    """Return floor(sqrt(square)) of integers below 2^62."""
    root = np.floor(np.sqrt(square.astype(np.float64))).astype(np.int64)
    root -= root * root > square
    return root + ((root + 1) * (root + 1) <= square)


def ratio(part: Array, whole: Array) -> Array:
    """Return floor(part 2^24 / whole); 0 if whole is 0."""
    return np.where(whole > 0, (part << RATIO_BITS) // np.maximum(whole, 1), 0)
