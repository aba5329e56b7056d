"""The dense recurrence: the specification that every other backend is tested against.

h_t = phi(a_t),  a_t = W h_{t-1} + x_t,  on rows: A_t = H_{t-1} W' + X_t.

Rows (x, states, what is kept, their gradients) may be stored in bfloat16 beside a float32 h0, W and parameter: then the
state that goes from step to step is the unrounded one, and everything is computed in float32.

`forward` is plain torch, so autograd, torch.func and higher derivatives go through it. `backward` is written out:
delta_t = dL/da_t = clip(phi'(a_t) dL/dh_t),  dL/dh_{t-1} gains W' delta_t.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...activations import Activation
from ..sequence import Steps


def forward(
    x: Tensor, h0: Tensor, W: Tensor, activation: Activation, parameter: Tensor | None, steps: Steps
) -> tuple[Tensor, Tensor | None]:
    """States (R, N) and, if the activation's derivative reads them, the pre-activations (R, N).

    x: projected rows (R, N); h0: (B, N); W: (N, N).
    """
    h, states, preactivations = h0, [], []
    for x_t in steps.split(x):
        a = h[: x_t.shape[0]] @ W.t() + x_t
        h = activation(a, parameter)
        states.append(h)
        preactivations.append(a)
    rows = torch.cat(states).to(x.dtype) if states else torch.zeros_like(x)
    if activation.reads == "state":
        return rows, None
    return rows, torch.cat(preactivations).to(x.dtype) if preactivations else torch.zeros_like(x)


def backward(
    grad: Tensor,
    last: bool,
    kept: Tensor,
    W: Tensor,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """delta (R, N), dL/dh0 (B, N) and dL/dparameter.

    grad: dL/dh for every row (R, N), or with `last` for each sequence's last state alone (B, N).
    kept: states or pre-activations (R, N), as activation.reads says.
    """
    grad, kept = grad.to(W.dtype), kept.to(W.dtype)
    # Row b of `carry` is dL/dh of sequence b at its latest step not yet passed; a sequence that has not begun (going
    # backwards) still holds the gradient of its last state.
    carry = grad.clone() if last else grad.new_zeros(steps.batch, W.shape[0])
    grads = [None] * steps.length if last else steps.split(grad)
    deltas: list[Tensor] = []
    by_parameter = None if parameter is None else torch.zeros_like(parameter)
    for kept_t, grad_t in zip(reversed(steps.split(kept)), reversed(grads)):
        active = carry[: kept_t.shape[0]]
        delta, parameter_rows = activation.backward(active if grad_t is None else active + grad_t, kept_t, parameter)
        if by_parameter is not None and parameter_rows is not None:
            by_parameter += parameter_rows.sum(dim=0)
        if clip is not None:
            delta = delta.clamp(-clip, clip)
        deltas.append(delta)
        carry = torch.cat([delta @ W, carry[kept_t.shape[0] :]])
    return torch.cat(deltas[::-1]) if deltas else torch.zeros_like(kept), carry, by_parameter


def reverse(
    x: Tensor,
    h_last: Tensor,
    W: Tensor,
    activation: Activation,
    parameter: Tensor | None,
    order: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Tensor, Tensor]:
    """States (R, N) and pre-activations (R, N) that end in h_last (B, N), and the state (B, N) before them.

    h_{t-1} = W' (phi^-1(h_t) - x_t), for orthogonal W. order: (R, N//2) for oplu, see Activation.inverse.
    """
    h, states, preactivations = h_last, [], []
    orders = [None] * steps.length if order is None else steps.split(order)
    for x_t, order_t in zip(reversed(steps.split(x)), reversed(orders)):
        states.append(h[: x_t.shape[0]])
        a = activation.inverse(states[-1], parameter, order_t)
        preactivations.append(a)
        h = torch.cat([(a - x_t) @ W, h[x_t.shape[0] :]])
    return torch.cat(states[::-1]), torch.cat(preactivations[::-1]), h
