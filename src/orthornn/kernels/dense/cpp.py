"""The dense recurrence by the compiled kernels, with all its parameter gradients (csrc/dense.hpp, csrc/backward.hpp)."""

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
    states: Tensor | None,
    saved: Saved,
    needs: Needs,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    return native.backward(
        grad,
        last,
        rows,
        weight_ih,
        h0,
        native.Transition(W=operands.weight),
        operands.weight,
        activation,
        parameter,
        steps,
        clip,
        states,
        saved.kept,
        None,
        needs,
    )
