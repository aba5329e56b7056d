"""The compiled kernel of rotations over irregular time (csrc/irregular.hpp) on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..backends.cpp import extension
from ..backends.cpp.memory import check, empty, empty_like_needed, memory, memory_or_none
from ..call import States
from .call import Gradients, IrregularCall


def forward(call: IrregularCall, save: bool) -> tuple[States, Tensor | None]:
    """Return the states and, if ``save``, all of them for the backward pass."""
    given = _arguments(call)
    h0, layout = given["h0"], call.layout
    states = empty(h0, layout.shape(h0.shape[1])) if save or not call.options.only_last else None
    last = torch.empty_like(h0)
    x = memory(layout.flatten(call.x))
    check("x", x, (layout.rows, h0.shape[1]), h0.dtype)
    extension.native.irregular_forward(**given, x=x, states=states, last=last, threads=torch.get_num_threads())
    return States(None if call.options.only_last else states, last), states if save else None


def backward(call: IrregularCall, grad: States, states: Tensor, needs: Sequence[bool]) -> Gradients:
    """Return the required gradients."""
    given = _arguments(call)
    h0 = given["h0"]
    like = (call.x, None, None, None, call.h0, call.restart)
    x, _, _, _, by_h0, by_restart = empty_like_needed(h0, like, needs)
    doubles = (call.angles, call.rates, call.dt)
    angles, rates, dt = empty_like_needed(given["dt"], doubles, needs[1:4])
    extension.native.irregular_backward(
        **given,
        states=memory(states),
        grad_states=None if grad.all is None else memory(grad.all.to(h0.dtype)),
        grad_last=None if grad.last is None else memory(grad.last.to(h0.dtype)),
        grad_x=x,
        grad_angles=angles,
        grad_rates=rates,
        grad_dt=dt,
        grad_h0=by_h0,
        grad_restart=by_restart,
        threads=torch.get_num_threads(),
    )
    return x, angles, rates, dt, by_h0, by_restart


def _arguments(call: IrregularCall) -> dict[str, Any]:
    """Return sizes and tensors for the kernel, contiguous, after checks that keep its addresses inside them."""
    layout, h0, restart = call.layout, memory(call.h0), memory_or_none(call.restart)
    n, double = h0.shape[1], torch.float64
    angles, rates, dt = memory(call.angles), memory(call.rates), memory(layout.flatten(call.dt))
    check("h0", h0, (layout.batch, n), h0.dtype)
    check("restart", restart, (layout.batch, n), h0.dtype)
    check("angles", angles, (n // 2,), double)
    check("rates", rates, (n - n // 2,), double)
    check("dt", dt, (layout.rows,), double)
    return {
        "element_size": h0.element_size(),
        "T": layout.length,
        "B": layout.batch,
        "N": n,
        "R": layout.rows,
        "batch_sizes": memory_or_none(layout.batch_sizes),
        "resets": memory_or_none(layout.resets),
        "angles": angles,
        "rates": rates,
        "dt": dt,
        "h0": h0,
        "restart": restart,
    }
