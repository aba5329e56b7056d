"""The compact-WY recurrence: the specification that every other backend is tested against.

h_t = phi(a_t),  a_t = (I - U S U') B h_{t-1} + x_t,  S = T^-1 (orthornn.compact_wy has the algebra).

Rows may be stored in bfloat16 beside float32 operands, as in the dense recurrence.

`forward` is plain torch, so autograd, torch.func and higher derivatives go through it. `backward` is the chain written
out; `factor_gradients` is Theorem 2 of Mhammedi et al. (2017) summed over all rows at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...activations import Activation
from ...compact_wy import Base, apply_base, apply_base_transpose, reflect, reflect_transpose, reflector_gradient, swap
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
) -> tuple[Tensor, Tensor | None, Tensor]:
    """States (R, N), pre-activations (R, N) if the activation's derivative reads them, and h~ (R, M).

    x: projected rows (R, N); h0: (B, N); U: (N, M); S: (M, M); base: None or (c, s), each (N,).
    """
    h, states, preactivations, h_tildes = h0, [], [], []
    for x_t in steps.split(x):
        C, h_tilde = reflect(apply_base(h[: x_t.shape[0]], base), U, S)
        a = C + x_t
        h = activation(a, parameter)
        states.append(h)
        preactivations.append(a)
        h_tildes.append(h_tilde)
    rows = torch.cat(states).to(x.dtype) if states else torch.zeros_like(x)
    kept = (
        None
        if activation.reads == "state"
        else (torch.cat(preactivations).to(x.dtype) if preactivations else torch.zeros_like(x))
    )
    return rows, kept, torch.cat(h_tildes).to(x.dtype) if h_tildes else x.new_zeros(0, U.shape[1])


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
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """delta (R, N), dL/dh0 (B, N), dL/dparameter and C~ (R, M); grad and kept as in the dense recurrence."""
    grad, kept = grad.to(U.dtype), kept.to(U.dtype)
    carry = grad.clone() if last else grad.new_zeros(steps.batch, U.shape[0])
    grads = [None] * steps.length if last else steps.split(grad)
    deltas: list[Tensor] = []
    C_tildes: list[Tensor] = []
    by_parameter = None if parameter is None else torch.zeros_like(parameter)
    for kept_t, grad_t in zip(reversed(steps.split(kept)), reversed(grads)):
        active = carry[: kept_t.shape[0]]
        delta, parameter_rows = activation.backward(active if grad_t is None else active + grad_t, kept_t, parameter)
        if by_parameter is not None and parameter_rows is not None:
            by_parameter += parameter_rows.sum(dim=0)
        if clip is not None:
            delta = delta.clamp(-clip, clip)
        e, C_tilde = reflect_transpose(delta, U, S)
        deltas.append(delta)
        C_tildes.append(C_tilde)
        carry = torch.cat([apply_base_transpose(e, base), carry[kept_t.shape[0] :]])
    if not deltas:
        return torch.zeros_like(kept), carry, by_parameter, kept.new_zeros(0, U.shape[1])
    return torch.cat(deltas[::-1]), carry, by_parameter, torch.cat(C_tildes[::-1])


def reverse(
    x: Tensor,
    h_last: Tensor,
    U: Tensor,
    S: Tensor,
    base: Base,
    activation: Activation,
    parameter: Tensor | None,
    order: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States (R, N), pre-activations (R, N) and h~ (R, M) that end in h_last (B, N), and the state (B, N) before them.

    h_{t-1} = B'(I - U S'U') g with g = phi^-1(h_t) - x_t, and h~_t = -S'U'g (derivation: README.md); order as in the
    dense recurrence.
    """
    h, states, preactivations, h_tildes = h_last, [], [], []
    orders = [None] * steps.length if order is None else steps.split(order)
    for x_t, order_t in zip(reversed(steps.split(x)), reversed(orders)):
        states.append(h[: x_t.shape[0]])
        a = activation.inverse(states[-1], parameter, order_t)
        preactivations.append(a)
        e, C_tilde = reflect_transpose(a - x_t, U, S)
        h_tildes.append(-C_tilde)
        h = torch.cat([apply_base_transpose(e, base), h[x_t.shape[0] :]])
    return torch.cat(states[::-1]), torch.cat(preactivations[::-1]), torch.cat(h_tildes[::-1]), h


def factor_gradients(
    delta: Tensor,
    h_tilde: Tensor,
    C_tilde: Tensor,
    states: Tensor,
    h0: Tensor,
    U: Tensor,
    base: Base,
    steps: Steps,
    needs_base: bool,
) -> tuple[Tensor, Base]:
    """dL/dU (N, M) by Theorem 2, and (dL/dc, dL/ds) if `needs_base`, from all rows at once.

    With h' = B h_{t-1}: sum h'C~' = c * P + s * swap(P) for P = sum h_{t-1} C~', since B acts on the state's index.
    """
    h_tilde = h_tilde.to(delta.dtype)
    h_C_tilde = apply_base(steps.outer(C_tilde, states, h0), base).mT
    by_U = reflector_gradient(U, h_tilde.mT @ C_tilde, delta.mT @ h_tilde, h_C_tilde)
    if not needs_base:
        return by_U, None
    e = delta - C_tilde @ U.mT
    h = steps.previous(states, h0)
    return by_U, ((e * h).sum(dim=0), (e * swap(h)).sum(dim=0))
