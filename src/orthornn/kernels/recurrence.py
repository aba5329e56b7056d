"""The recurrence of one transition for all steps, by its backends, as a kernel of the frames; `run` is its entry."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..layout import SequenceLayout
from . import execute
from .backends import REFERENCE
from .call import Call, Needs, Options, Residuals, States
from .checkpointing import stored_states
from .frame import Tensors
from .interception import refuse_clip
from .operators import Like, OperatorKernel, Shapes
from .projection import is_tokens, stored_dtype


class _Recurrence(OperatorKernel[Call]):
    name = "recurrence"
    state = Needs._fields.index("h0")
    differentiable = len(Needs._fields)

    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        return execute.forward(call, save)

    def backward(self, call: Call, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        return execute.backward(call, grad, Residuals(*saved), Needs(*needs))

    def plain(self, call: Call) -> States:
        refuse_clip(call.options.clip)
        options = call.options.changed(segment_length=None)
        if options.kind == "rotations":  # (c, s) are constants; the gradient is that of the matrix
            call, options = call.changed(c=None, s=None), options.changed(kind="dense")
        return REFERENCE.forward(call.changed(options=options), False)[0]

    def read(self, tensors: list[Tensor | None], sides: list[Tensor | None], spec: str) -> Call:
        x, h0, (batch_sizes, resets) = tensors[0], tensors[self.state], sides
        assert x is not None
        assert h0 is not None
        layout = SequenceLayout.of(x, batch_sizes, h0.shape[0], resets)
        return Call(*tensors, layout, Options.from_spec(spec))  # type: ignore[arg-type, call-arg]

    def shapes(self, call: Call) -> Shapes:
        h0, layout, options, m = call.h0, call.layout, call.options, call.num_reflections
        n, stored, wide = h0.shape[1], stored_dtype(call.x, call.weight_ih), h0.dtype
        states, last = Like(layout.shape(n), stored), Like(tuple(h0.shape), stored)
        every = None if options.only_last else states
        if options.segment_length is not None:
            starts = Like((stored_states(call), *h0.shape), wide)
            return Shapes(every, last, (*(None,) * 5, starts), False)
        reads_states = options.activation.reads == "state"
        saved = (
            states if reads_states else None,
            None if reads_states else Like((layout.rows, n), stored),
            None if m is None else Like((layout.rows, m), stored),
            Like((n, m), wide) if m is not None and call.weight.dim() == 1 else None,
            None if m is None else Like((m, m), wide),
            None,
        )
        return Shapes(every, last, saved, reads_states and not options.only_last)


_RECURRENCE = _Recurrence()
plain = _RECURRENCE.plain


def run(call: Call) -> States:
    """Return the states of a call that has been checked: all of them, unless ``only_last``, and the last ones."""
    if call.options.segment_length is not None and (stored := stored_dtype(call.x, call.weight_ih)) != call.h0.dtype:
        # What is recomputed is not stored: only the output is rounded.
        return States(*(None if t is None else t.to(stored) for t in _RECURRENCE.run(widened(call))))
    return _RECURRENCE.run(call)


def widened(call: Call) -> Call:
    """Return the call with x and V in the dtype of h0."""
    x, weight_ih, wide = call.x, call.weight_ih, call.h0.dtype
    return call.changed(
        x=x if is_tokens(x) else x.to(wide), weight_ih=None if weight_ih is None else weight_ih.to(wide)
    )
