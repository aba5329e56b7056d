"""The time loop of the gated networks, in pure torch."""

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
        layout: Layout of the rows.
        projected: Tensors of rows (R, ...); `step` receives one step of each, before the state.
        state: The initial state: tensors (B, ...), the first of which is h.
        step: step(*projected_t, *state) -> state.
        restart: The state from which sequences restart at the resets of the layout.

    Shape:
        - h_t: (T, B, ...), or (R, ...) of a ragged batch.
    """
    if layout.length == 0:  # a step of no rows: what is returned has the graph of any other sequence
        after = step(*projected, *(value[:0] for value in state))
        state = tuple(torch.cat([value, last, again[:0]]) for value, last, again in zip(state, after, restart))
        return state[0][:0].view(layout.shape(state[0].shape[1])), state
    if layout.is_ragged and torch.compiler.is_compiling():
        return _run_padded(layout, projected, state, step, restart)
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


def _run_padded(
    layout: SequenceLayout,
    projected: tuple[Tensor, ...],
    state: State,
    step: Callable[..., State],
    restart: State,
) -> tuple[Tensor, State]:
    """Do the same as `run_steps` for a ragged batch, padded with zeros: in a graph no B_t is known.

    A sequence that has ended keeps its final state.
    """
    device = state[0].device
    assert layout.batch_sizes is not None
    falls = (layout.batch_sizes[1:] <= layout.batch_sizes[:-1]).all()
    torch._assert_async(
        falls, "Expected batch_sizes that never grow. Pack with torch.nn.utils.rnn.pack_padded_sequence."
    )

    running = torch.arange(layout.batch, device=device) < layout.batch_sizes.to(device).unsqueeze(1)
    resets = [None] * layout.length if layout.resets is None else layout.padded(layout.resets).unsqueeze(-1).unbind(0)
    states = []
    for runs, reset, *part in zip(
        running.unsqueeze(-1).unbind(0), resets, *(layout.padded(rows).unbind(0) for rows in projected)
    ):
        before = tuple([restarted(value, reset, first) for value, first in zip(state, restart)])
        state = tuple([torch.where(runs, new, old) for new, old in zip(step(*part, *before), before)])
        states.append(state[0])
    return torch.stack(states)[tuple([place.to(device) for place in layout.places()])], state
