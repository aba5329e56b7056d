"""The dense chain as one launch: the time loop is inside the kernel, W stays in registers.

W is held as four tiles over the two blocks of a state (tiles.py), transposed going forwards: a product is a
sum over the tiles' first axis, since the compiler lays lanes along the contiguous one, where a sum would take five
shuffles for every row.
What launch.dense_strategy finds too large for one multiprocessor goes to backends/cuda_graph.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...call import Call
from ..ragged import device_layout
from .launch import Strategy, device_of, padded, specialized
from .tiles import (
    first_carry,
    load_blocks,
    load_parameter,
    load_tile,
    phi,
    program,
    rows_of,
    store_blocks,
    store_sums,
    through_phi,
    units,
)


@triton.jit
def _times(h1, h2, A11, A12, A21, A22, VECTOR: tl.constexpr, PRECISION: tl.constexpr):
    """Return A' h for a state h and A (N, N) in four tiles."""
    if VECTOR:
        if A11.shape[0] == A21.shape[0]:
            y1 = tl.sum(h1 * A11 + h2 * A21, axis=0)[:, None]
            y2 = tl.sum(h1 * A12 + h2 * A22, axis=0)[:, None]
        else:
            y1 = (tl.sum(h1 * A11, axis=0) + tl.sum(h2 * A21, axis=0))[:, None]
            y2 = (tl.sum(h1 * A12, axis=0) + tl.sum(h2 * A22, axis=0))[:, None]
    else:
        y1 = tl.dot(h1, A11, input_precision=PRECISION) + tl.dot(h2, A21, input_precision=PRECISION)
        y2 = tl.dot(h1, A12, input_precision=PRECISION) + tl.dot(h2, A22, input_precision=PRECISION)
    return y1, y2


@triton.jit
def _tiles(A, n, n1, stride, P1: tl.constexpr, P2: tl.constexpr):
    """Load A11, A12, A21, A22 of a matrix (N, N) whose rows are padded with zeros to `stride` numbers."""
    u1, u2 = tl.arange(0, P1), tl.arange(0, P2)
    below = A + n1 * stride
    return (
        load_tile(A, u1, u1, n1, n1, stride, 1),
        load_tile(A + n1, u1, u2, n1, stride - n1, stride, 1),
        load_tile(below, u2, u1, n - n1, n1, stride, 1),
        load_tile(below + n1, u2, u2, n - n1, stride - n1, stride, 1),
    )


@triton.jit
def forward_kernel(
    x,  # (R, N), projected
    h0,  # (B, N)
    W,  # W' (N, stride)
    parameter,
    states,  # (R, N), written
    saved,  # (R, N), written if KEEP
    offsets,  # first row of each step, read if PACKED
    lengths,  # steps of each sequence, read if PACKED
    steps,
    batch,
    n,
    n1,
    stride,
    slope,
    CODE: tl.constexpr,
    UNIT: tl.constexpr,
    PAIR: tl.constexpr,
    KEEP: tl.constexpr,
    PACKED: tl.constexpr,
    VECTOR: tl.constexpr,
    PRECISION: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    BB: tl.constexpr,
):
    """Compute the states of one program's sequences, step by step."""
    u1, u2 = units(P1, VECTOR), units(P2, VECTOR)
    half = n // 2
    b, is_sequence, ends, length = program(steps, batch, lengths, PACKED, VECTOR, BB)
    p1, p2 = load_parameter(parameter, n, n1, half, u1, u2, UNIT, PAIR)
    h1, h2 = load_blocks(h0, b.to(tl.int64), n, n1, u1, u2, is_sequence)
    A11, A12, A21, A22 = _tiles(W, n, n1, stride, P1, P2)
    x1, x2 = load_blocks(x, rows_of(0, b, batch, offsets, PACKED), n, n1, u1, u2, ends > 0)
    y1, y2 = load_blocks(x, rows_of(1, b, batch, offsets, PACKED), n, n1, u1, u2, ends > 1)
    for t in range(length):
        active = t < ends
        row = rows_of(t, b, batch, offsets, PACKED)
        # Two steps ahead: a row from device memory takes longer than a step.
        z1, z2 = load_blocks(x, rows_of(t + 2, b, batch, offsets, PACKED), n, n1, u1, u2, t + 2 < ends)
        a1, a2 = _times(h1, h2, A11, A12, A21, A22, VECTOR, PRECISION)
        a1, a2 = a1 + x1, a2 + x2
        if KEEP:
            store_blocks(saved, row, n, n1, u1, u2, active, a1, a2)
        h1, h2 = phi(a1, a2, p1, p2, u1 < half, slope, CODE)
        store_blocks(states, row, n, n1, u1, u2, active, h1, h2)
        x1, x2, y1, y2 = y1, y2, z1, z2


