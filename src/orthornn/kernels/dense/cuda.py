"""The dense chain by CUDA C++ compiled at run time (kernels/chain.cu): W in registers and shared memory of one SM."""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from .. import chain
from ..sequence import Steps


def forward(
    x: Tensor, h0: Tensor, W: Tensor, activation: Activation, parameter: Tensor | None, steps: Steps, shape: chain.Shape
) -> tuple[Tensor, Tensor | None]:
    """States (R, N) and, if the activation's derivative reads them, the pre-activations (R, N)."""
    states, kept, _ = chain.forward(shape, x, h0, W.contiguous(), None, None, activation, parameter, steps)
    return states, kept


def backward(
    grad: Tensor,
    last: bool,
    kept: Tensor,
    W: Tensor,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    shape: chain.Shape,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """delta (R, N), dL/dh0 (B, N) and dL/dparameter; grad and kept as in the reference."""
    return chain.backward(shape, grad, last, kept, W.contiguous(), None, None, activation, parameter, steps, clip)[:3]
