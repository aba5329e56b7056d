"""The recurrence of rotations, parallel in time: pieces of the sequence at once, three launches of one kernel.

For a piece of L steps that starts from z, its last state is R^L z + e with e the last state from zero. So

    1  e of every piece, from zero                     (pieces in parallel)
    2  the states between pieces: the same recurrence over the pieces, with R^L in place of R and e in place of x
    3  every piece from its true start, written out    (pieces in parallel)

which reads the input twice and is exact: R^L is made in float64. Backwards the same with R' and time reversed.
Constant lengths only; float32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....compact_wy import apply_base_transpose, swap
from ....layout import SequenceLayout
from ...call import Call
from .launch import device_of

BLOCK = 128  # pairs of units a program
PIECE = 16  # steps of a piece, at least


@triton.jit
def scan_kernel(
    x,  # (T, B, N), read if GIVEN
    start,  # (P, B, N): the state before each piece, read if START
    states,  # (T, B, N), written if ALL
    ends,  # (P, B, N): the state after each piece, written if END
    turns,  # c, s and what rounding took from them, each for both halves: (8, N - N // 2)
    steps,
    batch,
    n,
    length,  # steps of a piece
    REVERSE: tl.constexpr,
    GIVEN: tl.constexpr,
    START: tl.constexpr,
    ALL: tl.constexpr,
    END: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Run one piece of one sequence for a block of pairs of units, step by step."""
    b, piece = tl.program_id(0), tl.program_id(1)  # the other axes of a grid have at most 65535 programs
    first = n - n // 2
    i = tl.program_id(2) * SIZE + tl.arange(0, SIZE)
    in0, in1 = i < first, i < n // 2
    c0, c1 = tl.load(turns + i, in0, 0.0), tl.load(turns + first + i, in0, 0.0)
    s0, s1 = tl.load(turns + 2 * first + i, in0, 0.0), tl.load(turns + 3 * first + i, in0, 0.0)
    d0, d1 = tl.load(turns + 4 * first + i, in0, 0.0), tl.load(turns + 5 * first + i, in0, 0.0)
    r0, r1 = tl.load(turns + 6 * first + i, in0, 0.0), tl.load(turns + 7 * first + i, in0, 0.0)
    at = (piece.to(tl.int64) * batch + b) * n
    if START:
        z0, z1 = tl.load(start + at + i, in0, 0.0), tl.load(start + at + first + i, in1, 0.0)
    else:
        z0, z1 = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    for k in range(length):
        t = piece * length + k
        units = tl.where(t < steps, n, 0)  # none after the last step
        here0, here1 = i < tl.minimum(first, units), i < tl.minimum(n // 2, units)
        if REVERSE:
            t = steps - 1 - t
        row = (t.to(tl.int64) * batch + b) * n
        # The low parts first, then products that are not rounded before they are added.
        y0 = tl.fma(c0, z0, tl.fma(s0, z1, d0 * z0 + r0 * z1))
        y1 = tl.fma(c1, z1, tl.fma(s1, z0, d1 * z1 + r1 * z0))
        if GIVEN:
            y0 += tl.load(x + row + i, here0, 0.0)
            y1 += tl.load(x + row + first + i, here1, 0.0)
        z0, z1 = tl.where(units > 0, y0, z0), tl.where(units > 0, y1, z1)
        if ALL:
            tl.store(states + row + i, z0, here0)
            tl.store(states + row + first + i, z1, here1)
    if END:
        tl.store(ends + at + i, z0, in0)
        tl.store(ends + at + first + i, z1, in1)


def _coefficients(c: Tensor, s: Tensor) -> Tensor:
    """Return (8, N - N // 2) in float32: c and s for both halves, then their low parts."""
    first = c.shape[0] - c.shape[0] // 2
    halves = c.new_zeros(4, first)
    for row, vector in ((0, c), (2, s)):
        halves[row] = vector[:first]
        halves[row + 1, : c.shape[0] - first] = vector[first:]
    if c.shape[0] % 2:  # the middle unit is its own partner
        halves[0, -1] += halves[2, -1]
        halves[2, -1] = 0
    high = halves.float()
    return torch.cat([high, (halves - high.double()).float()])


def _power(c: Tensor, s: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
    """Return (c, s) of R^exponent. A block is a rotation times a number, or has s = 0."""
    half = c.shape[0] // 2
    size, angle = torch.hypot(c, s), torch.atan2(s, c)
    power = size**exponent
    turned_c, turned_s = power * torch.cos(exponent * angle), power * torch.sin(exponent * angle)
    alone = torch.zeros_like(c, dtype=torch.bool)
    alone[half : c.shape[0] - half] = True  # the middle unit, if N is odd
    alone |= s == 0
    return torch.where(alone, c**exponent, turned_c), torch.where(alone, 0.0, turned_s)


def _scan(x: Tensor | None, start: Tensor, c: Tensor, s: Tensor, layout: SequenceLayout, reverse: bool) -> Tensor:
    """Return states (T, B, N) from inputs x (R, N), or none, and the state `start` before the first step or, reversed,
    the last.
    """
    T, B, n = layout.length, layout.batch, c.shape[0]
    length = max(PIECE, math.isqrt(T))
    pieces = triton.cdiv(T, length)
    turns = _coefficients(c, s)
    states = start.new_empty(T, B, n)
    ends = start.new_empty(pieces, B, n)

    def launch(first: Tensor | None, write: bool) -> None:
        scan_kernel[(B, pieces, triton.cdiv(n - n // 2, BLOCK))](
            x,
            first,
            states,
            ends,
            turns,
            T,
            B,
            n,
            length,
            REVERSE=reverse,
            GIVEN=x is not None,
            START=first is not None,
            ALL=write,
            END=not write,
            SIZE=BLOCK,
        )

    with device_of(start):
        between = start.unsqueeze(0)
        if pieces > 1:
            if x is None:
                ends.zero_()
            else:
                launch(None, False)
            later = _scan(ends[:-1], start, *_power(c, s, length), SequenceLayout(pieces - 1, B), False)
            between = torch.cat([between, later])
        launch(between.contiguous(), True)
    return states


def forward(call: Call, x: Tensor) -> Tensor:
    """Return states (R, N) from projected rows x (R, N)."""
    if call.layout.rows == 0:
        return x.new_zeros(call.layout.shape(x.shape[1]))
    assert call.base is not None
    return _scan(x.contiguous(), call.h0.contiguous(), *call.base, call.layout, False)


def backward(call: Call, grad: Tensor, last: bool) -> tuple[Tensor, Tensor]:
    """Return delta (R, N) and dL/dh_0 (B, N).

    delta_t = R' delta_{t+1} + g_t is a scan in reversed time. With ``last`` it starts from the given gradient, with no
    input; the scan's first step applies R', so it runs over all steps but the last, whose delta is the gradient itself.
    """
    layout, base = call.layout, call.base
    assert base is not None
    c, s = base
    n = c.shape[0]
    if layout.rows == 0:
        return grad.new_zeros(0, n), grad.clone() if last else grad.new_zeros(layout.batch, n)
    s_transposed = swap(s)  # R'z = c * z + swap(s * z)
    if last:
        delta = grad.unsqueeze(0)
        if layout.length > 1:
            earlier = SequenceLayout(layout.length - 1, layout.batch)
            delta = torch.cat([_scan(None, grad.contiguous(), c, s_transposed, earlier, True), delta])
    else:
        start = grad.new_zeros(layout.batch, n)
        delta = _scan(grad.contiguous(), start, c, s_transposed, layout, True)
    grad_h0 = apply_base_transpose(delta[0].double(), base).to(grad.dtype)
    return delta.reshape(layout.rows, n), grad_h0
