"""Pieces that the Triton kernels are made of: activations, products, and the addresses of a state in two blocks.

A state is held as two blocks, units [0, N1) and [N1, N), each padded with zeros to a power of two; with N1 = ceil(N/2)
they are the halves that pairs and the base exchange, pair i being entry i of both, and an odd middle unit is the last
of the first block. Padding stays zero throughout: weights and parameters are zero there and phi(0) = 0.

A program works either on one sequence (VECTOR: blocks are columns (P, 1), products are sums of elementwise products
in the layout of the weights, so that nothing moves between threads but partial sums) or on a block of BB sequences
(blocks are (BB, P), products are tl.dot).

The codes of activations are those of orthornn.activations.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(z):
    """Return tanh by exp or, below 1/4, where that cancels, by the series to z^9 (the next term is below 1e-8 of the
    value).
    """
    magnitude = tl.abs(z)
    e = tl.exp(-2.0 * magnitude)
    square = z * z
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    value = tl.where(magnitude < 0.25, magnitude * series, (1.0 - e) / (1.0 + e))
    return tl.where(z < 0, -value, value)


@triton.jit
def atanh(t):
    """Return atanh for |t| < 1 by log, and below 1/4 by the series to t^13."""
    square = t * t
    series = 1 / 7 + square * (1 / 9 + square * (1 / 11 + square * (1 / 13)))
    series = 1.0 + square * (1 / 3 + square * (1 / 5 + square * series))
    return tl.where(tl.abs(t) < 0.25, t * series, 0.5 * tl.log((1.0 + t) / (1.0 - t)))


@triton.jit
def unit_phi(z, p, slope, CODE: tl.constexpr):
    """Return phi of one block, for activations that act on single units."""
    if CODE == 1:
        h = tanh(z)
    elif CODE == 2:
        c = tl.where(p == 0, 1.0, p)
        h = tl.where(p == 0, z, tanh(c * z) / c)
    elif CODE == 3:
        h = tl.where(z < 0, 0.0, z)
    elif CODE == 4:
        h = tl.where(z > 0, z, slope * z)
    elif CODE == 5:
        h = tl.where(z > 0, z, p * z)
    elif CODE == 6:
        shrunk = tl.abs(z) + p
        shrunk = tl.where(shrunk < 0, 0.0, shrunk)
        h = tl.where(z > 0, shrunk, tl.where(z < 0, -shrunk, z))
    else:
        h = z
    return h


@triton.jit
def modulus_and_scale(z1, z2, b):
    """Return r = |z| with 1 in place of 0; 1 + b/r where active, else 0, NaN for NaN; whether r > 0 and r + b > 0."""
    largest = tl.maximum(tl.abs(z1), tl.abs(z2))
    unit = tl.where((largest == 0) | (largest == float("inf")), 1.0, largest)
    a1, a2 = z1 / unit, z2 / unit
    at_zero = (z1 == 0) & (z2 == 0)
    r = tl.where(at_zero, 1.0, unit * tl.sqrt(a1 * a1 + a2 * a2))
    active = (at_zero == 0) & (r + b > 0)
    return r, tl.where(active, (r + b) / r, tl.where(r != r, r, 0.0)), active


@triton.jit
def phi(z1, z2, p1, p2, paired, slope, CODE: tl.constexpr):
    """Return phi of both blocks. paired: where the first block has a partner in the second."""
    if CODE == 7:
        _r, scale, _active = modulus_and_scale(z1, z2, p1)
        h1, h2 = scale * z1, scale * z2
    elif CODE == 8:
        keep = (z1 >= z2) | (paired == 0)
        h1, h2 = tl.where(keep, z1, z2), tl.where(keep, z2, z1)
    else:
        h1, h2 = unit_phi(z1, p1, slope, CODE), unit_phi(z2, p2, slope, CODE)
    return h1, h2


@triton.jit
def unit_backward(g, saved, p, slope, CODE: tl.constexpr):
    """Return dL/dz and dL/dp of one block from dL/dh; saved is h or z, as in orthornn.activations."""
    grad_p = tl.zeros_like(g)
    if CODE == 1:
        d = g * (1.0 - saved * saved)
    elif CODE == 2:
        t = p * saved
        slope_here = 1.0 - t * t
        saturated = tl.abs(t) >= 1.0
        c = tl.where(p == 0, 1.0, p)
        z = atanh(tl.where(saturated, 0.0, t)) / c
        square = t * t
        series = 2 / 35 + square * (2 / 63 + square * (2 / 99 + square * (2 / 143)))
        series = 2 / 3 + square * (2 / 15 + square * series)  # where the difference cancels
        grad_p = g * tl.where(tl.abs(t) < 0.25, -t * saved * saved * series, (z * slope_here - saved) / c)
        d = g * slope_here
    elif CODE == 3:
        d = tl.where(saved <= 0, 0.0, g)
    elif CODE == 4:
        d = tl.where(saved > 0, g, slope * g)
    elif CODE == 5:
        d = tl.where(saved > 0, g, p * g)
        grad_p = tl.where(saved > 0, 0.0, g * saved)
    elif CODE == 6:
        d = tl.where(saved != 0, g, 0.0)
        grad_p = tl.where(saved > 0, g, tl.where(saved < 0, -g, 0.0))
    else:
        d = g
    return d, grad_p


@triton.jit
def phi_backward(g1, g2, saved1, saved2, p1, p2, paired, slope, CODE: tl.constexpr):
    """Return dL/dz of both blocks, dL/dp of both (for pairs: all in the first)."""
    if CODE == 7:
        r, scale, active = modulus_and_scale(saved1, saved2, p1)
        unit1, unit2 = saved1 / r, saved2 / r
        idle = tl.where(r == r, 0.0, r)
        along = tl.where(active, unit1 * g1 + unit2 * g2, idle)
        shrink = p1 * along / r
        d1 = tl.where(active, scale * g1 - shrink * unit1, idle)
        d2 = tl.where(active, scale * g2 - shrink * unit2, idle)
        by1, by2 = along, tl.zeros_like(g2)
    elif CODE == 8:
        keep = (saved1 >= saved2) | (paired == 0)
        d1, d2 = tl.where(keep, g1, g2), tl.where(keep, g2, g1)
        by1, by2 = tl.zeros_like(g1), tl.zeros_like(g2)
    else:
        d1, by1 = unit_backward(g1, saved1, p1, slope, CODE)
        d2, by2 = unit_backward(g2, saved2, p2, slope, CODE)
    return d1, d2, by1, by2


@triton.jit
def units(P: tl.constexpr, VECTOR: tl.constexpr):
    """Return 0 ... P-1 along the axis of a block's units."""
    u = tl.arange(0, P)
    return u[:, None] if VECTOR else u[None, :]


