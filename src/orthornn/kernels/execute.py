"""Run a call on its backend, forward or backward: what every autograd frame does."""

from __future__ import annotations

from collections.abc import Sequence

from . import checkpointing
from .backends import Backend
from .call import Call, Gradients, Needs, Residuals, States
from .dispatch import find

_H0 = Needs._fields.index("h0")


def forward(call: Call, save: bool) -> tuple[States, Residuals]:
    """Return the states of a call and, if ``save``, what its backward pass needs."""
    backend = find(call)
    if call.options.segment_length is None:
        return backend.forward(call, save)
    states, starts = checkpointing.forward(backend.forward, backend.prepare(call), save)
    return states, Residuals(starts=starts)


def backward(call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
    """Return the gradients of a call; that of x has its shape."""
    backend = find(call)
    if call.options.segment_length is not None:
        gradients = _backward_in_segments(backend, call, grad, residuals, needs)
    else:
        if grad.all is not None:
            grad = States(grad.all.reshape(call.layout.rows, call.h0.shape[1]), grad.last)
        gradients = backend.backward(call, grad, residuals, needs)
    # A backend may return more than was asked for.
    found = [g if need else None for g, need in zip(gradients, needs)]
    if found[0] is not None:
        found[0] = found[0].view(call.x.shape)
    return Gradients(*found)


def _backward_in_segments(backend: Backend, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
    def run(part: Call, save: bool) -> tuple[States, Residuals]:
        states, saved = backend.forward(part, save)
        return states, saved._replace(states=states.all)

    def run_backward(part: Call, grad: States, saved: checkpointing.Tensors, needs: Sequence[bool]) -> Gradients:
        return backend.backward(part, grad, Residuals(*saved), Needs(*needs))

    assert residuals.starts is not None
    call = backend.prepare(call.changed(options=call.options.changed(only_last=False)))
    found = checkpointing.backward(run, run_backward, call, grad, residuals.starts, needs, _H0)
    return Gradients(*found)
