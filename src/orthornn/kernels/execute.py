"""Run a call on its backend, forward or backward: what every autograd frame does."""

from __future__ import annotations

from . import checkpointing
from .call import Call, Gradients, Needs, Residuals, States
from .dispatch import find


def forward(call: Call, save: bool) -> tuple[States, Residuals]:
    """Return the states of a call and, if ``save``, what its backward pass needs."""
    backend = find(call)
    if call.options.segment_length is not None:
        return checkpointing.forward(backend, call, save)
    return backend.forward(call, save)


def backward(call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
    """Return the gradients of a call; that of x has its shape."""
    backend = find(call)
    if call.options.segment_length is not None:
        gradients = checkpointing.backward(backend, call, grad, residuals, needs)
    else:
        if grad.all is not None:
            grad = States(grad.all.reshape(call.layout.rows, call.h0.shape[1]), grad.last)
        gradients = backend.backward(call, grad, residuals, needs)
    # A backend may return more than was asked for.
    found = [g if need else None for g, need in zip(gradients, needs)]
    if found[0] is not None:
        found[0] = found[0].view(call.x.shape)
    return Gradients(*found)
