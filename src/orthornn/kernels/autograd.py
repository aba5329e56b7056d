"""The one entry of a checked call: chooses the autograd frame, once.

frame                          used for
torch.autograd.Function        eager mode: it costs least
custom operators               torch.compile, torch.export, dispatch modes, tensor subclasses (custom_ops.py)
plain torch operations         torch.func transforms, forward mode, higher derivatives
none                           no gradient is needed: nothing is saved

The node returns all states and the last ones, and a gradient that does not arrive costs nothing: reading the last state
as h_n, as the last output, or as the only output (`only_last`) is the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._checks import is_transformed
from ..layout import SequenceLayout
from . import custom_ops, execute
from .backends import REFERENCE
from .batched import for_each_gradient
from .call import Call, Gradients, Needs, Options, Residuals, States
from .interception import is_autocast, is_intercepted, refuse_clip
from .projection import is_tokens, stored_dtype


def run(call: Call) -> States:
    """Return the states of a call that has been checked: all of them, unless ``only_last``, and the last ones."""
    if is_autocast(call.h0):
        with torch.autocast(call.h0.device.type, enabled=False):  # else products inside would be rounded to 16 bits
            return run(call)
    if call.options.segment_length is not None and (stored := stored_dtype(call.x, call.weight_ih)) != call.h0.dtype:
        # What is recomputed is not stored: only the output is rounded.
        wide = call.h0.dtype
        x = call.x if is_tokens(call.x) else call.x.to(wide)
        weight_ih = None if call.weight_ih is None else call.weight_ih.to(wide)
        return States(*(None if t is None else t.to(stored) for t in run(call.changed(x=x, weight_ih=weight_ih))))
    compiling = torch.compiler.is_compiling()
    if not compiling and (is_transformed() or torch.jit.is_tracing()):  # a trace would replay unwritten memory
        return plain(call)
    tensors = call.tensors()
    if compiling or is_intercepted(*tensors):
        return custom_ops.run(call)
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
        return States(*_Recurrence.apply(call.layout, call.options, *tensors))
    return execute.forward(call, False)[0]


def plain(call: Call) -> States:
    """Return the states by plain torch operations, each of them differentiable."""
    refuse_clip(call.options.clip)
    options = call.options.changed(segment_length=None)
    if options.kind == "rotations":  # (c, s) are constants; the gradient is that of the matrix
        call, options = call.changed(c=None, s=None), options.changed(kind="dense")
    return REFERENCE.forward(call.changed(options=options), False)[0]


class _Recurrence(torch.autograd.Function):
    """A call as one node: its tensors in, all states and the last ones out."""

    @staticmethod
    def forward(
        ctx: Any, layout: SequenceLayout, options: Options, *tensors: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        states, residuals = execute.forward(Call.of(tensors, layout, options), True)
        ctx.layout, ctx.options = layout, options
        # batch_sizes and resets for their version: a change in place is an error.
        ctx.save_for_backward(*tensors, layout.batch_sizes, layout.resets, *residuals)
        ctx.set_materialize_grads(False)
        return states

    @staticmethod
    def backward(ctx: Any, grad_all: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_all is None and grad_last is None:
            return (None,) * (2 + len(Gradients._fields))
        saved = ctx.saved_tensors
        count = len(Needs._fields)
        call, residuals = Call.of(saved[:count], ctx.layout, ctx.options), Residuals(*saved[count + 2 :])
        needs = Needs(*ctx.needs_input_grad[2:])
        if torch.is_grad_enabled():  # a higher derivative will be asked for

            def again(*tensors: Any) -> States:
                return plain(Call.of(tensors, call.layout, call.options))

            return None, None, *plain_gradients(again, call.tensors(), States(grad_all, grad_last), needs)

        def gradients(grad_all: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
            return execute.backward(call, States(grad_all, grad_last), residuals, needs)

        return None, None, *for_each_gradient(gradients, grad_all, grad_last)


def plain_gradients(
    function: Callable[..., States], tensors: tuple[Tensor | None, ...], grad: States, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return gradients of a function of plain torch operations that can be differentiated again; zero for what has no part
    in what it returns."""
    like = next(tensor for tensor in tensors if tensor is not None)
    if is_autocast(like):  # of a backward pass in its context; see execute.backward
        with torch.autocast(like.device.type, enabled=False):
            return plain_gradients(function, tensors, grad, needs)
    # Aliases: one of the tensors may be another one, or made of it, and none is to get the gradient of another.
    tensors = tuple(None if tensor is None else tensor.view_as(tensor) for tensor in tensors)
    states = function(*tensors)
    # Without steps there are states that nothing has made.
    pairs = [(out, g) for out, g in zip(states, grad) if out is not None and g is not None and out.requires_grad]
    wanted = [tensor for tensor, need in zip(tensors, needs) if need and tensor is not None]
    if not pairs:
        found = iter([torch.zeros_like(tensor) for tensor in wanted])
    else:
        outputs, grads = [out for out, _ in pairs], [g for _, g in pairs]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, materialize_grads=True))
    return tuple(next(found) if need else None for need in needs)