@triton.jit
def backward_kernel(
    grad,  # dL/dh (R, N), or with LAST (B, N)
    saved,  # states or pre-activations (R, N)
    W,  # (N, stride)
    parameter,
    delta,  # (R, N), written
    grad_h0,  # (B, N), written
    grad_parameter,  # (B, N) or (B, N // 2), written if there is a parameter
    offsets,
    lengths,
    steps,
    batch,
    n,
    n1,
    stride,
    slope,
    clip,
    CODE: tl.constexpr,
    UNIT: tl.constexpr,
    PAIR: tl.constexpr,
    LAST: tl.constexpr,
    CLIP: tl.constexpr,
    PACKED: tl.constexpr,
    VECTOR: tl.constexpr,
    PRECISION: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    BB: tl.constexpr,
):
    """Run the chain of one program's sequences, step by step backwards."""
    u1, u2 = units(P1, VECTOR), units(P2, VECTOR)
    half = n // 2
    b, is_sequence, ends, length = program(steps, batch, lengths, PACKED, VECTOR, BB)
    p1, p2 = load_parameter(parameter, n, n1, half, u1, u2, UNIT, PAIR)
    carry1, carry2 = first_carry(grad, b, n, n1, u1, u2, is_sequence, LAST, VECTOR)
    sum1, sum2 = tl.zeros_like(carry1), tl.zeros_like(carry2)
    A11, A12, A21, A22 = _tiles(W, n, n1, stride, P1, P2)
    row = rows_of(length - 1, b, batch, offsets, PACKED)
    first = length - 1 < ends
    k1, k2 = load_blocks(saved, row, n, n1, u1, u2, first)
    if not LAST:
        g1, g2 = load_blocks(grad, row, n, n1, u1, u2, first)
    for i in range(length):
        t = length - 1 - i
        active = t < ends
        row = rows_of(t, b, batch, offsets, PACKED)
        before = rows_of(tl.maximum(t - 1, 0), b, batch, offsets, PACKED)
        ahead = (t > 0 * ends) & (t - 1 < ends)
        next_k1, next_k2 = load_blocks(saved, before, n, n1, u1, u2, ahead)
        if not LAST:
            carry1, carry2 = carry1 + g1, carry2 + g2
            g1, g2 = load_blocks(grad, before, n, n1, u1, u2, ahead)
        d1, d2, sum1, sum2 = through_phi(
            carry1, carry2, k1, k2, p1, p2, u1 < half, active, sum1, sum2, slope, clip, CODE, UNIT or PAIR, CLIP
        )
        store_blocks(delta, row, n, n1, u1, u2, active, d1, d2)
        e1, e2 = _times(d1, d2, A11, A12, A21, A22, VECTOR, PRECISION)
        carry1, carry2 = tl.where(active, e1, carry1), tl.where(active, e2, carry2)
        k1, k2 = next_k1, next_k2
    store_blocks(grad_h0, b.to(tl.int64), n, n1, u1, u2, is_sequence, carry1, carry2)
    store_sums(grad_parameter, b, n, n1, half, u1, u2, is_sequence, sum1, sum2, UNIT, PAIR)


def forward(call: Call, x: Tensor, strategy: Strategy) -> tuple[Tensor, Tensor | None]:
    """Return states (R, N) and, if phi' reads them, the pre-activations (R, N), from projected rows x (R, N)."""
    layout, W = call.layout, call.weight
    x, h0, transposed, n = x.contiguous(), call.h0.contiguous(), padded(W.mT), W.shape[0]
    states = x.new_empty(layout.shape(n))
    saved = x.new_empty(layout.rows, n) if call.options.activation.reads == "preactivation" else None
    if layout.batch and layout.length:
        with device_of(h0):
            forward_kernel[strategy.grid(layout.batch)](
                x,
                h0,
                transposed,
                call.parameter,
                states,
                saved,
                *device_layout(layout, h0.device),
                layout.length,
                layout.batch,
                n,
                stride=transposed.shape[1],
                slope=call.options.activation.slope,
                KEEP=saved is not None,
                **specialized(call),
                **strategy.constants,
            )
    return states, saved


def backward(
    call: Call, grad: Tensor, last: bool, saved: Tensor, strategy: Strategy
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N) and dL/dparameter; grad and saved as in the reference."""
    layout, parameter, clip = call.layout, call.parameter, call.options.clip
    grad, saved, W, n = grad.contiguous(), saved.contiguous(), padded(call.weight), call.weight.shape[0]
    delta = torch.empty_like(saved, dtype=W.dtype)
    grad_parameter = None if parameter is None else W.new_empty(layout.batch, parameter.shape[0])
    if not (layout.batch and layout.length):
        grad_h0 = grad.to(W.dtype, copy=True) if last else W.new_zeros(layout.batch, n)
        return delta, grad_h0, None if parameter is None else torch.zeros_like(parameter)
    grad_h0 = W.new_empty(layout.batch, n)
    with device_of(W):
        backward_kernel[strategy.grid(layout.batch)](
            grad,
            saved,
            W,
            parameter,
            delta,
            grad_h0,
            grad_parameter,
            *device_layout(layout, W.device),
            layout.length,
            layout.batch,
            n,
            stride=W.shape[1],
            slope=call.options.activation.slope,
            clip=0.0 if clip is None else clip,
            LAST=last,
            CLIP=clip is not None,
            **specialized(call),
            **strategy.constants,
        )
    return delta, grad_h0, None if grad_parameter is None else grad_parameter.sum(dim=0)
