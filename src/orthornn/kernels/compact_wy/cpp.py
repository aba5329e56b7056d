"""The compact-WY recurrence by the compiled kernels, with all its parameter gradients (csrc/compact_wy*.hpp,
csrc/backward.hpp, csrc/factors.hpp).
"""

from __future__ import annotations

from torch import Tensor

from ...compact_wy import packed_reflections
from .. import native
from ..node import Needs, Saved, Sequence


def factors(s: Sequence) -> tuple[Tensor, Tensor]:
    """U (N, M) and S (M, M)."""
    if s.operands.factors is not None:
        return s.operands.factors
    weight, n = s.operands.weight, s.h0.shape[1]
    m = packed_reflections(n, weight.shape[0]) if weight.dim() == 1 else weight.shape[1]
    return native.factors(weight, n, m)


def forward(s: Sequence) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    U, S = factors(s)
    states, kept, h_tilde = native.forward(
        s.rows,
        s.weight_ih,
        s.bias,
        s.h0,
        native.Transition(U=U, S=S, base=s.operands.base),
        s.activation,
        s.parameter,
        s.steps,
    )
    return states, Saved(kept, h_tilde, U if s.operands.weight.dim() == 1 else None, S)


def infer(s: Sequence, last: bool) -> Tensor:
    """States (R, N), or the last ones (B, N); nothing else is kept."""
    U, S = factors(s)
    transition = native.Transition(U=U, S=S, base=s.operands.base)
    return native.forward(
        s.rows, s.weight_ih, s.bias, s.h0, transition, s.activation, s.parameter, s.steps, last, keep=False
    )[0]


def reverse(s: Sequence, order: Tensor | None) -> tuple[Tensor, Saved, Tensor]:
    """States (R, N) that end in s.h0, what `forward` would have kept, and the state before them."""
    U, S = factors(s)
    states, kept, h_tilde, before = native.reverse(
        s.rows,
        s.weight_ih,
        s.bias,
        s.h0,
        native.Transition(U=U, S=S, base=s.operands.base),
        s.activation,
        s.parameter,
        order,
        s.steps,
    )
    return states, Saved(kept, h_tilde, U if s.operands.weight.dim() == 1 else None, S), before


def backward(
    s: Sequence, grad: Tensor, last: bool, clip: float | None, states: Tensor | None, saved: Saved, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    weight = s.operands.weight
    if states is None and (needs.c or needs.s):
        assert saved.kept is not None
        states = s.activation(saved.kept.to(s.h0.dtype), s.parameter)
    return native.backward(
        grad,
        last,
        s.rows,
        s.weight_ih,
        s.h0,
        native.Transition(U=weight if saved.U is None else saved.U, S=saved.S, base=s.operands.base),
        weight,
        s.activation,
        s.parameter,
        s.steps,
        clip,
        states,
        saved.kept,
        saved.h_tilde,
        needs,
    )
