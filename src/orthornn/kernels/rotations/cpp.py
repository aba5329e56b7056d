"""The recurrence of rotations by the compiled kernels, with all its parameter gradients (csrc/rotations.hpp)."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import activations
from .. import native
from ..node import Needs, Operands
from ..sequence import Steps


def _transition(operands: Operands) -> native.Transition:
    assert operands.base is not None
    return native.Transition(rotations=torch.stack(operands.base))


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    steps: Steps,
    last: bool = False,
) -> Tensor:
    """States (R, N), or the last ones (B, N)."""
    identity = activations.get("identity")
    return native.forward(rows, weight_ih, bias, h0, _transition(operands), identity, None, steps, last)[0]


def backward(
    grad: Tensor,
    last: bool,
    rows: Tensor,
    weight_ih: Tensor | None,
    h0: Tensor,
    operands: Operands,
    steps: Steps,
    states: Tensor,
    needs: Needs,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, and None for c, s and parameter; None where not needed."""
    return native.backward(
        grad,
        last,
        rows,
        weight_ih,
        h0,
        _transition(operands),
        operands.weight,
        activations.get("identity"),
        None,
        steps,
        None,
        states,
        None,
        None,
        needs,
    )
