"""Long sequences in segments: store only the state before each segment, and recompute the rest (memory="checkpoint").

The forward pass stores h_0, h_k, h_2k, .... The backward pass processes one segment after the other, starting with the
last: it recomputes the segment's states from the stored one, then runs the segment's backward pass with dL/dh of its
last state. Everything within a segment is a call of the backend. If sequences have unequal lengths, the state that is
passed on has all B rows: sequences that have ended hold their last state.

The segment length. S segments store S B N numbers, and the segment being processed needs for each of its steps at most
a state, a pre-activation and a delta, 3 N, and h~ and C~, 2 M. B (N T/k + k (3N + 2M)) is minimal at k = sqrt(T N / (3N
+ 2M)).

Recomputed states equal the states of the same call's forward pass: bit for bit in the compiled kernels, up to rounding
elsewhere. They agree with memory="store" up to rounding, since products over rows have other shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar, get_args

import torch
from torch import Tensor

from ..layout import SequenceLayout, replace_first_rows
from .call import Options, States

Mode = Literal["store", "checkpoint"]
MODES: tuple[str, ...] = get_args(Mode)
LENGTH_FOR_ANY_T = 512  # in a graph that is traced for any T
Tensors = Sequence[Tensor | None]
Self = TypeVar("Self")


class LongCall(Protocol):
    """A call that can be divided in time. Its last tensor is the state to restart from."""

    @property
    def h0(self) -> Tensor:
        """The state (B, N) before the first step."""

    @property
    def layout(self) -> SequenceLayout:
        """The division of the rows into steps."""

    @property
    def options(self) -> Options:
        """The options, including the segment length."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of the gradients."""

    def are_rows(self) -> tuple[bool, ...]:
        """Return the tensors that have a row for every step and sequence."""

    def contiguous(self: Self) -> Self:
        """Return the call with contiguous rows: otherwise each segment would copy all rows."""

    def part(self: Self, rows: slice, layout: SequenceLayout, h: Tensor) -> Self:
        """Return the call of one segment: these rows, starting from the state h (B, N) before them."""


C = TypeVar("C", bound=LongCall)
Forward = Callable[[C, bool], tuple[States, Tensors]]
Backward = Callable[[C, States, Tensors, Sequence[bool]], Tensors]


def segment_length(T: int, n: int, m: int) -> int:
    """Return the number of steps per segment that minimizes peak memory, for T steps of N units and M reflections."""
    if isinstance(T, torch.SymInt):
        return LENGTH_FOR_ANY_T
    # Even: the compiled compact form goes through U to and fro, so that the bits of a step depend on its parity.
    return 2 * max(1, round(math.sqrt(T * n / (3 * n + 2 * m)) / 2))


def peak_numbers(segment: int | None, T: int, batch: int, n: int, m: int) -> int:
    """Return the peak number of stored numbers of a call with segments of this length, or without segments if None."""
    if segment is None:
        return T * batch * (n + m)
    return batch * (n * -(-T // segment) + min(segment, T) * (3 * n + 2 * m))


def stored_states(call: LongCall) -> int:
    """Return the number of stored states: one more than the segments, since graphs treat a size of 1 as a constant."""
    assert call.options.segment_length is not None
    return -(-call.layout.length // call.options.segment_length) + 1


def forward(run: Forward[C], call: C, save: bool) -> tuple[States, Tensor]:
    """Return the states of a call and, if ``save``, the states before every segment.

    run: Function that runs the call of one segment.
    """
    call = call.contiguous()
    layout, h, options = call.layout, call.h0, call.options
    assert options.segment_length is not None
    segments = layout.segments(options.segment_length)
    starts = h.new_empty(stored_states(call) if save else 0, *h.shape)
    starts[len(segments) :] = 0
    every = None if options.only_last else h.new_empty(layout.shape(h.shape[1]))
    rows_out = None if every is None else layout.flatten(every)
    for at, (rows, part) in enumerate(segments):
        if save:
            starts[at] = h
        states, _ = run(call.part(rows, part, h), False)
        if rows_out is not None:
            assert states.all is not None
            rows_out[rows] = part.flatten(states.all)
        assert states.last is not None
        h = replace_first_rows(h, states.last)
    return States(every, h if segments else h.clone()), starts


def backward(
    run: Forward[C],
    run_backward: Backward[C],
    call: C,
    grad: States,
    starts: Tensor,
    needs: Sequence[bool],
    state: int,
) -> Tensors:
    """Return the gradients of a call, processing one segment at a time, the last one first.

    Args:
        run: Function that runs the call of one segment and saves the residuals for its backward pass.
        run_backward: Function that returns the gradients of such a call, from the gradients of its rows (R, N) and its
            last state.
        call: The whole call.
        grad: The gradients of its states.
        starts: The states that `forward` has stored.
        needs: Which gradients are required.
        state: Index of h0 among the tensors.
    """
    call = call.contiguous()
    layout, h0, tensors, are_rows = call.layout, call.h0, call.tensors(), call.are_rows()
    assert call.options.segment_length is not None
    restart = len(tensors) - 1
    grad_rows = None if grad.all is None else grad.all.reshape(layout.rows, h0.shape[1])
    carry = torch.zeros_like(h0, memory_format=torch.contiguous_format) if grad.last is None else grad.last
    # Contiguous: flattened to rows, one with other strides would be a copy, and what is written into it lost.
    sums = [
        torch.zeros_like(t, memory_format=torch.contiguous_format) if need and t is not None else None
        for t, need in zip(tensors, needs)
    ]
    own = [need or k == state for k, need in enumerate(needs)]
    for at, (rows, part) in reversed(list(enumerate(layout.segments(call.options.segment_length)))):
        piece = call.part(rows, part, starts[at])
        arriving = States(None if grad_rows is None else grad_rows[rows], carry[: part.batch])
        found = run_backward(piece, arriving, run(piece, True)[1], own)
        for k, (total, more) in enumerate(zip(sums, found)):
            if total is None or more is None or k == state:
                continue
            if are_rows[k]:
                target = layout.flatten(total)[rows]
                target.copy_(more.reshape(target.shape))
            elif k == restart:
                total[: part.batch] += more
            else:
                total += more
        by_state = found[state]
        assert by_state is not None
        carry = replace_first_rows(carry, by_state)
    sums[state] = carry if needs[state] else None
    return sums
