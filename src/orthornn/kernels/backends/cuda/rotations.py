"""The recurrence of rotations, parallel in time: three launches of rotations.cu process pieces of the sequence.

The last state of a piece of L steps that starts from z is R^L z + e, where e is the last state if it starts from zero.
The launches compute

    1  e of every piece                                (pieces in parallel)
    2  the states between pieces: the same recurrence over the pieces, with R^L for R and e for x
       (again in pieces, if there are more than PIECE)
    3  every piece from its true initial state         (pieces in parallel)

They read the input twice. R^L is computed in float64, so the result is exact to rounding. The backward pass does the same
with R' and reversed time.

A reset before a step replaces z_{t-1} by another state. The final state of a piece with a reset does not depend on z:
launch 2 treats such a piece as a step that restarts from zero. Constant lengths only; float32.
"""

from __future__ import annotations

import ctypes
import math
from typing import ClassVar

import torch
from torch import Tensor

from ....compact_wy import swap
from ...call import Call
from . import nvrtc

PROGRAM = nvrtc.Program("rotations.cu", ("scan",))
THREADS = 64  # per block, each with a pair of units
PIECE = 64  # smallest number of steps of a piece: about as long as a launch takes (derived, not measured)


class Arguments(nvrtc.Arguments):
    """struct Arguments of rotations.cu."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("x", "start", "states", "ends", "resets", "restart", "c", "s")),
        *((name, ctypes.c_int) for name in ("steps", "batch", "n", "length", "power", "reverse")),
    ]


def _scan(
    x: Tensor | None,
    start: Tensor,
    turns: tuple[Tensor, Tensor],
    states: Tensor,
    resets: Tensor | None = None,
    restart: Tensor | None = None,
    reverse: bool = False,
    power: int = 1,
) -> None:
    """Write the states (T, B, N) of one recurrence.

    Args:
        x: Inputs (T B, N); None for zeros.
        start: The state (B, N) before the first step or, reversed, the last.
        turns: The transition (c, s).
        states: Output.
        resets: bool (T, B), True if `restart` replaces the state before a step; None for no resets.
        restart: (B, N); None for zeros. It needs ``x``.
        reverse: Whether time runs backwards, so that the state before step t is the state of step t + 1.
        power: Exponent of the transition: R is this power of it.
    """
    T, B, n = states.shape
    length = max(PIECE, math.isqrt(T))
    pieces = -(-T // length)
    kernels = nvrtc.load(PROGRAM, {"THREADS": THREADS}, 0, states.device)

    def launch(count: int, **tensors: Tensor | None) -> None:
        blocks = (B, count, -(-(n - n // 2) // THREADS))  # only the first axis allows more than 65535
        sizes = {"steps": T, "batch": B, "n": n, "length": length, "power": power, "reverse": reverse}
        kernels.launch("scan", blocks, Arguments.of(c=turns[0], s=turns[1], resets=resets, **tensors, **sizes))

    if pieces > 1:
        ends = None if x is None else states.new_empty(pieces - 1, B, n)
        if ends is not None:
            launch(pieces - 1, x=x, restart=restart, ends=ends)
        between = states.new_empty(pieces, B, n)
        between[0] = start
        forgets = (
            None if resets is None else _of_pieces(resets.flip(0) if reverse else resets, length)[:-1].contiguous()
        )
        _scan(ends, start, turns, between[1:], forgets, power=power * length)
        start = between
    launch(pieces, x=x, start=start, restart=restart, states=states)


def _of_pieces(resets: Tensor, length: int) -> Tensor:
    """Return whether each piece of ``length`` steps has a reset, (P, B) from (T, B)."""
    T, B = resets.shape
    return torch.cat([resets, resets.new_zeros(-T % length, B)]).view(-1, length, B).any(dim=1)


def _resets(call: Call) -> Tensor | None:
    layout = call.layout
    return None if layout.resets is None else layout.resets.view(layout.length, layout.batch)


def forward(call: Call, x: Tensor) -> Tensor:
    """Return states (T, B, N) from projected rows x (T B, N)."""
    assert call.base is not None
    states = x.new_empty(call.layout.shape(x.shape[1]))
    if call.layout.rows:
        c, s = call.base
        turns, resets = (c.contiguous(), s.contiguous()), _resets(call)
        restart = None if resets is None or call.restart is None else call.restart.contiguous()
        _scan(x.contiguous(), call.h0.contiguous(), turns, states, resets, restart)
    return states


def backward(call: Call, grad: Tensor, last: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return delta (T B, N), dL/dh_0 (B, N) and dL/drestart (B, N).

    delta_t = R' delta_{t+1} + g_t is a scan in reversed time. With ``last`` it starts from the given gradient, without
    input; its first step applies R', so it covers all steps except the last, whose delta is the gradient itself. If step
    t + 1 has a reset, R' delta_{t+1} is added to the gradient of the restart instead of delta_t.
    """
    layout, grad = call.layout, grad.contiguous()
    assert call.base is not None
    T, B, n = layout.length, layout.batch, grad.shape[-1]
    if layout.rows == 0:
        none = None if call.restart is None else grad.new_zeros(B, n)
        return grad.new_zeros(0, n), grad.clone() if last else grad.new_zeros(B, n), none
    c, s = call.base
    transposed = c.contiguous(), swap(s)  # R'z = c * z + swap(s * z)
    resets = _resets(call)
    cuts = None if resets is None else torch.cat([resets[1:], torch.zeros_like(resets[:1])])
    delta = grad.new_empty(T, B, n)
    if last:
        delta[-1] = grad
        if T > 1:
            _scan(None, grad, transposed, delta[:-1], None if cuts is None else cuts[:-1], reverse=True)
    else:
        _scan(grad, grad.new_zeros(B, n), transposed, delta, cuts, reverse=True)

    def before(deltas: Tensor) -> Tensor:
        found = grad.new_empty(B, n)
        _scan(None, deltas, transposed, found.unsqueeze(0))
        return found

    rows = delta.flatten(0, 1)
    if resets is None or call.restart is None:
        return rows, before(delta[0]), None
    is_reset, none = resets.unsqueeze(-1), delta.new_zeros(())
    return (
        rows,
        before(torch.where(is_reset[0], none, delta[0])),
        before(torch.where(is_reset, delta, none).sum(dim=0)),
    )