@triton.jit
def sequences(BB: tl.constexpr, VECTOR: tl.constexpr):
    """Return the numbers of this program's sequences, along the other axis."""
    first = tl.program_id(0)
    return first + tl.arange(0, 1)[None, :] if VECTOR else first * BB + tl.arange(0, BB)[:, None]


@triton.jit
def rows_of(t, b, batch, offsets, PACKED: tl.constexpr):
    """Return the rows of sequences b at step t, int64."""
    if PACKED:
        row = tl.load(offsets + t) + b
    else:
        row = (tl.full([1, 1], 0, tl.int64) + t) * batch + b
    return row.to(tl.int64)


@triton.jit
def program(steps, batch, lengths, PACKED: tl.constexpr, VECTOR: tl.constexpr, BB: tl.constexpr):
    """Return this program's sequences, which of them exist, the steps of each, and those of the longest."""
    b = sequences(BB, VECTOR)
    is_sequence = b < batch
    if PACKED:
        ends = tl.load(lengths + b, mask=is_sequence, other=0)
        longest = tl.load(lengths + tl.program_id(0) * BB)
    else:
        ends = tl.where(is_sequence, steps, 0)
        longest = steps + 0
    return b, is_sequence, ends, longest


@triton.jit
def first_carry(grad, b, n, n1, u1, u2, is_sequence, LAST: tl.constexpr, VECTOR: tl.constexpr):
    """Return dL/dh after the last step: given with LAST, else zero."""
    if LAST:
        g1, g2 = load_blocks(grad, b.to(tl.int64), n, n1, u1, u2, is_sequence)
    else:
        zero = tl.zeros_like(b).to(tl.float32)
        g1, g2 = zero + tl.zeros_like(u1).to(tl.float32), zero + tl.zeros_like(u2).to(tl.float32)
    return g1, g2


