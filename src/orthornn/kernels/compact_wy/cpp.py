"""The compact-WY recurrence by the compiled kernels, with all its parameter gradients (csrc/compact_wy*.hpp,
csrc/products.hpp, csrc/factors.hpp).
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
    states: Tensor,
    saved: Saved,
    needs: Needs,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    kept = states if saved.kept is None else saved.kept
    transition = native.Transition(U=operands.weight if saved.U is None else saved.U, S=saved.S, base=operands.base)
    chain = native.backward(
        grad, last, kept, states, h0, transition, activation, parameter, steps, clip, needs.c or needs.s
    )
    by_x, by_weight_ih, by_bias = native.input_gradients(
        chain.delta, rows, weight_ih, needs.x, needs.weight_ih, needs.bias
    )
    by_U = None
    if needs.weight:
        assert saved.h_tilde is not None
        assert chain.C_tilde is not None
        by_U = native.reflector_gradient(
            chain.delta, saved.h_tilde, chain.C_tilde, states, h0, operands.weight, operands.base, steps
        )
    by_c, by_s = (None, None) if chain.by_base is None else chain.by_base
    return by_x, by_weight_ih, by_bias, chain.by_h0, by_U, by_c, by_s, chain.by_parameter
