"""The dense recurrence: the specification that every other backend is tested against.

h_t = phi(a_t),  a_t = W h_{t-1} + x_t,  on rows: A_t = H_{t-1} W' + X_t.

Rows (x, states, saved tensors and their gradients) may be stored in bfloat16 next to a float32 h0, W and parameter. In
this case the state passed from step to step is not rounded, and all computations are in float32.
"""

from __future__ import annotations

from torch import Tensor

from ...call import Call, States
from ...loop import Loop


def forward(call: Call, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return states and, if phi' reads them, the pre-activations (R, N), from projected rows x (R, N)."""
    W = call.weight
    return Loop.of(call).forward(x, lambda h: h @ W.t())


def backward(call: Call, grad: States, saved: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter and dL/drestart (B, N); arguments as for the loop."""
    W = call.weight
    return Loop.of(call).backward(grad, saved, lambda delta: delta @ W)
