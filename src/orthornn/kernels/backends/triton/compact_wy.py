"""The compact-WY chain as one launch: the time loop is inside the kernel, U and V stay on the chip.

With V = U S' the step is  h~ = V'h',  a = h' - U h~ + x  (h' = B h), two products that need no second pass through S;
backwards  C~ = (U S)'d,  e = d - U C~.  Reflectors may be taken MB at a time, since each chunk's share of U V'h' is
independent. Where U and V fill the registers but U does not, FACTORED holds U and S instead and forms h~ = S (U'h').

How a program holds its state: tiles.py. Parameter gradients: reference.factor_gradients, over all rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...call import Call
from ..ragged import device_layout
from ..scan import reflected
from .launch import Strategy, device_of, padded, specialized
from .tiles import (
    first_carry,
    load_blocks,
    load_parameter,
    load_tile,
    load_vector,
    phi,
    program,
    rows_of,
    store_blocks,
    store_sums,
    through_phi,
    units,
)


@triton.jit
def _load_base(c, s, n, n1, u1, u2, half, BASE: tl.constexpr):
    """Load c and s of both blocks; the odd middle, which swaps with itself, has c + s and 0."""
    if BASE:
        c1, c2 = load_vector(c, n, n1, u1, u2)
        s1, s2 = load_vector(s, n, n1, u1, u2)
        c1, s1 = tl.where(u1 < half, c1, c1 + s1), tl.where(u1 < half, s1, 0.0)
    else:
        c1, c2, s1, s2 = 1.0, 1.0, 0.0, 0.0
    return c1, c2, s1, s2


@triton.jit
def _into(h1, h2, A1, A2, VECTOR: tl.constexpr, PRECISION: tl.constexpr):
    """Return (B, M) from a state and the two halves (P, M) of a matrix."""
    if VECTOR:
        q = tl.sum(h1 * A1 + h2 * A2, axis=0)[None, :]
    else:
        q = tl.dot(h1, A1, input_precision=PRECISION) + tl.dot(h2, A2, input_precision=PRECISION)
    return q


@triton.jit
def _out(q, A1, A2, VECTOR: tl.constexpr, PRECISION: tl.constexpr):
    """Return a state from (B, M) and the two halves (P, M) of a matrix."""
    if VECTOR:
        y1, y2 = tl.sum(q * A1, axis=1)[:, None], tl.sum(q * A2, axis=1)[:, None]
    else:
        y1 = tl.dot(q, tl.trans(A1), input_precision=PRECISION)
        y2 = tl.dot(q, tl.trans(A2), input_precision=PRECISION)
    return y1, y2


@triton.jit
def _through(q, S, VECTOR: tl.constexpr, PRECISION: tl.constexpr):
    """Return q S' for q (B, M) and S (M, M)."""
    if VECTOR:
        product = tl.sum(q * S, axis=1)[None, :]
    else:
        product = tl.dot(q, tl.trans(S), input_precision=PRECISION)
    return product


@triton.jit
def _store_tilde(tilde, row, m, columns, active, q):
    """Store entries of h~ or C~ (R, M), rounded to the tensor's dtype."""
    tl.store(tilde + row * m + columns, q.to(tilde.dtype.element_ty), mask=active & (columns < m))


@triton.jit
def _halves(A, j, n, stride, n1, P: tl.constexpr, MB: tl.constexpr):
    """Load columns j ... j + MB - 1 of A (N, stride) as two blocks of rows."""
    u, columns = tl.arange(0, P), j + tl.arange(0, MB)
    below = A + n1 * stride
    return (
        load_tile(A, u, columns, n1, stride, stride, 1),
        load_tile(below, u, columns, n - n1, stride, stride, 1),
    )


@triton.jit
def _chunk(U, V, j, n, stride, n1, P: tl.constexpr, MB: tl.constexpr):
    """Load the columns from j on of U and V, and nothing for S."""
    U1, U2 = _halves(U, j, n, stride, n1, P, MB)
    V1, V2 = _halves(V, j, n, stride, n1, P, MB)
    return U1, U2, V1, V2, 0.0


@triton.jit
def _resident(U, V, S, n, m, stride, n1, FACTORED: tl.constexpr, P: tl.constexpr, MB: tl.constexpr):
    """Load U and V, or with FACTORED U and S; what is not there is 0."""
    if FACTORED:
        U1, U2 = _halves(U, 0, n, stride, n1, P, MB)
        V1, V2, factor = 0.0, 0.0, load_tile(S, tl.arange(0, MB), tl.arange(0, MB), m, stride, stride, 1)
    else:
        U1, U2, V1, V2, factor = _chunk(U, V, 0, n, stride, n1, P, MB)
    return U1, U2, V1, V2, factor


