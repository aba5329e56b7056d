"""Rotations over irregular time as a kernel of the frames; `run` is its entry."""

from __future__ import annotations

from collections.abc import Sequence

from ...layout import SequenceLayout
from .. import checkpointing
from ..call import Options, States
from ..dispatch import choose_compiled
from ..frame import Tensors
from ..operators import Like, OperatorKernel, Shapes
from . import cpp, reference
from .call import IrregularCall


class _Irregular(OperatorKernel[IrregularCall]):
    """Rotations over irregular time: compiled on the CPU; elsewhere plain torch operations, which need no frame."""

    name = "irregular"
    state = IrregularCall._fields.index("h0")
    differentiable = IrregularCall._fields.index("layout")

    def is_plain(self, call: IrregularCall) -> bool:
        return choose_compiled(call.options.backend, call.h0.device, "reference") != "cpp"

    def forward(self, call: IrregularCall, save: bool) -> tuple[States, Tensors]:
        if call.options.segment_length is None:
            return _forward(call, save)
        states, starts = checkpointing.forward(_forward, call, save)
        return states, (starts,)

    def backward(self, call: IrregularCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        assert saved[0] is not None
        if call.options.segment_length is None:
            return cpp.backward(call, grad, saved[0], needs)
        return checkpointing.backward(_forward, _backward, call, grad, saved[0], needs, self.state)

    def plain(self, call: IrregularCall) -> States:
        return reference.forward(call)

    def read(self, tensors: Tensors, others: Tensors, layout: SequenceLayout, spec: str) -> IrregularCall:
        return IrregularCall(*tensors, layout, Options.from_spec(spec))  # type: ignore[arg-type, call-arg]

    def shapes(self, call: IrregularCall) -> Shapes:
        h0, options = call.h0, call.options
        states, last = Like(call.layout.shape(h0.shape[1]), h0.dtype), Like(tuple(h0.shape), h0.dtype)
        every = None if options.only_last else states
        if options.segment_length is not None:
            starts = Like((checkpointing.stored_states(call), *h0.shape), h0.dtype)
            return Shapes(every, last, (starts,), False)
        return Shapes(every, last, (states,), not options.only_last)


run = _Irregular().run


def _forward(call: IrregularCall, save: bool) -> tuple[States, Tensors]:
    states, saved = cpp.forward(call, save)
    return states, (saved,)


def _backward(call: IrregularCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
    assert saved[0] is not None
    return cpp.backward(call, grad, saved[0], needs)
