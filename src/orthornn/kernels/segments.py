"""A sequence in segments: only some states are kept, and the rest is made again in the backward pass (memory.py).

The chain goes from segment to segment: h_0 of the next is the last state of the one before, and the gradient of that
h_0 is added to the last state's. Everything within a segment is a call of the recurrence, on whichever backend. Where
sequences are of unequal length, the state carried on has all B rows: those of ended sequences hold their last state.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..activations import OPLU
from ..errors import OrthornnWarning
from .memory import compact_matrix, reverse_bound, settle_reverse, warn_of_checkpoint
from .sequence import Steps, flat, is_tokens

if TYPE_CHECKING:
    from .node import Call, Needs, Saved, Sequence


class Segment(NamedTuple):
    """Some successive steps and their rows."""

    rows: slice
    steps: Steps


class Kept(NamedTuple):
    """starts (S, B, N): the state before each run of segments. For reversal: the last state (B, N), and for oplu
    whether pairs were in order, a bit each, uint8 (R, ceil(N / 16)).
    """

    starts: Tensor
    end: Tensor | None = None
    order: Tensor | None = None


def divide(steps: Steps, length: int) -> list[Segment]:
    """The segments of a sequence: `length` steps each, the last perhaps fewer."""
    firsts = range(0, steps.length, length)
    if steps.sizes is None:
        B = steps.batch
        whole, rest = Steps(length, B), Steps(steps.length % length, B)
        ends = [min(t + length, steps.length) for t in firsts]
        return [Segment(slice(t * B, e * B), whole if e - t == length else rest) for t, e in zip(firsts, ends)]
    parts = [steps.sizes[t : t + length] for t in firsts]
    divided = [Steps(len(part), part[0], part) for part in parts]
    ends = list(accumulate(part.rows for part in divided))
    return [Segment(slice(end - part.rows, end), part) for part, end in zip(divided, ends)]


def _carried(h: Tensor, rows: Tensor) -> Tensor:
    """h (B, N) with its first rows replaced."""
    return rows if rows.shape[0] == h.shape[0] else torch.cat([rows, h[rows.shape[0] :]])


def _packed_bits(order: Tensor) -> Tensor:
    """bool (R, K) -> uint8 (R, ceil(K / 8))."""
    wide = torch.nn.functional.pad(order, (0, -order.shape[1] % 8)).unflatten(1, (-(-order.shape[1] // 8), 8))
    return (wide * (1 << torch.arange(8, device=order.device))).sum(dim=-1).to(torch.uint8)


def _unpacked_bits(bits: Tensor, count: int) -> Tensor:
    """uint8 (R, ceil(count / 8)) -> bool (R, count)."""
    return ((bits.unsqueeze(-1) >> torch.arange(8, device=bits.device)) & 1).bool().flatten(1)[:, :count]


def forward(call: Call, sequence: Sequence, leading: torch.Size, keep: bool) -> tuple[Call, Tensor, Kept]:
    """The call as it is carried out, its output, and what to keep if `keep`. leading: (T, B) or (R,)."""
    sequence = call.recurrence.prepare(sequence)
    steps, h0 = sequence.steps, sequence.h0
    n = h0.shape[1]
    if keep:
        call = _settled(call, sequence)
    memory = call.memory
    assert memory is not None
    segments = divide(steps, memory.segment)
    starts = h0.new_empty(-(-len(segments) // memory.run) if keep else 0, *h0.shape)
    order = None
    if keep and memory.mode == "reverse" and isinstance(call.activation, OPLU):
        order = torch.empty(steps.rows, -(-(n // 2) // 8), dtype=torch.uint8, device=h0.device)
    out, h = None if call.last else h0.new_empty(steps.rows, n), h0
    for index, segment in enumerate(segments):
        if keep and index % memory.run == 0:
            starts[index // memory.run] = h
        part = _part(sequence, segment, h)
        states, saved = call.recurrence.forward(part)
        h = _carried(h, segment.steps.last(states, part.h0))
        if out is not None:
            out[segment.rows] = states
        if order is not None and saved.kept is not None:
            order[segment.rows] = _packed_bits(OPLU.order(saved.kept))
        del states, saved  # before the next segment's
    kept = Kept(starts, h if memory.mode == "reverse" else None, order)
    return call, h.clone() if out is None else out.view(*leading, n), kept


def _part(sequence: Sequence, segment: Segment, h: Tensor) -> Sequence:
    """One segment of a sequence, from the state h (B, N), or to it if it is made backwards."""
    return sequence._replace(
        rows=sequence.rows[segment.rows], h0=h[: segment.steps.batch].contiguous(), steps=segment.steps
    )


def _settled(call: Call, sequence: Sequence) -> Call:
    """The call with its reversal, if it has one, carried out as W and phi allow."""
    memory, operands = call.memory, sequence.operands
    assert memory is not None
    if memory.mode != "reverse":
        return call
    W = operands.weight if operands.factors is None else compact_matrix(*operands.factors, operands.base)
    memory, reason = settle_reverse(memory.segment, sequence.steps.length, call.activation, sequence.parameter, W)
    if reason is not None:
        warn_of_checkpoint(reason)
    return call._replace(memory=memory)


def backward(
    call: Call, sequence: Sequence, x: Tensor, grad: Tensor, needs: Needs, kept: Kept
) -> tuple[Tensor | None, ...]:
    """Gradients in the order of Needs; grad: of the output, as it left."""
    with torch.autocast(grad.device.type, enabled=False):  # segments are projected again
        return _gradients(call, call.recurrence.prepare(sequence), x, grad, needs, kept)


def _gradients(
    call: Call, sequence: Sequence, x: Tensor, grad: Tensor, needs: Needs, kept: Kept
) -> tuple[Tensor | None, ...]:
    memory, steps, h0 = call.memory, sequence.steps, sequence.h0
    assert memory is not None
    by_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs.x and not is_tokens(x) else None
    chain = _Chain(
        call,
        sequence,
        needs._replace(h0=True),
        grad.flatten(0, 1) if grad.dim() == 3 else grad,
        None if by_x is None else flat(by_x, call.batch_sizes),
        reverse_bound(h0.dtype, steps.length, h0.shape[1]),
    )
    carry = grad.contiguous() if call.last else torch.zeros_like(h0, memory_format=torch.contiguous_format)
    segments, sums = divide(steps, memory.segment), _Sums()
    if memory.mode == "checkpoint":
        carry = chain.forwards(segments, kept.starts, carry, sums)
    else:
        runs = [segments[i : i + memory.run] for i in range(0, len(segments), memory.run)]
        carry = _through_runs(chain, runs, kept, carry, sums)
    operands = sequence.operands
    like = (x, sequence.weight_ih, None, h0, operands.weight, operands.c, operands.s, sequence.parameter)
    found = sums.total or [None if t is None else torch.zeros_like(t) for t in like]
    if sums.total is None and needs.bias:
        found[2] = h0.new_zeros(h0.shape[1])
    found[0], found[3] = by_x, carry
    return tuple(g if need else None for g, need in zip(found, needs))


def _through_runs(chain: _Chain, runs: list[list[Segment]], kept: Kept, carry: Tensor, sums: _Sums) -> Tensor:
    """The chain through runs of segments, each made backwards, or forwards where that is not accurate enough."""
    end, missed = kept.end, False
    for run, start in zip(reversed(runs), reversed(kept.starts.unbind(0))):
        assert end is not None
        own = _Sums()
        arrived = chain.backwards(run, start, end, kept.order, carry, own)
        if arrived is None:
            own, missed = _Sums(), True
            arrived = chain.forwards(run, chain.starts_of(run, start), carry, own)
        carry, end = arrived, start
        sums.add(own.total)
    if missed:
        warnings.warn(
            "memory='reverse' made some states again forwards: backwards they came out further off than the bound "
            "on rounding allows. The gradient is right, but memory='checkpoint' is faster here.",
            OrthornnWarning,
            stacklevel=2,
        )
    return carry


@dataclass
class _Sums:
    """Gradients added up, in the order of Needs; None before the first."""

    total: list[Tensor | None] | None = None

    def add(self, part: list[Tensor | None] | None) -> None:
        if self.total is None or part is None:
            self.total = self.total or part
            return
        for have, more in zip(self.total, part):
            if have is not None and more is not None:
                have += more


class _Chain(NamedTuple):
    """A backward pass; what all segments share. grad: (R, N), or (B, N) of the last states; by_x: (R, ...)."""

    call: Call
    sequence: Sequence
    needs: Needs
    grad: Tensor
    by_x: Tensor | None
    bound: float

    def forwards(self, segments: list[Segment], starts: Tensor, carry: Tensor, sums: _Sums) -> Tensor:
        """dL/dh before the first segment; the states are made again from those before each segment, (S, B, N)."""
        for segment, start in zip(reversed(segments), reversed(starts.unbind(0))):
            part = _part(self.sequence, segment, start)
            carry = self._through(segment, part, *self.call.recurrence.forward(part), carry, sums)
        return carry

    def starts_of(self, segments: list[Segment], start: Tensor) -> Tensor:
        """The states before all segments of a run, from the one before the first: (S, B, N)."""
        starts = [start]
        for segment in segments[:-1]:
            part = _part(self.sequence, segment, starts[-1])
            last = segment.steps.last(self.call.recurrence.forward(part)[0], part.h0)
            starts.append(_carried(starts[-1], last))
        return torch.stack(starts)

    def backwards(
        self, segments: list[Segment], start: Tensor, end: Tensor, order: Tensor | None, carry: Tensor, sums: _Sums
    ) -> Tensor | None:
        """dL/dh before the first segment; the states are made from `end` backwards.

        None if what arrives before the first segment is off `start` by more than the bound.
        """
        h, largest = end, _largest(end)
        for segment in reversed(segments):
            part = _part(self.sequence, segment, h)
            bits = None if order is None else _unpacked_bits(order[segment.rows], end.shape[1] // 2)
            states, saved, before = self.call.recurrence.reverse(part, bits)
            h, largest = _carried(h, before), torch.maximum(largest, _largest(states))
            if segment is segments[0]:
                if not bool(_largest(h - start) <= self.bound * largest):
                    return None
                before = start[: segment.steps.batch]
            carry = self._through(segment, part._replace(h0=before), states, saved, carry, sums)
            del states, saved
        return carry

    def _through(
        self, segment: Segment, part: Sequence, states: Tensor, saved: Saved, carry: Tensor, sums: _Sums
    ) -> Tensor:
        """dL/dh before a segment from dL/dh after it; its parameters' gradients are added to the sums."""
        call, steps = self.call, segment.steps
        grad = carry[: steps.batch]
        if not call.last:
            grad = self.grad[segment.rows].clone(memory_format=torch.contiguous_format)
            grad[steps.last_rows(grad.device)] += carry[: steps.batch]
        found = call.recurrence.backward(part, grad, call.last, call.clip, states, saved, self.needs)
        by_x, by_h0 = found[0], found[3]
        if self.by_x is not None:
            self.by_x[segment.rows] = by_x  # type: ignore[assignment]
        assert by_h0 is not None
        sums.add([None, *found[1:3], None, *found[4:]])
        return _carried(carry, by_h0)


def _largest(states: Tensor) -> Tensor:
    """The largest absolute value, 0 of nothing."""
    return states.abs().amax() if states.numel() else states.new_zeros(())
