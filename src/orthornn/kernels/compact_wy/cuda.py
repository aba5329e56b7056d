"""The compact-WY chain by CUDA C++ compiled at run time (kernels/chain.cu): U and V in one SM.

B is moved out of the loop, so that no thread waits for its partner's unit twice in a step:

    forward   h~ = (B'U S')' h,    a = B h - U h~ + x
    backward  C~ = (U S)' d,       dL/dh gains B'd - (B'U) C~.
"""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from ...compact_wy import Base, apply_base_transpose
from .. import chain
from ..sequence import Steps


def forward(
    x: Tensor,
    h0: Tensor,
    U: Tensor,
    S: Tensor,
    base: Base,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    shape: chain.Shape,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """States (R, N), pre-activations (R, N) if the activation's derivative reads them, and h~ (R, M)."""
    V = apply_base_transpose((U @ S.mT).mT, base).mT.contiguous()
    return chain.forward(shape, x, h0, V, U.contiguous(), base, activation, parameter, steps)


def backward(
    grad: Tensor,
    last: bool,
    kept: Tensor,
    U: Tensor,
    S: Tensor,
    base: Base,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    shape: chain.Shape,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """delta (R, N), dL/dh0 (B, N), dL/dparameter and C~ (R, M); grad and kept as in the reference."""
    second = apply_base_transpose(U.mT, base).mT.contiguous()
    return chain.backward(
        shape, grad, last, kept, (U @ S).contiguous(), second, base, activation, parameter, steps, clip
    )
