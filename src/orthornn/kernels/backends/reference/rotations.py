"""The recurrence of rotations: the specification that every other backend is tested against.

z_t = R z_{t-1} + x_t,   R z = c * z + s * swap(z)   (swap exchanges the halves; see orthornn.compact_wy).

c and s are float64, and R z is computed in float64 before it is rounded to the dtype of the states: an error of c or s
would accumulate in one direction over the layout.
"""

from __future__ import annotations

from torch import Tensor

from ....compact_wy import apply_base, apply_base_transpose
from ...call import Call, States
from ...loop import Loop


def forward(call: Call, x: Tensor) -> tuple[Tensor, None]:
    """Return states from projected rows x (R, N), and no pre-activations: phi is the identity."""
    states, _ = Loop.of(call).forward(x, lambda z: apply_base(z.double(), call.base).to(call.h0.dtype))
    return states, None


def backward(call: Call, grad: States, saved: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), None and dL/drestart (B, N); arguments as for the loop."""

    def adjoint(delta: Tensor) -> Tensor:
        return apply_base_transpose(delta.double(), call.base).to(call.h0.dtype)

    return Loop.of(call).backward(grad, saved, adjoint)