@triton.jit
def _take_off(
    h1, h2, a1, a2, U1, U2, V1, V2, factor,
    VECTOR: tl.constexpr, FACTORED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a - U q for q = V'h or S U'h, and q."""
    if FACTORED:
        q = _through(_into(h1, h2, U1, U2, VECTOR, PRECISION), factor, VECTOR, PRECISION)
    else:
        q = _into(h1, h2, V1, V2, VECTOR, PRECISION)
    r1, r2 = _out(q, U1, U2, VECTOR, PRECISION)
    return a1 - r1, a2 - r2, q


@triton.jit
def forward_kernel(
    x,  # (R, N), projected
    h0,  # (B, N)
    U,  # (N, stride)
    V,  # (N, stride); with FACTORED not read
    S,  # (M, stride); read only with FACTORED
    c,
    s,
    parameter,
    states,  # (R, N), written
    saved,  # (R, N), written if KEEP
    h_tilde,  # (R, M), written
    offsets,  # first row of each step, read if PACKED
    lengths,  # steps of each sequence, read if PACKED
    steps,
    batch,
    n,
    m,
    stride,
    slope,
    CODE: tl.constexpr,
    UNIT: tl.constexpr,
    PAIR: tl.constexpr,
    KEEP: tl.constexpr,
    BASE: tl.constexpr,
    PACKED: tl.constexpr,
    VECTOR: tl.constexpr,
    RESIDENT: tl.constexpr,
    FACTORED: tl.constexpr,
    PRECISION: tl.constexpr,
    P: tl.constexpr,
    MB: tl.constexpr,
    BB: tl.constexpr,
):
    """Compute the states of one program's sequences, step by step."""
    u1, u2 = units(P, VECTOR), units(P, VECTOR)
    half = n // 2
    n1 = n - half
    b, is_sequence, ends, length = program(steps, batch, lengths, PACKED, VECTOR, BB)
    columns = tl.arange(0, MB)[None, :]
    p1, p2 = load_parameter(parameter, n, n1, half, u1, u2, UNIT, PAIR)
    c1, c2, s1, s2 = _load_base(c, s, n, n1, u1, u2, half, BASE)
    h1, h2 = load_blocks(h0, b.to(tl.int64), n, n1, u1, u2, is_sequence)
    if RESIDENT:
        U1, U2, V1, V2, factor = _resident(U, V, S, n, m, stride, n1, FACTORED, P, MB)
    x1, x2 = load_blocks(x, rows_of(0, b, batch, offsets, PACKED), n, n1, u1, u2, ends > 0)
    y1, y2 = load_blocks(x, rows_of(1, b, batch, offsets, PACKED), n, n1, u1, u2, ends > 1)
    for t in range(length):
        active = t < ends
        row = rows_of(t, b, batch, offsets, PACKED)
        # Two steps ahead: a row from device memory takes longer than a step.
        z1, z2 = load_blocks(x, rows_of(t + 2, b, batch, offsets, PACKED), n, n1, u1, u2, t + 2 < ends)
        if BASE:
            h1, h2 = c1 * h1 + s1 * h2, c2 * h2 + s2 * h1
        a1, a2 = h1 + x1, h2 + x2
        if RESIDENT:
            a1, a2, q = _take_off(h1, h2, a1, a2, U1, U2, V1, V2, factor, VECTOR, FACTORED, PRECISION)
            _store_tilde(h_tilde, row, m, columns, active, q)
        else:
            for j in range(0, m, MB):
                U1, U2, V1, V2, factor = _chunk(U, V, j, n, stride, n1, P, MB)
                a1, a2, q = _take_off(h1, h2, a1, a2, U1, U2, V1, V2, factor, VECTOR, False, PRECISION)
                _store_tilde(h_tilde, row, m, j + columns, active, q)
        if KEEP:
            store_blocks(saved, row, n, n1, u1, u2, active, a1, a2)
        h1, h2 = phi(a1, a2, p1, p2, u1 < half, slope, CODE)
        store_blocks(states, row, n, n1, u1, u2, active, h1, h2)
        x1, x2, y1, y2 = y1, y2, z1, z2


@triton.jit
def backward_kernel(
    grad,  # dL/dh (R, N), or with LAST (B, N)
    saved,  # states or pre-activations (R, N)
    U,  # (N, stride)
    V,  # U S (N, stride); with FACTORED not read
    S,  # S' (M, stride); read only with FACTORED
    c,
    s,
    parameter,
    delta,  # (R, N), written
    grad_h0,  # (B, N), written
    grad_parameter,  # (B, N) or (B, N // 2), written if there is a parameter
    C_tilde,  # (R, M), written
    offsets,
    lengths,
    steps,
    batch,
    n,
    m,
    stride,
    slope,
    clip,
    CODE: tl.constexpr,
    UNIT: tl.constexpr,
    PAIR: tl.constexpr,
    LAST: tl.constexpr,
    CLIP: tl.constexpr,
    BASE: tl.constexpr,
    PACKED: tl.constexpr,
    VECTOR: tl.constexpr,
    RESIDENT: tl.constexpr,
    FACTORED: tl.constexpr,
    PRECISION: tl.constexpr,
    P: tl.constexpr,
    MB: tl.constexpr,
    BB: tl.constexpr,
):
    """Run the chain of one program's sequences, step by step backwards."""
    u1, u2 = units(P, VECTOR), units(P, VECTOR)
    half = n // 2
    n1 = n - half
    b, is_sequence, ends, length = program(steps, batch, lengths, PACKED, VECTOR, BB)
    columns = tl.arange(0, MB)[None, :]
    p1, p2 = load_parameter(parameter, n, n1, half, u1, u2, UNIT, PAIR)
    c1, c2, s1, s2 = _load_base(c, s, n, n1, u1, u2, half, BASE)
    carry1, carry2 = first_carry(grad, b, n, n1, u1, u2, is_sequence, LAST, VECTOR)
    sum1, sum2 = tl.zeros_like(carry1), tl.zeros_like(carry2)
    if RESIDENT:
        U1, U2, V1, V2, factor = _resident(U, V, S, n, m, stride, n1, FACTORED, P, MB)
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
        e1, e2 = d1, d2
        if RESIDENT:
            e1, e2, q = _take_off(d1, d2, e1, e2, U1, U2, V1, V2, factor, VECTOR, FACTORED, PRECISION)
            _store_tilde(C_tilde, row, m, columns, active, q)
        else:
            for j in range(0, m, MB):
                U1, U2, V1, V2, factor = _chunk(U, V, j, n, stride, n1, P, MB)
                e1, e2, q = _take_off(d1, d2, e1, e2, U1, U2, V1, V2, factor, VECTOR, False, PRECISION)
                _store_tilde(C_tilde, row, m, j + columns, active, q)
        if BASE:
            e1, e2 = c1 * e1 + s2 * e2, c2 * e2 + s1 * e1
        carry1, carry2 = tl.where(active, e1, carry1), tl.where(active, e2, carry2)
        k1, k2 = next_k1, next_k2
    store_blocks(grad_h0, b.to(tl.int64), n, n1, u1, u2, is_sequence, carry1, carry2)
    store_sums(grad_parameter, b, n, n1, half, u1, u2, is_sequence, sum1, sum2, UNIT, PAIR)


def forward(call: Call, x: Tensor, strategy: Strategy) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return states (R, N), pre-activations (R, N) if phi' reads them, and h~ (R, M), from projected rows x (R, N)."""
    assert call.factors is not None
    (U, S), layout = call.factors, call.layout
    x, h0 = x.contiguous(), call.h0.contiguous()
    n, m = U.shape
    states = x.new_empty(layout.shape(n))
    saved = x.new_empty(layout.rows, n) if call.options.activation.reads == "preactivation" else None
    h_tilde = x.new_empty(layout.rows, m)
    U, V, S = padded(U), padded(reflected(U, S.mT)), padded(S)
    c, s = (None, None) if call.base is None else (call.base[0].contiguous(), call.base[1].contiguous())
    if layout.batch and layout.length:
        with device_of(h0):
            forward_kernel[strategy.grid(layout.batch)](
                x,
                h0,
                U,
                V,
                S,
                c,
                s,
                call.parameter,
                states,
                saved,
                h_tilde,
                *device_layout(layout, h0.device),
                layout.length,
                layout.batch,
                n,
                m,
                U.shape[1],
                call.options.activation.slope,
                KEEP=saved is not None,
                BASE=call.base is not None,
                **specialized(call),
                **strategy.constants,
            )
    return states, saved, h_tilde


def backward(
    call: Call, grad: Tensor, last: bool, saved: Tensor, strategy: Strategy
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter and C~ (R, M); grad and saved as in the reference."""
    assert call.factors is not None
    (U, S), layout, parameter, clip = call.factors, call.layout, call.parameter, call.options.clip
    grad, saved = grad.contiguous(), saved.contiguous()
    n, m = U.shape
    delta = torch.empty_like(saved, dtype=U.dtype)
    C_tilde = U.new_empty(layout.rows, m)
    grad_parameter = None if parameter is None else U.new_empty(layout.batch, parameter.shape[0])
    if not (layout.batch and layout.length):
        grad_h0 = grad.to(U.dtype, copy=True) if last else U.new_zeros(layout.batch, n)
        return delta, grad_h0, None if parameter is None else torch.zeros_like(parameter), C_tilde
    grad_h0 = U.new_empty(layout.batch, n)
    c, s = (None, None) if call.base is None else (call.base[0].contiguous(), call.base[1].contiguous())
    U, V, S = padded(U), padded(reflected(U, S)), padded(S.mT)
    with device_of(U):
        backward_kernel[strategy.grid(layout.batch)](
            grad,
            saved,
            U,
            V,
            S,
            c,
            s,
            parameter,
            delta,
            grad_h0,
            grad_parameter,
            C_tilde,
            *device_layout(layout, U.device),
            layout.length,
            layout.batch,
            n,
            m,
            U.shape[1],
            call.options.activation.slope,
            0.0 if clip is None else clip,
            LAST=last,
            CLIP=clip is not None,
            BASE=call.base is not None,
            **specialized(call),
            **strategy.constants,
        )
    return delta, grad_h0, None if grad_parameter is None else grad_parameter.sum(dim=0), C_tilde
