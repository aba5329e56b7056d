"""The compact-WY recurrence by the compiled kernels, with all its parameter gradients (csrc/compact_wy*.hpp,
csrc/backward.hpp, csrc/factors.hpp).
"""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from ...compact_wy import packed_reflections
from .. import native
from ..node import Needs, Operands, Saved
from ..sequence import Steps


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    weight, n = operands.weight, h0.shape[1]
    packed = weight.dim() == 1
    U, S = native.factors(weight, n, packed_reflections(n, weight.shape[0]) if packed else weight.shape[1])
    transition = native.Transition(U=U, S=S, base=operands.base)
    states, kept, h_tilde = native.forward(rows, weight_ih, bias, h0, transition, activation, parameter, steps)
    return states, Saved(kept, h_tilde, U if packed else None, S)


def backward(
    grad: Tensor,
    last: bool,
    rows: Tensor,
    weight_ih: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    states: Tensor | None,
    saved: Saved,
    needs: Needs,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    if states is None and (needs.c or needs.s):
        assert saved.kept is not None
        states = activation(saved.kept.to(h0.dtype), parameter)
    return native.backward(
        grad,
        last,
        rows,
        weight_ih,
        h0,
        native.Transition(U=operands.weight if saved.U is None else saved.U, S=saved.S, base=operands.base),
        operands.weight,
        activation,
        parameter,
        steps,
        clip,
        states,
        saved.kept,
        saved.h_tilde,
        needs,
    )
