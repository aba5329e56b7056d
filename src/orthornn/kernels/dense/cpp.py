"""The dense recurrence by the compiled kernels, with all its parameter gradients (csrc/dense.hpp, csrc/products.hpp)."""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
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
    transition = native.Transition(W=operands.weight)
    states, kept, _ = native.forward(rows, weight_ih, bias, h0, transition, activation, parameter, steps)
    return states, Saved(kept)


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
    transition = native.Transition(W=operands.weight)
    chain = native.backward(grad, last, kept, states, h0, transition, activation, parameter, steps, clip, False)
    by_x, by_weight_ih, by_bias = native.input_gradients(
        chain.delta, rows, weight_ih, needs.x, needs.weight_ih, needs.bias
    )
    by_W = native.outer(chain.delta, states, h0, activation, steps) if needs.weight else None
    return by_x, by_weight_ih, by_bias, chain.by_h0, by_W, None, None, chain.by_parameter
