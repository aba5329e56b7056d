"""The time loop of the gated networks, in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..layout import SequenceLayout, restarted

State = tuple[Tensor, ...]


def run_steps(
    layout: SequenceLayout,
    projected: tuple[Tensor, ...],
    state: State,
    step: Callable[..., State],
    restart: State,
) -> tuple[Tensor, State]:
    """Return (h_t for every step, the final state of every sequence), both in the order of the rows.

    Args:
        layout: Of the rows.
        projected: Rows (R, ...) that `step` takes, step by step, before the state.
        state: The initial state, tensors (B, ...) of which the first is h.
        step: step(*projected_t, *state) -> state.
        restart: The state from which sequences restart where the layout has resets.

    Shape:
        - h_t: (T, B, ...), or (R, ...) of a ragged batch.
    """
    if layout.length == 0:  # a step of no rows: what is returned has the graph of any other sequence
        after = step(*projected, *(value[:0] for value in state))
        state = tuple(torch.cat([value, last, again[:0]]) for value, last, again in zip(state, after, restart))
        return state[0][:0].view(layout.shape(state[0].shape[1])), state
    states, ended = [], []
    parts: Iterator[tuple[Tensor, ...]] = zip(*(layout.split(rows) for rows in projected))
    for part, reset in zip(parts, layout.split_resets()):
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
    return layout.join(states), final
