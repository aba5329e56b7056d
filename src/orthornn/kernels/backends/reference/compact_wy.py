"""The compact-WY recurrence: the specification that every other backend is tested against.

h_t = phi(a_t),  a_t = (I - U S U') B h_{t-1} + x_t,  S = T^-1 (orthornn.compact_wy has the algebra).

Rows may be stored in bfloat16 next to float32 operands, as in the dense recurrence.

`factor_gradients` is Theorem 2 of Mhammedi et al. (2017) summed over all rows at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....compact_wy import Base, apply_base, apply_base_transpose, reflect, reflect_transpose, reflector_gradient, swap
from ...call import Call, States
from ...loop import Loop


def forward(call: Call, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return states, pre-activations (R, N) if phi' reads them, and h~ (R, M).

    Args:
        call: Call with its factors, U (N, M) and S (M, M).
        x: Projected rows (R, N).
    """
    assert call.factors is not None
    (U, S), base = call.factors, call.base
    h_tildes: list[Tensor] = []

    def product(h: Tensor) -> Tensor:
        C, h_tilde = reflect(apply_base(h, base), U, S)
        h_tildes.append(h_tilde)
        return C

    states, preactivations = Loop.of(call).forward(x, product)
    return states, preactivations, torch.cat(h_tildes).to(x.dtype) if h_tildes else x.new_zeros(0, U.shape[1])


def backward(call: Call, grad: States, saved: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter, C~ (R, M) and dL/drestart (B, N).

    The arguments are the same as for the loop.
    """
    assert call.factors is not None
    (U, S), base = call.factors, call.base
    C_tildes: list[Tensor] = []

    def adjoint(delta: Tensor) -> Tensor:
        e, C_tilde = reflect_transpose(delta, U, S)
        C_tildes.append(C_tilde)
        return apply_base_transpose(e, base)

    found = Loop.of(call).backward(grad, saved, adjoint)
    delta, grad_h0, grad_parameter, grad_restart = found
    C_tilde = torch.cat(C_tildes[::-1]) if C_tildes else delta.new_zeros(0, U.shape[1])
    return delta, grad_h0, grad_parameter, C_tilde, grad_restart


def factor_gradients(
    call: Call, delta: Tensor, h_tilde: Tensor, C_tilde: Tensor, states: Tensor, needs_base: bool
) -> tuple[Tensor, Base]:
    """Return dL/dU (N, M) by Theorem 2, and (dL/dc, dL/ds) if ``needs_base``, from all rows at once.

    With h' = B h_{t-1}: sum h'C~' = c * P + s * swap(P) for P = sum h_{t-1} C~', since B acts on the index of the
    state.
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
