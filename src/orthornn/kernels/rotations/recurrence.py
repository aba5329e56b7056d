"""The recurrence of rotations on one backend, with all its parameter gradients: what the autograd node runs.

The operands are R as a matrix, of which only the gradient is used, and (c, s), by which it is applied.
"""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from ..dense.recurrence import plain
from ..node import Needs, Operands, Recurrence, Saved, register
from ..sequence import Steps, project, project_backward
from . import cpp, reference


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    backend: str,
) -> tuple[Tensor, Saved]:
    """States (R, N); nothing else is kept."""
    if backend == "cpp":
        return cpp.forward(rows, weight_ih, bias, h0, operands, steps), Saved(None)
    x = project(rows, weight_ih, bias)
    assert operands.base is not None
    if backend == "triton":
        from . import triton  # importing it costs a second

        return triton.forward(x, h0, *operands.base, steps), Saved(None)
    return reference.forward(x, h0, *operands.base, steps), Saved(None)


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
    backend: str,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, and None for c, s and parameter; None where not needed."""
    assert states is not None
    assert operands.base is not None
    if backend == "cpp":
        return cpp.backward(grad, last, rows, weight_ih, h0, operands, steps, states, needs)
    if backend == "triton":
        from . import triton

        delta, by_h0 = triton.backward(grad, last, *operands.base, steps)
    else:
        delta, by_h0 = reference.backward(grad, last, *operands.base, steps)
    by_x, by_weight_ih = project_backward(delta, rows, weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_R = steps.outer(delta, states, h0) if needs.weight else None
    return by_x, by_weight_ih, by_bias, by_h0, by_R, None, None, None


ROTATIONS = register(Recurrence("rotations", forward, backward, plain))
