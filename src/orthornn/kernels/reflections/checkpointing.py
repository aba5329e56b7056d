"""Long sequences in segments: only the state before each one is stored, and the rest is recomputed (memory="checkpoint").

As kernels/checkpointing.py does for the kernels with one transition. With tables (tokens) a step then costs one integer, and
its share of a stored state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...layout import SequenceLayout, replace_first_rows
from ..call import States
from ..frame import Tensors
from .call import Gradients, ReflectionCall, Saved

Forward = Callable[[ReflectionCall, bool], tuple[States, Tensors]]
Backward = Callable[[ReflectionCall, States, Saved, Sequence[bool]], Tensors]
_ANGLES, _H0, _RESTART = map(ReflectionCall._fields.index, ("angles", "h0", "restart"))  # as in ReflectionCall.tensors


def segment_length(T: int) -> int:
    """Return the number of steps per segment with the least peak memory: states before segments, and those of one."""
    return max(1, round(math.sqrt(T)))


def forward(run: Forward, call: ReflectionCall, save: bool) -> tuple[States, Tensors]:
    """Return the states of a call and, if ``save``, the states before every segment."""
    layout, h = call.layout, call.h0
    segments = _segments(call)
    starts = h.new_empty(count_of(call) if save else 0, *h.shape)
    every = None if call.options.only_last else h.new_empty(layout.shape(h.shape[1]))
    rows_out = None if every is None else layout.flatten(every)
    starts[len(segments) :] = 0
    for at, (rows, part) in enumerate(segments):
        if save:
            starts[at] = h
        states, _ = run(_part(call, rows, part, h), False)
        if rows_out is not None:
            assert states.all is not None
            rows_out[rows] = part.flatten(states.all)
        assert states.last is not None
        h = replace_first_rows(h, states.last)
    return States(every, h if segments else h.clone()), Saved(starts, None, None, None) if save else ()


def backward(
    run: Forward, run_backward: Backward, call: ReflectionCall, grad: States, saved: Saved, needs: Sequence[bool]
) -> Gradients:
    """Return the gradients of a call, one segment at a time, the last one first."""
    layout, tensors = call.layout, call.tensors()
    grad_rows = None if grad.all is None else layout.flatten(grad.all)
    carry = torch.zeros_like(call.h0) if grad.last is None else grad.last.to(call.h0.dtype)
    # Contiguous: flattened to rows, one with other strides would be a copy, and what is written into it lost.
    sums = [
        torch.zeros_like(t, memory_format=torch.contiguous_format) if need and t is not None else None
        for t, need in zip(tensors, needs)
    ]
    by_row = [t is not None and _is_by_row(call, place) for place, t in enumerate(tensors)]
    own = [*needs]
    own[_H0] = True
    for at, (rows, part) in reversed(list(enumerate(_segments(call)))):
        piece = _part(call, rows, part, saved.states[at])
        _, kept = run(piece, True)
        arriving = States(None if grad_rows is None else part.unflatten(grad_rows[rows]), carry[: part.batch])
        found = run_backward(piece, arriving, Saved(*kept), own)  # type: ignore[arg-type]
        for place, (total, more) in enumerate(zip(sums, found)):
            if total is None or more is None or place == _H0:
                continue
            if by_row[place]:
                layout.flatten(total)[rows] = part.flatten(more)
            elif place == _RESTART:
                total[: part.batch] += more
            else:
                total += more
        by_h0 = found[_H0]
        assert by_h0 is not None
        carry = replace_first_rows(carry, by_h0)
    sums[_H0] = carry if needs[_H0] else None
    return tuple(sums)


def count_of(call: ReflectionCall) -> int:
    """Return how many states are stored: one more than there are segments, since graphs treat a size of 1 as a constant."""
    assert call.options.segment_length is not None
    return -(-call.layout.length // call.options.segment_length) + 1


def _segments(call: ReflectionCall) -> list[tuple[slice, SequenceLayout]]:
    assert call.options.segment_length is not None
    return call.layout.segments(call.options.segment_length)


def _is_by_row(call: ReflectionCall, place: int) -> bool:
    """Return whether a tensor of the call has a row for each step and sequence."""
    return call.index is None and place < _H0 and not (place == _ANGLES and call.shares_angles)


def _part(call: ReflectionCall, rows: slice, part: SequenceLayout, h: Tensor) -> ReflectionCall:
    """Return the call of one segment, from the state h (B, N) before it."""
    tensors = list(call.tensors())
    for place, tensor in enumerate(tensors):
        if tensor is not None and _is_by_row(call, place):
            tensors[place] = part.unflatten(call.layout.flatten(tensor)[rows])
    tensors[_H0] = h[: part.batch]
    restart = tensors[_RESTART]
    tensors[_RESTART] = None if restart is None else restart[: part.batch]
    index = None if call.index is None else part.unflatten(call.layout.flatten(call.index)[rows])
    options = call.options._replace(only_last=False, segment_length=None)
    return call.with_tensors(tensors)._replace(index=index, layout=part, options=options)
