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

from ...errors import BackendError
from ...layout import SequenceLayout
from ..autograd import plain_gradients
from ..backends.cpp import extension
from ..batched import for_each_gradient
from ..call import States
from ..interception import is_intercepted, needs_plain_torch
from ..validation import check_batch_sizes
from . import chunked, cpp, reference
from .call import DeltaCall, Gradients, Outputs

BACKENDS = ("auto", "cpp", "chunked", "reference")
_TENSORS = 7  # those of DeltaCall.tensors; the resets and the batch sizes follow
_SPARE = 1  # states in an operator's output besides those that are used: graphs treat a size of 1 as a constant


def run(call: DeltaCall) -> Outputs:
    """Return the outputs of a call that has been checked."""
    device = call.state.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return run(call)
    compiling = torch.compiler.is_compiling()
    if not compiling and (needs_plain_torch() or torch.jit.is_tracing()):
        return plain(call)
    if backend_of(call) != "cpp":
        return plain(call)
    tensors = call.tensors()
    if compiling or is_intercepted(*tensors):
        return _run_operator(call)
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
        return Outputs(*_Delta.apply(call.layout, call.backend, *tensors))
    return cpp.forward(call, False)[0]


def plain(call: DeltaCall) -> Outputs:
    """Return the outputs by plain torch operations, each of them differentiable."""
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


# The compiled kernel as a pair of custom operators. An operator returns tensors only: empty ones stand for None.


def _run_operator(call: DeltaCall) -> Outputs:
    given = [*call.tensors(), call.layout.resets, call.layout.batch_sizes]
    present = "".join("0" if t is None else "1" for t in given)
    tensors = [call.state.new_empty(0) if t is None else t for t in given]
    out = torch.ops.orthornn.delta(tensors, f"{present}{call.backend}")
    return Outputs(out[0], out[1])


def _read(tensors: list[Tensor], spec: str) -> DeltaCall:
    count = _TENSORS + 2
    *own, resets, batch_sizes = (t if there == "1" else None for t, there in zip(tensors, spec[:count]))
    layout = SequenceLayout.of(tensors[0], batch_sizes, tensors[5].shape[0], resets)
    return DeltaCall.of(own, layout, spec[count:])


@torch.library.custom_op("orthornn::delta", mutates_args=(), schema="(Tensor[] tensors, str spec) -> Tensor[]")
def _operator(tensors: list[Tensor], spec: str) -> list[Tensor]:
    """Return what is read, the last states, and the states before the chunks."""
    call = _read(tensors, spec)
    if call.layout.batch_sizes is not None:
        check_batch_sizes(call.layout.batch_sizes, call.layout.rows, call.layout.batch)
    (out, last), marks = cpp.forward(call, True, _SPARE)
    assert out is not None
    assert last is not None
    assert marks is not None
    return [out, last, marks]


@_operator.register_fake
def _operator_fake(tensors: list[Tensor], spec: str) -> list[Tensor]:
    call = _read(tensors, spec)
    state, (_, H, _, V) = call.state, call.shape
    marks = state.new_empty(cpp.chunks(call) + _SPARE, *state.shape)
    return [state.new_empty(*call.layout.shape(H), V), state.new_empty(state.shape), marks]


@torch.library.custom_op(
    "orthornn::delta_backward",
    mutates_args=(),
    schema="(Tensor[] grads, Tensor[] tensors, Tensor marks, str needs, str spec) -> Tensor[]",
)
def _operator_backward(
    grads: list[Tensor], tensors: list[Tensor], marks: Tensor, needs: str, spec: str
) -> list[Tensor]:
    """Return the gradients of the call's tensors.

    Args:
        grads: Those that arrive, empty where none does.
        tensors: The operator's inputs. marks: Its last output.
        needs: "1" or "0" for each tensor of the call, then whether each gradient arrives. spec: As in the forward operator.
    """
    call = _read(tensors, spec)
    grad = Outputs(*(g if flag == "1" else None for g, flag in zip(grads, needs[_TENSORS:])))
    found = cpp.backward(call, grad, marks, [flag == "1" for flag in needs[:_TENSORS]])
    return [call.state.new_empty(0) if g is None else g for g in found]


@_operator_backward.register_fake
def _operator_backward_fake(
    grads: list[Tensor], tensors: list[Tensor], marks: Tensor, needs: str, spec: str
) -> list[Tensor]:
    call = _read(tensors, spec)
    return [
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and flag == "1"
        else call.state.new_empty(0)
        for t, flag in zip(call.tensors(), needs)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, spec = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.spec = spec
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None] | None, None]:
    *tensors, marks = ctx.saved_tensors
    arriving = grads[:2]
    if all(g is None for g in arriving):
        return [None] * (_TENSORS + 2), None
    like, requires = tensors[5], ctx.needs_input_grad[0][:_TENSORS]
    needs = "".join("1" if flag else "0" for flag in (*requires, *(g is not None for g in arriving)))
    given = [like.new_empty(0) if g is None else g for g in arriving]
    found = torch.ops.orthornn.delta_backward(given, tensors, marks, needs, ctx.spec)
    return [*(g if flag else None for g, flag in zip(found, requires)), None, None], None


_operator.register_autograd(_autograd, setup_context=_setup_context)
