"""How a sequence passes through the layers and directions of a network, and the arguments that set their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .._warnings import warn
from ..layout import SequenceLayout

Segment = Callable[[Tensor, Tensor, SequenceLayout], tuple[Tensor | None, Tensor]]
"""Runs all layers on one segment of steps: rows, states before (L, B, ...), layout -> outputs, states after."""


def through_segments(
    run: Segment,
    x: Tensor,
    h: Tensor,
    layout: SequenceLayout,
    steps: int,
    reads: Sequence[Tensor | None],
    random: bool = False,
) -> Iterator[tuple[Tensor | None, Tensor]]:
    """Yield (outputs, states of all B sequences) after each segment, storing only the states for the backward pass.

    Args:
        run: Runs one segment; it is called again in the backward pass.
        x: Rows of all steps.
        h: The initial states (L, B, ...). States of sequences that have ended do not change.
        layout: The division of the rows into steps.
        steps: Steps per segment.
        reads: Tensors that ``run`` reads in addition to its arguments: changing one before the backward pass is an
            error.
        random: Whether ``run`` draws random numbers.
    """

    def run_of(rows: Tensor, h: Tensor, part: SequenceLayout, *_: Tensor | None) -> tuple[Tensor | None, Tensor]:
        return run(rows, h, part)

    reads = (*reads, layout.resets, layout.dt)
    parts = layout.segments(steps)
    pieces = x.split([part.rows if part.is_ragged else part.length for _, part in parts])
    for rows, (_, part) in zip(pieces, parts):
        running = h[:, : part.batch]
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (rows, h, *reads)):
            out, last = checkpoint(run_of, rows, running, part, *reads, use_reentrant=False, preserve_rng_state=random)
        else:
            out, last = run(rows, running, part)
        h = last if part.batch == h.shape[1] else torch.cat([last, h[:, part.batch :]], dim=1)
        yield out, h


class Stack:
    """The state of one pass: a network runs index 0, 1, ... between `enter` and `leave`, layer by layer, forward first.

    The network's forward call invokes the kernels directly, which keeps stack traces short.

    Attributes:
        x: The input of the current layer. At the end, the outputs of the last layer, or with ``only_last`` its outputs
            after each sequence's last step.
    """

    def __init__(
        self, x: Tensor, layout: SequenceLayout, layers: int, directions: int, dropout: float, only_last: bool
    ) -> None:
        """Start with an input x (T, B, ...) or (R, ...) of this layout.

        dropout: Dropout between layers, 0 outside training. only_last: Whether only the last outputs of the last layer
            are needed.
        """
        self.x, self.layout, self.directions, self.dropout = x, layout, directions, dropout
        self.ends_at = layers - 1 if only_last else layers
        self.outs: list[Tensor] = []
        self.finals: list[Tensor] = []

    def enter(self, index: int) -> tuple[Tensor, SequenceLayout, bool]:
        """Return (rows in the order in which this layer and direction reads them, their layout, only_last)."""
        layer, direction = divmod(index, self.directions)
        if layer and direction == 0 and self.dropout:
            self.x = _drop(self.x, self.dropout)
        ends = layer == self.ends_at
        return (
            (self.x, self.layout, ends)
            if direction == 0
            else (self.layout.reverse(self.x), self.layout.reversed(), ends)
        )

    def leave(self, every: Tensor | None, last: Tensor | None) -> None:
        """Take the result of the layer and direction that was entered last: its outputs (None if there are only final
        states) and its final states.
        """
        assert last is not None
        layer, direction = divmod(len(self.finals), self.directions)
        self.finals.append(last)
        out = last if every is None else every
        self.outs.append(out if direction == 0 or layer == self.ends_at else self.layout.reverse(out))
        if len(self.outs) == self.directions:
            self.x = self.outs[0] if self.directions == 1 else torch.cat(self.outs, dim=-1)
            self.outs = []

    def final_states(self) -> Tensor:
        """Return h_n (L * D, B, ...)."""
        return torch.stack(self.finals)


def _drop(x: Tensor, dropout: float) -> Tensor:
    """Return dropout of x, also for complex numbers, which torch does not support: each is zeroed as a whole."""
    return x * F.dropout(torch.ones_like(x.real), dropout) if x.is_complex() else F.dropout(x, dropout)


def warn_of_dropout(dropout: float, num_layers: int) -> None:
    """Warn about a dropout without effect; constructors call this."""
    if dropout and num_layers == 1:
        warn(
            f"dropout={dropout} has no effect with one layer: it acts on the outputs of every layer but the last. Pass "
            f"dropout=0 to silence this."
        )
