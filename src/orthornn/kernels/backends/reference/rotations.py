"""The recurrence of rotations: the specification that every other backend is tested against.

z_t = R z_{t-1} + x_t,   R z = c * z + s * swap(z)   (swap exchanges the halves; see orthornn.compact_wy).

c and s come in float64, and R z is computed there before it is rounded to the dtype of the states: an error of c or s
would add up in one direction over the layout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....compact_wy import apply_base, apply_base_transpose
from ....layout import cut, restarted
from ...call import Call


def forward(call: Call, x: Tensor) -> Tensor:
    """Return states from projected rows x (R, N)."""
    z, states = call.h0, []
    for x_t, reset in zip(call.layout.split(x), call.layout.split_resets()):
        before = restarted(z[: x_t.shape[0]], reset, call.restart)
        z = apply_base(before.double(), call.base).to(x.dtype) + x_t
        states.append(z)
    return call.layout.join(states) if states else x.new_zeros(call.layout.shape(x.shape[1]))


def backward(call: Call, grad: Tensor, last: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N) and dL/drestart (B, N): delta_t = dL/dz_t, dL/dz_{t-1} gains R' delta_t.

    Args:
        call: As in `forward`.
        grad: dL/dz for every row (R, N), or with ``last`` for the last state of each sequence (B, N).
        last: Whether ``grad`` is that of the last states.
    """
    n, layout, base = call.h0.shape[1], call.layout, call.base
    carry = grad.clone() if last else grad.new_zeros(layout.batch, n)
    grads = [None] * layout.length if last else layout.split(grad)
    sizes = layout.sizes or [layout.batch] * layout.length
    deltas: list[Tensor] = []
    grad_restart = None if call.restart is None else torch.zeros_like(carry)
    for size, grad_t, reset in reversed(list(zip(sizes, grads, layout.split_resets()))):
        delta = carry[:size] if grad_t is None else carry[:size] + grad_t
        deltas.append(delta)
        before = cut(apply_base_transpose(delta.double(), base).to(grad.dtype), reset, grad_restart)
        carry = torch.cat([before, carry[size:]])
    return torch.cat(deltas[::-1]) if deltas else grad.new_zeros(0, n), carry, grad_restart
