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

from ..._checks import is_transformed
from ...errors import BackendError
from ...layout import SequenceLayout
from ..autograd import plain_gradients
from ..backends.cpp import extension
from ..batched import for_each_gradient
from ..call import States
from ..interception import is_autocast, is_intercepted, no_autocast, refuse_clip
from ..operators import CallOperator, Given
from . import checkpointing, cpp, reference
from .call import Gradients, ReflectionCall, ReflectionOptions, Saved

BACKENDS = ("auto", "cpp", "reference")
_TENSORS = 8  # those of ReflectionCall.tensors; the index, the resets and the batch sizes follow
_SIDES = 3


def run(call: ReflectionCall) -> States:
    """Return the states of a call that has been checked: all of them, unless ``only_last``, and the last ones."""
    if is_autocast(call.h0):
        with no_autocast(call.h0):
            return run(call)
    compiling = torch.compiler.is_compiling()
    if not compiling and (is_transformed() or torch.jit.is_tracing()):
        return plain(call)
    tensors = call.tensors()
    if compiling or is_intercepted(*tensors, call.index):
        sides = (call.index, call.layout.resets, call.layout.batch_sizes)
        out = _OPERATOR.run([*tensors, *sides], call.options.to_spec())
        return States(None if call.options.only_last else out[0], out[1])
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
        return States(*_Reflections.apply(call.index, call.layout, call.options, *tensors))
    return _forward(call, False)[0]


def plain(call: ReflectionCall) -> States:
    """Return the states by plain torch operations, each of them differentiable."""
    refuse_clip(call.options.clip)
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


class _Operator(CallOperator[ReflectionCall]):
    name = "reflections"
    differentiable = _TENSORS
    like = ReflectionCall._fields.index("h0")

    def read(self, given: list[Tensor | None], options: str) -> ReflectionCall:
        *own, index, resets, batch_sizes = given
        rows, h0 = own[0] if index is None else index, own[self.like]
        assert rows is not None
        assert h0 is not None
        layout = SequenceLayout.of(rows, batch_sizes, h0.shape[0], resets)
        return ReflectionCall.of(own, index, layout, ReflectionOptions.from_spec(options))

    def returns_all(self, options: str) -> bool:
        return not ReflectionOptions.from_spec(options).only_last

    def forward(self, call: ReflectionCall) -> Given:
        """Return all states, the last ones, and what is saved: states (if not returned), pre-activations, dots, inverse."""
        states, saved = _forward(call, True)
        assert saved is not None
        return (*states, saved.states if _returns_no_states(call.options) else None, *saved[1:])

    def shapes(self, call: ReflectionCall) -> Given:
        h0, layout, options, (M, N, H) = call.h0, call.layout, call.options, call.shape
        every = None if options.only_last else h0.new_empty(layout.shape(N))
        last = h0.new_empty(h0.shape)
        if options.segment is not None:
            return every, last, h0.new_empty(checkpointing.count_of(call), *h0.shape), None, None, None
        rows = layout.rows if call.index is None else call.k.shape[0]
        return (
            every,
            last,
            h0.new_empty(layout.shape(N)) if options.only_last else None,
            None if options.activation.reads == "state" else h0.new_empty(layout.rows, N),
            h0.new_empty(layout.rows, M, H),
            h0.new_empty(rows, M, H, dtype=torch.float64),
        )

    def backward(
        self, call: ReflectionCall, grads: list[Tensor | None], saved: list[Tensor], needs: list[bool]
    ) -> Given:
        states = saved[2] if _returns_no_states(call.options) else saved[0]
        preactivations = None if call.options.activation.reads == "state" else saved[3]
        return _backward(call, States(*grads), Saved(states, preactivations, saved[4], saved[5]), needs)


_OPERATOR = _Operator()


def _returns_no_states(options: ReflectionOptions) -> bool:
    """Return whether what is saved of the states is not what is returned."""
    return options.only_last or options.segment is not None
