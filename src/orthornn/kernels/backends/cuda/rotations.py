"""The recurrence of rotations, parallel in time: pieces of the sequence at once, in three launches of rotations.cu.

For a piece of L steps that starts from z, its last state is R^L z + e with e the last state from zero. So

    1  e of every piece, from zero                     (pieces in parallel)
    2  the states between pieces: the same recurrence over the pieces, with R^L in place of R and e in place of x
       (in pieces of its own, if there are more than PIECE)
    3  every piece from its true start, written out    (pieces in parallel)

which reads the input twice and is exact: R^L is made in float64. Backwards the same with R' and time reversed.
Constant lengths only; float32.
"""

from __future__ import annotations

import ctypes
import math
from typing import ClassVar

from torch import Tensor

from ....compact_wy import swap
from ...call import Call
from . import nvrtc

PROGRAM = nvrtc.Program("rotations.cu", ("scan",))
THREADS = 64  # of a block, a pair of units each
PIECE = 64  # steps of a piece, at least: about as many take the time of a launch (derived, not measured)


class Arguments(nvrtc.Arguments):
    """struct Arguments of rotations.cu."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("x", "start", "states", "ends", "c", "s")),
        *((name, ctypes.c_int) for name in ("steps", "batch", "n", "length", "power", "reverse")),
    ]


def _scan(
    x: Tensor | None, start: Tensor, turns: tuple[Tensor, Tensor], states: Tensor, reverse: bool = False, power: int = 1
) -> None:
    """Write the states (T, B, N) from inputs x (T B, N), or none, and the state `start` (B, N) before the first step or,
    reversed, the last. R is that power of the transition (c, s).
    """
    T, B, n = states.shape
    length = max(PIECE, math.isqrt(T))
    pieces = -(-T // length)
    kernels = nvrtc.load(PROGRAM, {"THREADS": THREADS}, 0, states.device)

    def launch(count: int, **tensors: Tensor | None) -> None:
        blocks = (B, count, -(-(n - n // 2) // THREADS))  # more than 65535 are allowed on the first axis alone
        sizes = {"steps": T, "batch": B, "n": n, "length": length, "power": power, "reverse": reverse}
        kernels.launch("scan", blocks, Arguments.of(c=turns[0], s=turns[1], **tensors, **sizes))

    if pieces > 1:
        ends = None if x is None else states.new_empty(pieces - 1, B, n)
        if ends is not None:
            launch(pieces - 1, x=x, ends=ends)
        between = states.new_empty(pieces, B, n)
        between[0] = start
        _scan(ends, start, turns, between[1:], power=power * length)
        start = between
    launch(pieces, x=x, start=start, states=states)


def forward(call: Call, x: Tensor) -> Tensor:
    """Return states (T, B, N) from projected rows x (T B, N)."""
    assert call.base is not None
    states = x.new_empty(call.layout.shape(x.shape[1]))
    if call.layout.rows:
        c, s = call.base
        _scan(x.contiguous(), call.h0.contiguous(), (c.contiguous(), s.contiguous()), states)
    return states


def backward(call: Call, grad: Tensor, last: bool) -> tuple[Tensor, Tensor]:
    """Return delta (T B, N) and dL/dh_0 (B, N).

    delta_t = R' delta_{t+1} + g_t is a scan in reversed time. With ``last`` it starts from the given gradient, with no
    input; the scan's first step applies R', so it runs over all steps but the last, whose delta is the gradient itself.
    """
    layout, grad = call.layout, grad.contiguous()
    assert call.base is not None
    T, B, n = layout.length, layout.batch, grad.shape[-1]
    if layout.rows == 0:
        return grad.new_zeros(0, n), grad.clone() if last else grad.new_zeros(B, n)
    c, s = call.base
    transposed = c.contiguous(), swap(s)  # R'z = c * z + swap(s * z)
    delta, grad_h0 = grad.new_empty(T, B, n), grad.new_empty(B, n)
    if last:
        delta[-1] = grad
        if T > 1:
            _scan(None, grad, transposed, delta[:-1], reverse=True)
    else:
        _scan(grad, grad.new_zeros(B, n), transposed, delta, reverse=True)
    _scan(None, delta[0], transposed, grad_h0.unsqueeze(0))
    return delta.flatten(0, 1), grad_h0
