"""The recurrence of rotations on one backend, with all its parameter gradients: what the autograd node runs.

The operands are R as a matrix, of which only the gradient is used, and (c, s), by which it is applied.
"""

from __future__ import annotations

from torch import Tensor

from ..dense.recurrence import plain
from ..node import Needs, Recurrence, Saved, Sequence, register
from ..sequence import project, project_backward
from . import cpp, reference


def forward(s: Sequence) -> tuple[Tensor, Saved]:
    """States (R, N); nothing else is kept."""
    if s.backend == "cpp":
        return cpp.infer(s, False), Saved(None)
    x = project(s.rows, s.weight_ih, s.bias)
    assert s.operands.base is not None
    if s.backend == "triton":
        from . import triton  # importing it costs a second

        return triton.forward(x, s.h0, *s.operands.base, s.steps), Saved(None)
    return reference.forward(x, s.h0, *s.operands.base, s.steps), Saved(None)


def backward(
    s: Sequence, grad: Tensor, last: bool, clip: float | None, states: Tensor | None, saved: Saved, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, and None for c, s and parameter; None where not needed."""
    assert states is not None
    assert s.operands.base is not None
    if s.backend == "cpp":
        return cpp.backward(s, grad, last, states, needs)
    if s.backend == "triton":
        from . import triton

        delta, by_h0 = triton.backward(grad, last, *s.operands.base, s.steps)
    else:
        delta, by_h0 = reference.backward(grad, last, *s.operands.base, s.steps)
    by_x, by_weight_ih = project_backward(delta, s.rows, s.weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_R = s.steps.outer(delta, states, s.h0) if needs.weight else None
    return by_x, by_weight_ih, by_bias, by_h0, by_R, None, None, None


def reverse(s: Sequence, order: Tensor | None) -> tuple[Tensor, Saved, Tensor]:
    """States (R, N) that end in s.h0 (B, N), nothing else, and the state before them."""
    if s.backend == "cpp":
        states, before = cpp.reverse(s)
    else:
        assert s.operands.base is not None
        states, before = reference.reverse(project(s.rows, s.weight_ih, s.bias), s.h0, *s.operands.base, s.steps)
    return states, Saved(None), before


def prepare(s: Sequence) -> Sequence:
    """There is nothing to prepare."""
    return s


ROTATIONS = register(Recurrence("rotations", forward, backward, plain, reverse, prepare, cpp.infer))
