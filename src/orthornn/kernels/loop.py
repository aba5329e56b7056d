"""The loop over steps in plain torch, forward and backward, for any product W h.

h_t = phi(a_t),  a_t = W h_{t-1} + x_t,    delta_t = dL/da_t = clip(phi'(a_t) dL/dh_t),  dL/dh_{t-1} gains W' delta_t.

The reference backend and transitions given by functions use it. `Loop.forward` is plain torch, which autograd,
torch.func and higher derivatives can differentiate. `Loop.backward` is explicit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..activations import Activation
from ..layout import SequenceLayout, cut, restarted
from .call import Call, States

Map = Callable[[Tensor], Tensor]  # of the rows of one step


class Loop(NamedTuple):
    """The part of a call that the loop reads, in addition to its rows and its transition; see `Call` and `Options`."""

    layout: SequenceLayout
    h0: Tensor
    restart: Tensor | None
    activation: Activation
    parameter: Tensor | None
    clip: float | None

    @classmethod
    def of(cls, call: Call) -> Loop:
        """Return the loop of a call."""
        options = call.options
        return cls(call.layout, call.h0, call.restart, options.activation, call.parameter, options.clip)

    def forward(self, x: Tensor, product: Map) -> tuple[Tensor, Tensor | None]:
        """Return states and, if phi' reads them, the pre-activations (R, N).

        Args:
            x: Projected rows (R, N).
            product: h -> W h.
        """
        layout, activation = self.layout, self.activation
        h, states, preactivations = self.h0, [], []
        for x_t, reset in zip(layout.split(x), layout.split_resets()):
            a = product(restarted(h[: x_t.shape[0]], reset, self.restart)) + x_t
            h = activation(a, self.parameter)
            states.append(h)
            preactivations.append(a)
        joined = layout.join(states).to(x.dtype) if states else x.new_zeros(layout.shape(x.shape[1]))
        if activation.reads == "state":
            return joined, None
        return joined, torch.cat(preactivations).to(x.dtype) if preactivations else torch.zeros_like(x)

    def backward(
        self, grad: States, saved: Tensor, adjoint: Map
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter and dL/drestart (B, N).

        Args:
            grad: The gradients of all states, as rows (R, N), and of the last ones (B, N); one of them may be None.
            saved: States or pre-activations (R, N), depending on which phi' reads, in the dtype of ``grad`` and h_0.
            adjoint: delta -> W' delta. It is called for the last step first.
        """
        layout, activation, parameter, clip = self.layout, self.activation, self.parameter, self.clip
        # Row b of `carry` is dL/dh of sequence b at its latest step not yet passed; a sequence that has not begun (going
        # backwards) still holds the gradient of its last state.
        carry = saved.new_zeros(self.h0.shape) if grad.last is None else grad.last.clone()
        grads = [None] * layout.length if grad.all is None else layout.split(grad.all)
        deltas: list[Tensor] = []
        grad_parameter = None if parameter is None else torch.zeros_like(parameter)
        grad_restart = None if self.restart is None else torch.zeros_like(carry)
        steps = zip(layout.split(saved), grads, layout.split_resets())
        for saved_t, grad_t, reset in reversed(list(steps)):
            active = carry[: saved_t.shape[0]]
            delta, parameter_rows = activation.backward(
                active if grad_t is None else active + grad_t, saved_t, parameter
            )
            if grad_parameter is not None and parameter_rows is not None:
                grad_parameter += parameter_rows.sum(dim=0)
            if clip is not None:
                delta = delta.clamp(-clip, clip)
            deltas.append(delta)
            carry = torch.cat([cut(adjoint(delta), reset, grad_restart), carry[saved_t.shape[0] :]])
        return torch.cat(deltas[::-1]) if deltas else torch.zeros_like(saved), carry, grad_parameter, grad_restart
