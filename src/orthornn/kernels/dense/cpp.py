"""The dense recurrence by the compiled kernels, with all its parameter gradients (csrc/dense.hpp, csrc/backward.hpp)."""

from __future__ import annotations

from torch import Tensor

from .. import native
from ..node import Needs, Saved, Sequence


def _transition(s: Sequence) -> native.Transition:
    return native.Transition(W=s.operands.weight)


def forward(s: Sequence) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    states, kept, _ = native.forward(
        s.rows, s.weight_ih, s.bias, s.h0, _transition(s), s.activation, s.parameter, s.steps
    )
    return states, Saved(kept)


def infer(s: Sequence, last: bool) -> Tensor:
    """States (R, N), or the last ones (B, N); nothing else is kept."""
    return native.forward(
        s.rows, s.weight_ih, s.bias, s.h0, _transition(s), s.activation, s.parameter, s.steps, last, keep=False
    )[0]


def reverse(s: Sequence, order: Tensor | None) -> tuple[Tensor, Saved, Tensor]:
    """States (R, N) that end in s.h0, what `forward` would have kept, and the state before them."""
    states, kept, _, before = native.reverse(
        s.rows, s.weight_ih, s.bias, s.h0, _transition(s), s.activation, s.parameter, order, s.steps
    )
    return states, Saved(kept), before


def backward(
    s: Sequence, grad: Tensor, last: bool, clip: float | None, states: Tensor | None, saved: Saved, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    return native.backward(
        grad,
        last,
        s.rows,
        s.weight_ih,
        s.h0,
        _transition(s),
        s.operands.weight,
        s.activation,
        s.parameter,
        s.steps,
        clip,
        states,
        saved.kept,
        None,
        needs,
    )
