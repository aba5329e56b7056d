"""The recurrence with one transition for all steps, as a kernel of the frames; `run` is the entry point of a checked
call.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..layout import SequenceLayout
from . import checkpointing
from .backends import REFERENCE, Backend
from .call import Call, Needs, Options, Residuals, States
from .dispatch import find
from .frame import Tensors
from .interception import refuse_clip
from .operators import Like, OperatorKernel, Shapes
from .projection import cast, is_tokens, stored_dtype


class _Recurrence(OperatorKernel[Call]):
    """h_t = phi(W h_{t-1} + V x_t + b), on the backend that `dispatch.find` chooses."""

    name = "recurrence"
    state = Needs._fields.index("h0")
    differentiable = len(Needs._fields)

    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        backend = find(call)
        if call.options.segment_length is None:
            return backend.forward(call, save)
        states, starts = checkpointing.forward(backend.forward, backend.prepare(_widened(call)), save)
        return _rounded(states, call), Residuals(starts=starts)

    def backward(self, call: Call, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        backend, wanted, residuals = find(call), Needs(*needs), Residuals(*saved)
        if call.options.segment_length is not None:
            assert residuals.starts is not None
            found = [*_backward_in_segments(backend, call, grad, residuals.starts, wanted)]
        else:
            if grad.all is not None:
                grad = States(grad.all.reshape(call.layout.rows, call.h0.shape[1]), grad.last)
            # A backend may return more than was asked for.
            found = [g if need else None for g, need in zip(backend.backward(call, grad, residuals, wanted), needs)]
        if found[0] is not None:
            found[0] = found[0].view(call.x.shape)
        return found

    def plain(self, call: Call) -> States:
        refuse_clip(call.options.clip)
        given, options = call, call.options.changed(segment_length=None)
        if call.options.segment_length is not None:
            call = _widened(call)
        if options.kind == "rotations":  # (c, s) are constants; the gradient is that of the matrix
            call, options = call.changed(c=None, s=None), options.changed(kind="dense")
        return _rounded(REFERENCE.forward(call.changed(options=options), False)[0], given)

    def read(self, tensors: Tensors, others: Tensors, layout: SequenceLayout, spec: str) -> Call:
        return Call(*tensors, layout, Options.from_spec(spec))  # type: ignore[arg-type, call-arg]

    def shapes(self, call: Call) -> Shapes:
        h0, layout, options, m = call.h0, call.layout, call.options, call.num_reflections
        n, stored, wide = h0.shape[1], stored_dtype(call.x, call.weight_ih), h0.dtype
        states, last = Like(layout.shape(n), stored), Like(tuple(h0.shape), stored)
        every = None if options.only_last else states
        if options.segment_length is not None:
            starts = Like((checkpointing.stored_states(call), *h0.shape), wide)
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
run, plain = _RECURRENCE.run, _RECURRENCE.plain


def _backward_in_segments(backend: Backend, call: Call, grad: States, starts: Tensor, needs: Needs) -> Tensors:
    def forward(part: Call, save: bool) -> tuple[States, Residuals]:
        states, saved = backend.forward(part, save)
        return states, saved._replace(states=states.all)

    def backward(part: Call, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        return backend.backward(part, grad, Residuals(*saved), Needs(*needs))

    wide = call.h0.dtype
    given, call = call.tensors(), _widened(call.changed(options=call.options.changed(only_last=False)))
    grad = States(*(None if g is None else g.to(wide) for g in grad))
    found = checkpointing.backward(forward, backward, backend.prepare(call), grad, starts, needs, _RECURRENCE.state)
    return [None if g is None or t is None else g.to(t.dtype) for g, t in zip(found, given)]


def _widened(call: Call) -> Call:
    """Return the call with x and V in the dtype of h0. Recomputed values are not stored: only the output is rounded."""
    return call if stored_dtype(call.x, call.weight_ih) == call.h0.dtype else widened(call)


def _rounded(states: States, call: Call) -> States:
    """Return states in the dtype in which a call stores them."""
    stored = stored_dtype(call.x, call.weight_ih)
    return States(*(None if t is None else cast(t, stored) for t in states))


def widened(call: Call) -> Call:
    """Return the call with x and V, which may be 16-bit, in the dtype of h0, which avoids that kernels round h_T."""
    x, weight_ih, wide = call.x, call.weight_ih, call.h0.dtype
    x = x if is_tokens(x) else cast(x, wide)
    return call.changed(x=x, weight_ih=None if weight_ih is None else cast(weight_ih, wide))
