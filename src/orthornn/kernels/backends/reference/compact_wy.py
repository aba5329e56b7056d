"""The compact-WY recurrence: the specification that every other backend is tested against.

h_t = phi(a_t),  a_t = (I - U S U') B h_{t-1} + x_t,  S = T^-1 (orthornn.compact_wy has the algebra).

Rows may be stored in bfloat16 beside float32 operands, as in the dense recurrence.

`forward` is plain torch, so autograd, torch.func and higher derivatives go through it. `backward` is the chain written
out; `factor_gradients` is Theorem 2 of Mhammedi et al. (2017) summed over all rows at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....compact_wy import Base, apply_base, apply_base_transpose, reflect, reflect_transpose, reflector_gradient, swap
from ....layout import cut, restarted
from ...call import Call


def forward(call: Call, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return states, pre-activations (R, N) if phi' reads them, and h~ (R, M).

    Args:
        call: With its factors, U (N, M) and S (M, M).
        x: Projected rows (R, N).
    """
    assert call.factors is not None
    (U, S), base, activation, parameter = call.factors, call.base, call.options.activation, call.parameter
    h, states, preactivations, h_tildes = call.h0, [], [], []
    for x_t, reset in zip(call.layout.split(x), call.layout.split_resets()):
        before = restarted(h[: x_t.shape[0]], reset, call.restart)
        C, h_tilde = reflect(apply_base(before, base), U, S)
        a = C + x_t
        h = activation(a, parameter)
        states.append(h)
        preactivations.append(a)
        h_tildes.append(h_tilde)
    layout = call.layout
    joined = layout.join(states).to(x.dtype) if states else x.new_zeros(layout.shape(x.shape[1]))
    saved = (
        None
        if activation.reads == "state"
        else (torch.cat(preactivations).to(x.dtype) if preactivations else torch.zeros_like(x))
    )
    return joined, saved, torch.cat(h_tildes).to(x.dtype) if h_tildes else x.new_zeros(0, U.shape[1])


def backward(
    call: Call, grad: Tensor, last: bool, saved: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter, C~ (R, M) and dL/drestart (B, N).

    The arguments are those of the dense recurrence.
    """
    assert call.factors is not None
    (U, S), base, activation, parameter = call.factors, call.base, call.options.activation, call.parameter
    layout, clip = call.layout, call.options.clip
    grad, saved = grad.to(U.dtype), saved.to(U.dtype)
    carry = grad.clone() if last else grad.new_zeros(layout.batch, U.shape[0])
    grads = [None] * layout.length if last else layout.split(grad)
    deltas: list[Tensor] = []
    C_tildes: list[Tensor] = []
    grad_parameter = None if parameter is None else torch.zeros_like(parameter)
    grad_restart = None if call.restart is None else torch.zeros_like(carry)
    steps = zip(layout.split(saved), grads, layout.split_resets())
    for saved_t, grad_t, reset in reversed(list(steps)):
        active = carry[: saved_t.shape[0]]
        delta, parameter_rows = activation.backward(active if grad_t is None else active + grad_t, saved_t, parameter)
        if grad_parameter is not None and parameter_rows is not None:
            grad_parameter += parameter_rows.sum(dim=0)
        if clip is not None:
            delta = delta.clamp(-clip, clip)
        e, C_tilde = reflect_transpose(delta, U, S)
        deltas.append(delta)
        C_tildes.append(C_tilde)
        before = cut(apply_base_transpose(e, base), reset, grad_restart)
        carry = torch.cat([before, carry[saved_t.shape[0] :]])
    if not deltas:
        return torch.zeros_like(saved), carry, grad_parameter, saved.new_zeros(0, U.shape[1]), grad_restart
    return torch.cat(deltas[::-1]), carry, grad_parameter, torch.cat(C_tildes[::-1]), grad_restart


def factor_gradients(
    call: Call, delta: Tensor, h_tilde: Tensor, C_tilde: Tensor, states: Tensor, needs_base: bool
) -> tuple[Tensor, Base]:
    """Return dL/dU (N, M) by Theorem 2, and (dL/dc, dL/ds) if ``needs_base``, from all rows at once.

    With h' = B h_{t-1}: sum h'C~' = c * P + s * swap(P) for P = sum h_{t-1} C~', since B acts on the state's index.
    """
    assert call.factors is not None
    (U, _), base, layout = call.factors, call.base, call.layout
    h_tilde = h_tilde.to(delta.dtype)
    h_C_tilde = apply_base(layout.sum_outer(C_tilde, states, call.h0, call.restart), base).mT
    grad_U = reflector_gradient(U, h_tilde.mT @ C_tilde, delta.mT @ h_tilde, h_C_tilde)
    if not needs_base:
        return grad_U, None
    e = delta - C_tilde @ U.mT
    h = layout.previous(states, call.h0, call.restart)
    return grad_U, ((e * h).sum(dim=0), (e * swap(h)).sum(dim=0))
