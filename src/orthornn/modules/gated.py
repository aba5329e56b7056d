"""The common part of the gated networks: checking and laying out their input, and collecting states."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_same, check_tensor
from ..errors import ShapeError
from ..kernels.interception import is_autocast
from ..kernels.projection import is_tokens
from ..kernels.validation import check_batch_sizes, check_kind_of_batch_sizes
from ..layout import SequenceLayout, restarted
from .sequence_input import reset_rows

State = tuple[Tensor, ...]


class GatedInput:
    """An input (T, B, I), tokens (T, B), or a PackedSequence of either, as flat rows.

    rows: (R, I) or (R,). batch: B. ShapeError if the input is none of these, or has no step. reset: as the user gives
    it.
    """

    def __init__(
        self,
        name: str,
        x: Tensor | PackedSequence,
        input_size: int,
        batch_first: bool,
        weight: Tensor,
        reset: Tensor | PackedSequence | None = None,
    ) -> None:
        self.packed = x if isinstance(x, PackedSequence) else None
        self.batch_first = batch_first
        data = x.data if isinstance(x, PackedSequence) else x
        check_tensor("input", data)
        tokens = is_tokens(data)
        leading = 1 if self.packed is not None else 2
        if data.dim() != leading + (not tokens) or (not tokens and data.shape[-1] != input_size):
            layout = "(B, T" if batch_first else "(T, B"
            raise ShapeError(
                f"Expected {name} to get an input of shape {layout}, {input_size}), integer classes {layout}), or a "
                f"PackedSequence of either, but got {'one with data ' if self.packed else ''}{tuple(data.shape)}."
            )
        if self.packed is None:
            data = data.transpose(0, 1) if batch_first else data
        if data.shape[0] == 0:
            raise ShapeError(
                f"Expected {name} to get at least one step, but got an input of shape {tuple(data.shape)}."
            )
        if tokens:
            check_same("weight_ih", weight, input=weight.new_empty(0, device=data.device))
        elif not is_autocast(weight):
            check_same("weight_ih", weight, input=data)
        sizes = None if self.packed is None else self.packed.batch_sizes
        if sizes is not None:
            check_kind_of_batch_sizes(sizes)
        self.steps = SequenceLayout.of(data, sizes)
        if sizes is not None and not torch.compiler.is_compiling():
            check_batch_sizes(sizes, self.steps.rows, self.steps.batch)
        self.rows = data if self.packed is not None else data.flatten(0, 1)
        self.batch = self.steps.batch
        if reset is not None:
            self.steps.resets = reset_rows(reset, self.steps, self.packed, batch_first, True, data.device)

    def sorted(self, state: Tensor) -> Tensor:
        """Return a state (B, ...) given in the batch's own order, in the order of the rows."""
        if self.packed is None or self.packed.sorted_indices is None:
            return state
        return state.index_select(0, self.packed.sorted_indices)

    def unsorted(self, state: Tensor) -> Tensor:
        """Return the inverse of `sorted`."""
        if self.packed is None or self.packed.unsorted_indices is None:
            return state
        return state.index_select(0, self.packed.unsorted_indices)

    def run(
        self, projected: tuple[Tensor, ...], state: State, step: Callable[..., State], restart: State
    ) -> tuple[list[Tensor], State]:
        """Return (h_t for every step, the final state of every sequence in the batch's own order).

        projected: rows (R, ...) that `step` takes, step by step, before the state: step(*projected_t, *state) -> state.
        restart: The state from which sequences restart, in the order of the rows.
        """
        states, ended = [], []
        parts: Iterator[tuple[Tensor, ...]] = zip(*(self.steps.split(rows) for rows in projected))
        for part, reset in zip(parts, self.steps.split_resets()):
            size = part[0].shape[0]
            if size < state[0].shape[0]:
                ended.append(tuple(value[size:] for value in state))
                state = tuple(value[:size] for value in state)
            if reset is not None:
                state = tuple([restarted(value, reset, first) for value, first in zip(state, restart)])
            state = step(*part, *state)
            states.append(state[0])
        ended.append(state)
        final = tuple(torch.cat(values) for values in zip(*reversed(ended)))
        return states, tuple(self.unsorted(value) for value in final)

    def laid_out(self, states: list[Tensor], change: Callable[[Tensor], Tensor]) -> Tensor | PackedSequence:
        """Return all states in the layout of the input, after `change` of their rows."""
        if self.packed is None:
            out = change(torch.stack(states))
            return out.transpose(0, 1) if self.batch_first else out
        p = self.packed
        return PackedSequence(change(torch.cat(states)), p.batch_sizes, p.sorted_indices, p.unsorted_indices)
