"""The recurrence of rotations by the compiled kernels, with all its parameter gradients (csrc/rotations.hpp)."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import activations
from .. import native
from ..node import Needs, Operands, Sequence

IDENTITY = activations.get("identity")


def _transition(operands: Operands) -> native.Transition:
    assert operands.base is not None
    return native.Transition(rotations=torch.stack(operands.base))


def infer(s: Sequence, last: bool) -> Tensor:
    """States (R, N), or the last ones (B, N)."""
    return native.forward(s.rows, s.weight_ih, s.bias, s.h0, _transition(s.operands), IDENTITY, None, s.steps, last)[0]


def reverse(s: Sequence) -> tuple[Tensor, Tensor]:
    """States (R, N) that end in s.h0 (B, N), and the state before them."""
    states, _, _, before = native.reverse(
        s.rows, s.weight_ih, s.bias, s.h0, _transition(s.operands), IDENTITY, None, None, s.steps
    )
    return states, before


def backward(s: Sequence, grad: Tensor, last: bool, states: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, and None for c, s and parameter; None where not needed."""
    return native.backward(
        grad,
        last,
        s.rows,
        s.weight_ih,
        s.h0,
        _transition(s.operands),
        s.operands.weight,
        IDENTITY,
        None,
        s.steps,
        None,
        states,
        None,
        None,
        needs,
    )
