"""The loop over steps, forward and backward, that the recurrences of this folder share; each has its own product W h.

h_t = phi(a_t),  a_t = W h_{t-1} + x_t,    delta_t = dL/da_t = clip(phi'(a_t) dL/dh_t),  dL/dh_{t-1} gains W' delta_t.

`forward` is plain torch, so autograd, torch.func and higher derivatives go through it. `backward` is written out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ....layout import cut, restarted
from ...call import Call

Map = Callable[[Tensor], Tensor]  # of the rows of one step


def forward(call: Call, x: Tensor, product: Map) -> tuple[Tensor, Tensor | None]:
    """Return states and, if phi' reads them, the pre-activations (R, N).

    Args:
        call: Everything but its input and its transition is read here.
        x: Projected rows (R, N).
        product: h -> W h.
    """
    layout, activation, parameter = call.layout, call.options.activation, call.parameter
    h, states, preactivations = call.h0, [], []
    for x_t, reset in zip(layout.split(x), layout.split_resets()):
        a = product(restarted(h[: x_t.shape[0]], reset, call.restart)) + x_t
        h = activation(a, parameter)
        states.append(h)
        preactivations.append(a)
    joined = layout.join(states).to(x.dtype) if states else x.new_zeros(layout.shape(x.shape[1]))
    if activation.reads == "state":
        return joined, None
    return joined, torch.cat(preactivations).to(x.dtype) if preactivations else torch.zeros_like(x)


def backward(
    call: Call, grad: Tensor, last: bool, saved: Tensor, adjoint: Map
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter and dL/drestart (B, N).

    Args:
        call: As in `forward`.
        grad: dL/dh for every row (R, N), or with ``last`` for the last state of each sequence (B, N).
        last: Whether ``grad`` is that of the last states.
        saved: States or pre-activations (R, N), whichever phi' reads, in the dtype of ``grad``.
        adjoint: delta -> W' delta. It is called for the last step first.
    """
    layout, activation, parameter, clip = call.layout, call.options.activation, call.parameter, call.options.clip
    # Row b of `carry` is dL/dh of sequence b at its latest step not yet passed; a sequence that has not begun (going
    # backwards) still holds the gradient of its last state.
    carry = grad.clone() if last else grad.new_zeros(call.h0.shape)
    grads = [None] * layout.length if last else layout.split(grad)
    deltas: list[Tensor] = []
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
        deltas.append(delta)
        carry = torch.cat([cut(adjoint(delta), reset, grad_restart), carry[saved_t.shape[0] :]])
    return torch.cat(deltas[::-1]) if deltas else torch.zeros_like(saved), carry, grad_parameter, grad_restart
