"""The entry of a checked call: chooses the backend and the autograd frame, as kernels/autograd.py does.

frame                          used for
torch.autograd.Function        the compiled kernel, eager mode
custom operators               the compiled kernel under torch.compile, torch.export, dispatch modes, tensor subclasses
plain torch operations         other devices and backends, torch.func transforms, forward mode, higher derivatives
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._checks import is_transformed
from ...errors import BackendError
from ...layout import SequenceLayout
from ..autograd import plain_gradients
from ..backends.cpp import extension
from ..batched import for_each_gradient
from ..call import States
from ..interception import is_autocast, is_intercepted, no_autocast
from ..operators import CallOperator, Given
from . import chunked, cpp, reference
from .call import DeltaCall, Gradients, Outputs

BACKENDS = ("auto", "cpp", "chunked", "reference")
_TENSORS = 7  # those of DeltaCall.tensors; the resets and the batch sizes follow
_SPARE = 1  # states in an operator's output besides those that are used: graphs treat a size of 1 as a constant


def run(call: DeltaCall) -> Outputs:
    """Return the outputs of a call that has been checked."""
    if is_autocast(call.state):
        with no_autocast(call.state):
            return run(call)
    compiling = torch.compiler.is_compiling()
    if not compiling and (is_transformed() or torch.jit.is_tracing()):
        return plain(call)
    if backend_of(call) != "cpp":
        return plain(call)
    tensors = call.tensors()
    if compiling or is_intercepted(*tensors):
        out = _OPERATOR.run([*tensors, call.layout.resets, call.layout.batch_sizes], call.backend)
        return Outputs(out[0], out[1])
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
        return Outputs(*_Delta.apply(call.layout, call.backend, *tensors))
    return cpp.forward(call, False)[0]


def plain(call: DeltaCall) -> Outputs:
    """Return the outputs by plain torch operations, each of them differentiable."""
    if call.layout.length == 0:
        # Of every tensor nothing, but the graph of any other sequence.
        rows = torch.cat([t[:0].flatten() for t in call.tensors() if t is not None]).to(call.state.dtype)
        return Outputs(rows.view(*call.layout.shape(call.shape[1]), call.shape[3]), call.state + rows.sum())
    return (reference if call.backend == "reference" else chunked).forward(call)


def backend_of(call: DeltaCall) -> str:
    """Return "cpp", "chunked" or "reference".

    Raises:
        BackendError: If the backend that was asked for cannot run.
    """
    device = call.state.device
    reason = extension.missing() if device.type == "cpu" else f"it runs on the CPU only, not on {device}"
    if call.backend == "cpp" and reason is not None:
        raise BackendError(f"Expected a backend that can run here, but got 'cpp': {reason}. Use backend='auto'.")
    if call.backend == "auto":
        return "cpp" if reason is None else "chunked"
    return call.backend


class _Delta(torch.autograd.Function):
    """A call of the compiled kernel as one node: its tensors in, what is read and the last states out."""

    @staticmethod
    def forward(ctx: Any, layout: SequenceLayout, backend: str, *tensors: Any) -> tuple[Tensor | None, Tensor | None]:
        outputs, marks = cpp.forward(DeltaCall.of(tensors, layout, backend), True)
        ctx.layout, ctx.backend = layout, backend
        ctx.save_for_backward(*tensors, layout.batch_sizes, layout.resets, marks)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_out is None and grad_last is None:
            return (None,) * (2 + _TENSORS)
        *tensors, _, _, marks = ctx.saved_tensors
        call, needs = DeltaCall.of(tensors, ctx.layout, ctx.backend), ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # a higher derivative will be asked for
            return None, None, *_plain_gradients(call, Outputs(grad_out, grad_last), needs)

        def gradients(grad_out: Tensor | None, grad_last: Tensor | None) -> Gradients:
            return cpp.backward(call, Outputs(grad_out, grad_last), marks, needs)

        return None, None, *for_each_gradient(gradients, grad_out, grad_last)


def _plain_gradients(call: DeltaCall, grad: Outputs, needs: Sequence[bool]) -> Gradients:
    """Return gradients by plain torch operations."""

    def again(*tensors: Any) -> States:
        return States(*plain(DeltaCall.of(tensors, call.layout, call.backend)))

    return plain_gradients(again, call.tensors(), States(*grad), needs)


class _Operator(CallOperator[DeltaCall]):
    """The compiled kernel as operators."""

    name = "delta"
    differentiable = _TENSORS
    like = DeltaCall._fields.index("state")
    first_saved = 2

    def read(self, given: list[Tensor | None], options: str) -> DeltaCall:
        *own, resets, batch_sizes = given
        q, state = own[0], own[self.like]
        assert q is not None
        assert state is not None
        return DeltaCall.of(own, SequenceLayout.of(q, batch_sizes, state.shape[0], resets), options)

    def forward(self, call: DeltaCall) -> Given:
        """Return what is read, the last states, and the states before the chunks."""
        outputs, marks = cpp.forward(call, True, _SPARE)
        return (*outputs, marks)

    def shapes(self, call: DeltaCall) -> Given:
        state, (_, H, _, V) = call.state, call.shape
        marks = state.new_empty(cpp.chunks(call) + _SPARE, *state.shape)
        return state.new_empty(*call.layout.shape(H), V), state.new_empty(state.shape), marks

    def backward(self, call: DeltaCall, grads: list[Tensor | None], saved: list[Tensor], needs: list[bool]) -> Given:
        return cpp.backward(call, Outputs(*grads), saved[0], needs)


_OPERATOR = _Operator()
