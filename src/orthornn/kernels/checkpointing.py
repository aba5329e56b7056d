"""Long sequences in segments: only the state before each segment is stored, and the rest is recomputed
(memory="checkpoint").

The forward pass stores h_0, h_k, h_2k, ...; the backward pass takes one segment after the other, the last first: it
recomputes the segment's states from the stored one, then runs the segment's backward pass with dL/dh of its last state.
Everything within a segment is a call of the backend. Where sequences have unequal lengths, the state that is passed on
has all B rows: those of sequences that have ended hold their last state.

The segment's length. S segments store S B N numbers, and the one at work needs for each of its steps at most a state, a
pre-activation and a delta, 3 N, and h~ and C~, 2 M. B (N T/k + k (3N + 2M)) is least at k = sqrt(T N / (3N + 2M)).

States that are recomputed are those of the same call's forward pass: to the bit on the compiled kernels, to rounding
elsewhere. Against memory="store" they agree to rounding, since products over rows have other shapes.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from ..layout import SequenceLayout, replace_first_rows
from .backends import Backend
from .call import Call, Gradients, Needs, Residuals, States
from .projection import is_tokens

Mode = Literal["store", "checkpoint"]
MODES: tuple[str, ...] = get_args(Mode)
LENGTH_FOR_ANY_T = 512  # in a graph that is traced for any T
_NOT_SUMMED = tuple(Gradients._fields.index(name) for name in ("x", "h0", "restart"))


def segment_length(T: int, n: int, m: int) -> int:
    """Return the number of steps per segment with the least peak memory, for T steps of N units and M reflections."""
    if isinstance(T, torch.SymInt):
        return LENGTH_FOR_ANY_T
    # Even: the compiled compact form goes through U to and fro, so that the bits of a step depend on its parity.
    return 2 * max(1, round(math.sqrt(T * n / (3 * n + 2 * m)) / 2))


def peak_numbers(segment: int | None, T: int, batch: int, n: int, m: int) -> int:
    """Return how many numbers a call holds at its peak, with segments of this length or, if None, without."""
    if segment is None:
        return T * batch * (n + m)
    return batch * (n * -(-T // segment) + min(segment, T) * (3 * n + 2 * m))


def forward(backend: Backend, call: Call, save: bool) -> tuple[States, Residuals]:
    """Return the states of a call and, if ``save``, the states before every segment."""
    call = backend.prepare(call)
    layout, h, options = call.layout, call.h0, call.options
    rows_in = call.rows
    assert options.segment_length is not None
    segments = layout.segments(options.segment_length)
    starts = h.new_empty(len(segments) if save else 0, *h.shape)
    out = None if options.only_last else h.new_empty(layout.shape(h.shape[1]))
    rows_out = None if out is None else layout.flatten(out)
    for index, (rows, part) in enumerate(segments):
        if save:
            starts[index] = h
        states, _ = backend.forward(_part(call, rows_in, rows, part, h), False)
        if rows_out is not None:
            assert states.all is not None
            rows_out[rows] = part.flatten(states.all)
        assert states.last is not None
        h = replace_first_rows(h, states.last)
    last = h.clone() if not segments else h
    return States(out, last), Residuals(starts=starts)


def backward(backend: Backend, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
    """Return the gradients of a call, one segment at a time."""
    call = backend.prepare(call)
    layout, h0, starts = call.layout, call.h0, residuals.starts
    assert starts is not None
    assert call.options.segment_length is not None
    rows_in = call.rows
    grad_rows = None if grad.all is None else grad.all.reshape(layout.rows, h0.shape[1])
    carry = torch.zeros_like(h0, memory_format=torch.contiguous_format) if grad.last is None else grad.last.contiguous()
    grad_x = (
        torch.empty_like(rows_in, memory_format=torch.contiguous_format) if needs.x and not is_tokens(rows_in) else None
    )
    own, sums = needs._replace(h0=True), None
    grad_restart = torch.zeros_like(carry) if needs.restart else None
    for (rows, part), start in zip(reversed(layout.segments(call.options.segment_length)), reversed(starts.unbind(0))):
        piece = _part(call._replace(options=call.options._replace(only_last=False)), rows_in, rows, part, start)
        states, saved = backend.forward(piece, True)
        saved = saved._replace(states=states.all)
        arriving = States(None if grad_rows is None else grad_rows[rows], carry[: part.batch])
        found = backend.backward(piece, arriving, saved, own)
        if grad_x is not None:
            assert found.x is not None
            grad_x[rows] = found.x
        assert found.h0 is not None
        carry = replace_first_rows(carry, found.h0)
        if grad_restart is not None:
            assert found.restart is not None
            grad_restart[: part.batch] += found.restart
        sums = _add(sums, found)
    if sums is None:  # there are no steps
        sums = [None if t is None else torch.zeros_like(t) for t in call.tensors()]
        sums[2] = h0.new_zeros(h0.shape[1]) if needs.bias else None
    return Gradients(*sums)._replace(x=grad_x, h0=carry, restart=grad_restart)


def _part(call: Call, rows_in: Tensor, rows: slice, part: SequenceLayout, h: Tensor) -> Call:
    """Return the call of one segment, from the state h (B, N) before it."""
    x = rows_in[rows]
    x = x if part.is_ragged else x.unflatten(0, (part.length, part.batch))
    restart = None if call.restart is None else call.restart[: part.batch].contiguous()
    return call._replace(x=x, h0=h[: part.batch].contiguous(), restart=restart, layout=part)


def _add(sums: list[Tensor | None] | None, found: Gradients) -> list[Tensor | None]:
    if sums is None:
        return list(found)
    for index, more in enumerate(found):
        have = sums[index]
        if have is not None and more is not None and index not in _NOT_SUMMED:
            have += more
    return sums
