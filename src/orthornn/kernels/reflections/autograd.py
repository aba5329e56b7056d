"""The entry of a checked call: chooses the backend and the autograd frame, as kernels/autograd.py does.

frame                          used for
torch.autograd.Function        eager mode
custom operators               torch.compile, torch.export, dispatch modes, tensor subclasses
plain torch operations         torch.func transforms, forward mode, higher derivatives
none                           no gradient is needed: nothing is saved
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import BackendError, TransformError
from ...layout import SequenceLayout
from ..autograd import plain_gradients
from ..backends.cpp import extension
from ..batched import for_each_gradient
from ..call import States
from ..interception import is_intercepted, needs_plain_torch
from ..validation import check_batch_sizes
from . import checkpointing, cpp, reference
from .call import Gradients, ReflectionCall, ReflectionOptions, Saved

BACKENDS = ("auto", "cpp", "reference")
_TENSORS = 8  # those of ReflectionCall.tensors; the index, the resets and the batch sizes follow
_SIDES = 3


def run(call: ReflectionCall) -> States:
    """Return the states of a call that has been checked: all of them, unless ``only_last``, and the last ones."""
    device = call.h0.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return run(call)
    compiling = torch.compiler.is_compiling()
    if not compiling and (needs_plain_torch() or torch.jit.is_tracing()):
        return plain(call)
    tensors = call.tensors()
    if compiling or is_intercepted(*tensors, call.index):
        return _run_operator(call)
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
        return States(*_Reflections.apply(call.index, call.layout, call.options, *tensors))
    return _forward(call, False)[0]


def plain(call: ReflectionCall) -> States:
    """Return the states by plain torch operations, each of them differentiable."""
    if call.options.clip is not None:
        raise TransformError(
            "Expected no clip under torch.func transforms, forward mode and higher derivatives, but got "
            f"{call.options.clip}, which changes what is propagated backwards. Pass clip=None (clip_backward=None)."
        )
    return reference.forward(call)[0]


def backend_of(call: ReflectionCall) -> str:
    """Return "cpp" or "reference".

    Raises:
        BackendError: If the backend that was asked for cannot run.
    """
    name = call.options.backend
    reason = (
        extension.missing() if call.h0.device.type == "cpu" else f"it runs on the CPU only, not on {call.h0.device}"
    )
    if name == "cpp" and reason is not None:
        raise BackendError(f"Expected a backend that can run here, but got 'cpp': {reason}. Use backend='auto'.")
    return "reference" if name == "reference" or reason is not None else "cpp"


def _forward(call: ReflectionCall, save: bool) -> tuple[States, Saved | None]:
    if call.options.segment is not None:
        return checkpointing.forward(_whole_forward, call, save)
    return _whole_forward(call, save)


def _whole_forward(call: ReflectionCall, save: bool) -> tuple[States, Saved | None]:
    if backend_of(call) == "cpp":
        return cpp.forward(call, save)
    with torch.no_grad():
        return reference.forward(call)


def _backward(call: ReflectionCall, grad: States, saved: Saved, needs: Sequence[bool]) -> Gradients:
    if call.options.segment is not None:
        return checkpointing.backward(_whole_forward, _whole_backward, call, grad, saved, needs)
    return _whole_backward(call, grad, saved, needs)


def _whole_backward(call: ReflectionCall, grad: States, saved: Saved, needs: Sequence[bool]) -> Gradients:
    with torch.no_grad():
        if backend_of(call) == "cpp":
            found = cpp.backward(call, grad, saved, needs)
        else:
            found = reference.backward(call, grad, saved)
    return tuple(g if need else None for g, need in zip(found, needs))


class _Reflections(torch.autograd.Function):
    """A call as one node: its tensors in, all states and the last ones out."""

    @staticmethod
    def forward(
        ctx: Any, index: Tensor | None, layout: SequenceLayout, options: ReflectionOptions, *tensors: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        states, saved = _forward(ReflectionCall.of(tensors, index, layout, options), True)
        assert saved is not None
        ctx.layout, ctx.options = layout, options
        ctx.save_for_backward(*tensors, index, layout.resets, layout.batch_sizes, *saved)
        ctx.set_materialize_grads(False)
        return states

    @staticmethod
    def backward(ctx: Any, grad_all: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_all is None and grad_last is None:
            return (None,) * (3 + _TENSORS)
        found = ctx.saved_tensors
        index, layout, options = found[_TENSORS], ctx.layout, ctx.options
        call, saved = ReflectionCall.of(found[:_TENSORS], index, layout, options), Saved(*found[_TENSORS + _SIDES :])
        needs = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # a higher derivative will be asked for

            def again(*tensors: Any) -> States:
                return plain(ReflectionCall.of(tensors, index, layout, options))

            return None, None, None, *plain_gradients(again, call.tensors(), States(grad_all, grad_last), needs)

        def gradients(grad_all: Tensor | None, grad_last: Tensor | None) -> Gradients:
            return _backward(call, States(grad_all, grad_last), saved, needs)

        return None, None, None, *for_each_gradient(gradients, grad_all, grad_last)


# The call as a pair of custom operators. An operator returns tensors only: empty ones stand for None.


def _run_operator(call: ReflectionCall) -> States:
    given = [*call.tensors(), call.index, call.layout.resets, call.layout.batch_sizes]
    present = "".join("0" if t is None else "1" for t in given)
    tensors = [call.h0.new_empty(0) if t is None else t for t in given]
    out = torch.ops.orthornn.reflections(tensors, f"{present}{call.options.to_spec()}")
    return States(None if call.options.only_last else out[0], out[1])


def _read(tensors: list[Tensor], spec: str) -> ReflectionCall:
    count = _TENSORS + _SIDES
    *own, index, resets, batch_sizes = (t if there == "1" else None for t, there in zip(tensors, spec[:count]))
    h0 = tensors[5]
    layout = SequenceLayout.of(tensors[0] if index is None else index, batch_sizes, h0.shape[0], resets)
    return ReflectionCall.of(own, index, layout, ReflectionOptions.from_spec(spec[count:]))


@torch.library.custom_op("orthornn::reflections", mutates_args=(), schema="(Tensor[] tensors, str spec) -> Tensor[]")
def _operator(tensors: list[Tensor], spec: str) -> list[Tensor]:
    """Return all states, the last ones, and what is saved: states (if not returned), pre-activations, dots, inverse."""
    call = _read(tensors, spec)
    if call.layout.batch_sizes is not None:
        check_batch_sizes(call.layout.batch_sizes, call.layout.rows, call.layout.batch)
    states, saved = _forward(call, True)
    assert saved is not None
    kept = (saved.states if _returns_no_states(call.options) else None, *saved[1:])
    return [call.h0.new_empty(0) if t is None else t.contiguous() for t in (*states, *kept)]


def _returns_no_states(options: ReflectionOptions) -> bool:
    """Return whether what is saved of the states is not what is returned."""
    return options.only_last or options.segment is not None


@_operator.register_fake
def _operator_fake(tensors: list[Tensor], spec: str) -> list[Tensor]:
    call = _read(tensors, spec)
    h0, layout, (M, N, H) = call.h0, call.layout, call.shape
    every, none = h0.new_empty(layout.shape(N)), h0.new_empty(0)
    by_state = call.options.activation.reads == "state"
    S = layout.rows if call.index is None else call.k.shape[0]
    if call.options.segment is not None:
        starts = h0.new_empty(checkpointing.count_of(call), *h0.shape)
        return [
            none if call.options.only_last else every,
            h0.new_empty(h0.shape),
            starts,
            *(none.clone() for _ in "pdi"),
        ]
    return [
        none if call.options.only_last else every,
        h0.new_empty(h0.shape),
        torch.empty_like(every) if call.options.only_last else h0.new_empty(0),
        h0.new_empty(0) if by_state else h0.new_empty(layout.rows, N),
        h0.new_empty(layout.rows, M, H),
        h0.new_empty(S, M, H, dtype=torch.float64),
    ]


@torch.library.custom_op(
    "orthornn::reflections_backward",
    mutates_args=(),
    schema="(Tensor[] grads, Tensor[] tensors, Tensor[] saved, str needs, str spec) -> Tensor[]",
)
def _operator_backward(
    grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
) -> list[Tensor]:
    """Return the gradients of the call's tensors.

    Args:
        grads: Those that arrive at all states and at the last ones, empty where none does.
        tensors: The operator's inputs. saved: Its outputs.
        needs: "1" or "0" for each tensor of the call, then whether each gradient arrives. spec: As in the forward operator.
    """
    call = _read(tensors, spec)
    grad = States(*(g if flag == "1" else None for g, flag in zip(grads, needs[_TENSORS:])))
    by_state = call.options.activation.reads == "state"
    states = saved[2] if _returns_no_states(call.options) else saved[0]
    kept = Saved(states, None if by_state else saved[3], saved[4], saved[5])
    found = _backward(call, grad, kept, [flag == "1" for flag in needs[:_TENSORS]])
    return [call.h0.new_empty(0) if g is None else g.contiguous() for g in found]


@_operator_backward.register_fake
def _operator_backward_fake(
    grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
) -> list[Tensor]:
    call = _read(tensors, spec)
    return [
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and flag == "1"
        else call.h0.new_empty(0)
        for t, flag in zip(call.tensors(), needs)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, spec = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.spec = spec
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None] | None, None]:
    count = _TENSORS + _SIDES
    tensors, saved = list(ctx.saved_tensors[:count]), list(ctx.saved_tensors[count:])
    only_last = ReflectionOptions.from_spec(ctx.spec[count:]).only_last
    arriving = [None if only_last else grads[0], grads[1]]
    if all(g is None for g in arriving):
        return [None] * count, None
    like, requires = tensors[5], ctx.needs_input_grad[0][:_TENSORS]
    needs = "".join("1" if flag else "0" for flag in (*requires, *(g is not None for g in arriving)))
    given = [like.new_empty(0) if g is None else g for g in arriving]
    found = torch.ops.orthornn.reflections_backward(given, tensors, saved, needs, ctx.spec)
    return [*(g if flag else None for g, flag in zip(found, requires)), *(None,) * _SIDES], None


_operator.register_autograd(_autograd, setup_context=_setup_context)