@triton.jit
def clipped(d, clip):
    """Return d in [-clip, clip]; NaN stays, which tl.clamp does not promise."""
    return tl.where(d > clip, clip, tl.where(d < -clip, -clip, d))


@triton.jit
def through_phi(
    carry1, carry2, k1, k2, p1, p2, paired, active, sum1, sum2, slope, clip,
    CODE: tl.constexpr, SUMMED: tl.constexpr, CLIP: tl.constexpr,
):  # fmt: skip
    """Return delta from dL/dh of both blocks, and the parameter's gradient summed up so far."""
    d1, d2, q1, q2 = phi_backward(carry1, carry2, k1, k2, p1, p2, paired, slope, CODE)
    if SUMMED:
        sum1, sum2 = sum1 + tl.where(active, q1, 0.0), sum2 + tl.where(active, q2, 0.0)
    if CLIP:
        d1, d2 = clipped(d1, clip), clipped(d2, clip)
    return d1, d2, sum1, sum2


@triton.jit
def store_sums(grad_parameter, b, n, n1, half, u1, u2, is_sequence, sum1, sum2, UNIT: tl.constexpr, PAIR: tl.constexpr):
    """Store the parameter's gradient, one row per sequence."""
    if UNIT:
        store_blocks(grad_parameter, b.to(tl.int64), n, n1, u1, u2, is_sequence, sum1, sum2)
    if PAIR:
        tl.store(grad_parameter + b.to(tl.int64) * half + u1, sum1, mask=is_sequence & (u1 < half))


@triton.jit
def load_blocks(rows, row, n, n1, u1, u2, valid):
    """Load both blocks of the given rows of a (R, N) tensor in float32, zero where not valid."""
    start = rows + row * n
    a1 = tl.load(start + u1, mask=valid & (u1 < n1), other=0.0).to(tl.float32)
    a2 = tl.load(start + n1 + u2, mask=valid & (u2 < n - n1), other=0.0).to(tl.float32)
    return a1, a2


@triton.jit
def store_blocks(rows, row, n, n1, u1, u2, valid, a1, a2):
    """Store both blocks, the converse of load_blocks, rounded to the tensor's dtype; padding is not written."""
    start = rows + row * n
    stored = rows.dtype.element_ty
    tl.store(start + u1, a1.to(stored), mask=valid & (u1 < n1))
    tl.store(start + n1 + u2, a2.to(stored), mask=valid & (u2 < n - n1))


@triton.jit
def load_vector(vector, n, n1, u1, u2):
    """Load both blocks of a vector (N,)."""
    a1 = tl.load(vector + u1, mask=u1 < n1, other=0.0).to(tl.float32)
    a2 = tl.load(vector + n1 + u2, mask=u2 < n - n1, other=0.0).to(tl.float32)
    return a1, a2


@triton.jit
def load_parameter(parameter, n, n1, half, u1, u2, UNIT: tl.constexpr, PAIR: tl.constexpr):
    """Load the activation's vector on both blocks; one per pair is on the first; 0 where there is none."""
    if UNIT:
        p1, p2 = load_vector(parameter, n, n1, u1, u2)
    elif PAIR:
        p1, p2 = tl.load(parameter + u1, mask=u1 < half, other=0.0).to(tl.float32), 0.0
    else:
        p1, p2 = 0.0, 0.0
    return p1, p2


@triton.jit
def load_tile(matrix, rows, columns, row_count, column_count, row_stride, column_stride):
    """Load a tile of a matrix from its row and column numbers, zero outside."""
    inside = (rows[:, None] < row_count) & (columns[None, :] < column_count)
    return tl.load(
        matrix + rows[:, None].to(tl.int64) * row_stride + columns[None, :] * column_stride, mask=inside, other=0.0
    ).to(tl.float32)
