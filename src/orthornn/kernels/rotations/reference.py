"""The recurrence of rotations: the specification that every other backend is tested against.

z_t = R z_{t-1} + x_t,   R z = c * z + s * swap(z)   (swap exchanges the halves; see orthornn.compact_wy).

c and s come in float64, and R z is computed there before it is rounded to the dtype of the states: an error of c or s
would add up in one direction over the steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compact_wy import apply_base, apply_base_transpose
from ..sequence import Steps


def forward(x: Tensor, h0: Tensor, c: Tensor, s: Tensor, steps: Steps) -> Tensor:
    """States (R, N) from projected rows x (R, N), h0 (B, N), c (N,) and s (N,)."""
    z, states = h0, []
    for x_t in steps.split(x):
        z = apply_base(z[: x_t.shape[0]].double(), (c, s)).to(x.dtype) + x_t
        states.append(z)
    return torch.cat(states) if states else torch.zeros_like(x)


def backward(grad: Tensor, last: bool, c: Tensor, s: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """delta (R, N) and dL/dh0 (B, N): delta_t = dL/dz_t, dL/dz_{t-1} gains R' delta_t.

    grad: dL/dz through the output for every row (R, N), or with `last` for each sequence's last state alone (B, N).
    """
    n = c.shape[0]
    carry = grad.clone() if last else grad.new_zeros(steps.batch, n)
    grads = [None] * steps.length if last else steps.split(grad)
    sizes = steps.sizes or [steps.batch] * steps.length
    deltas: list[Tensor] = []
    for size, grad_t in zip(reversed(sizes), reversed(grads)):
        delta = carry[:size] if grad_t is None else carry[:size] + grad_t
        deltas.append(delta)
        carry = torch.cat([apply_base_transpose(delta.double(), (c, s)).to(grad.dtype), carry[size:]])
    return torch.cat(deltas[::-1]) if deltas else grad.new_zeros(0, n), carry


def reverse(x: Tensor, z_last: Tensor, c: Tensor, s: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """States (R, N) that end in z_last (B, N), and the state (B, N) before them: z_{t-1} = R'(z_t - x_t), |R| = 1."""
    z, states = z_last, []
    for x_t in reversed(steps.split(x)):
        states.append(z[: x_t.shape[0]])
        before = apply_base_transpose((states[-1] - x_t).double(), (c, s)).to(x.dtype)
        z = torch.cat([before, z[x_t.shape[0] :]])
    return torch.cat(states[::-1]), z
