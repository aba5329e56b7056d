"""A call as a pair of custom operators; see operators.py."""

from __future__ import annotations

from torch import Tensor

from ..layout import SequenceLayout
from . import execute
from .call import Call, Needs, Options, Residuals, States
from .operators import CallOperator, Given
from .projection import stored_dtype

_ALL, _RESIDUALS = 0, 2  # positions in what the operator returns: all states, the last ones, then the residuals


def run(call: Call) -> States:
    """Return the states of a call, by the operator."""
    options = call.options
    out = _OPERATOR.run([*call.tensors(), call.layout.batch_sizes, call.layout.resets], options.to_spec())
    return States(None if options.only_last else out[_ALL], out[1])


class _Recurrence(CallOperator[Call]):
    name = "recurrence"
    differentiable = len(Needs._fields)
    like = Needs._fields.index("h0")

    def read(self, given: list[Tensor | None], options: str) -> Call:
        *own, batch_sizes, resets = given
        x, h0 = own[0], own[self.like]
        assert x is not None
        assert h0 is not None
        layout = SequenceLayout.of(x, batch_sizes, h0.shape[0], resets)
        return Call.of(own, layout, Options.from_spec(options))

    def returns_all(self, options: str) -> bool:
        return not Options.from_spec(options).only_last

    def forward(self, call: Call) -> Given:
        states, residuals = execute.forward(call, True)
        if not call.options.only_last:  # they are returned already
            residuals = residuals._replace(states=None)
        return (*states, *residuals)

    def shapes(self, call: Call) -> Given:
        h0, layout, options, m = call.h0, call.layout, call.options, call.num_reflections
        n = h0.shape[1]
        stored = h0.new_empty(0, dtype=stored_dtype(call.x, call.weight_ih))
        every = None if options.only_last else stored.new_empty(layout.shape(n))
        last = stored.new_empty(h0.shape)
        if options.segment_length is not None:
            count = (layout.length + options.segment_length - 1) // options.segment_length
            return (every, last, *Residuals()._replace(starts=h0.new_empty(count, *h0.shape)))
        residuals = Residuals()
        if options.activation.reads == "preactivation":
            residuals = residuals._replace(preactivations=stored.new_empty(layout.rows, n))
        elif options.only_last:
            residuals = residuals._replace(states=stored.new_empty(layout.shape(n)))
        if m is not None:
            U = h0.new_empty(n, m) if call.weight.dim() == 1 else None
            residuals = residuals._replace(h_tilde=stored.new_empty(layout.rows, m), U=U, S=h0.new_empty(m, m))
        return (every, last, *residuals)

    def backward(self, call: Call, grads: list[Tensor | None], saved: list[Tensor], needs: list[bool]) -> Given:
        stored = [*saved[_RESIDUALS:]]
        if not call.options.only_last and call.options.activation.reads == "state":
            stored[0] = saved[_ALL]
        residuals = Residuals(*(t if there else None for t, there in zip(stored, _present(call))))
        return execute.backward(call, States(*grads), residuals, Needs(*needs))


_OPERATOR = _Recurrence()


def _present(call: Call) -> tuple[bool, ...]:
    """Return which residuals a call has."""
    if call.options.segment_length is not None:
        return (*(False,) * 5, True)
    reads_state, m = call.options.activation.reads == "state", call.num_reflections
    return reads_state, not reads_state, m is not None, m is not None and call.weight.dim() == 1, m is not None, False
