"""Input-dependent reflections as a kernel of the frames; `run` is its entry."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...layout import SequenceLayout
from .. import checkpointing
from ..call import Options, States
from ..dispatch import choose_compiled
from ..frame import Tensors
from ..interception import refuse_clip
from ..operators import Like, OperatorKernel, Shapes
from . import cpp, reference
from .call import ReflectionCall, Saved

BACKENDS = ("auto", "cpp", "reference")


def backend_of(call: ReflectionCall) -> str:
    """Return "cpp" or "reference"; raise BackendError if the requested backend cannot run."""
    return choose_compiled(call.options.backend, call.h0.device, "reference")


class _Reflections(OperatorKernel[ReflectionCall]):
    name = "reflections"
    state = ReflectionCall._fields.index("h0")
    differentiable = ReflectionCall._fields.index("index")

    def forward(self, call: ReflectionCall, save: bool) -> tuple[States, Tensors]:
        if call.options.segment_length is not None:
            states, starts = checkpointing.forward(_forward, call, save)
            return states, Saved(starts, None, None, None)
        return _forward(call, save)

    def backward(self, call: ReflectionCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        if call.options.segment_length is not None:
            assert saved[0] is not None
            return checkpointing.backward(_forward, _backward, call, grad, saved[0], needs, self.state)
        return _backward(call, grad, saved, needs)

    def plain(self, call: ReflectionCall) -> States:
        refuse_clip(call.options.clip)
        return reference.forward(call)[0]

    def read(self, tensors: Tensors, others: Tensors, layout: SequenceLayout, spec: str) -> ReflectionCall:
        return ReflectionCall(*tensors, *others, layout, Options.from_spec(spec))  # type: ignore[arg-type, call-arg]

    def shapes(self, call: ReflectionCall) -> Shapes:
        h0, layout, options, (M, N, H) = call.h0, call.layout, call.options, call.shape
        states, last = Like(layout.shape(N), h0.dtype), Like(tuple(h0.shape), h0.dtype)
        every = None if options.only_last else states
        if options.segment_length is not None:
            starts = Like((checkpointing.stored_states(call), *h0.shape), h0.dtype)
            return Shapes(every, last, (starts, None, None, None), False)
        rows = layout.rows if call.index is None else call.k.shape[0]
        saved = (
            states,
            None if options.activation.reads == "state" else Like((layout.rows, N), h0.dtype),
            Like((layout.rows, M, H), h0.dtype),
            Like((rows, M, H), torch.float64),
        )
        return Shapes(every, last, saved, not options.only_last)


run = _Reflections().run


def _forward(call: ReflectionCall, save: bool) -> tuple[States, Tensors]:
    return cpp.forward(call, save) if backend_of(call) == "cpp" else reference.forward(call)


def _backward(call: ReflectionCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
    if backend_of(call) == "cpp":
        return cpp.backward(call, grad, Saved(*saved), needs)  # type: ignore[arg-type]
    found = reference.backward(call, grad, Saved(*saved))  # type: ignore[arg-type]
    return tuple(g if need else None for g, need in zip(found, needs))
