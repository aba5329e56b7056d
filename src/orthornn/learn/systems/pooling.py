"""Pools: the part of the outputs of a whole sequence that a head reads, the last, the mean of all, or more.

last      h_T
mean      (1/T) sum_t h_t
both      [h_T, (1/T) sum_t h_t], twice as wide
summary   [h_T, (1/T) sum_t h_t, max_t h_t], three times as wide

A mean and a maximum are updated step by step, so networks with them can stream.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

Pool = Literal["last", "mean", "both", "summary"]
POOLS: tuple[str, ...] = get_args(Pool)
PARTS = {"last": 1, "mean": 1, "both": 2, "summary": 3}
"""How often a head reads each output."""


def pooled(outputs: Tensor | PackedSequence, last: Tensor | None, kind: Pool) -> Tensor:
    """Return the head's input for each sequence: (B, F), (B, 2F) or (B, 3F), in the order of the batch.

    Args:
        outputs: Outputs at every step, (T, B, F), or packed.
        last: Output of the last step, (B, F), if it differs from `outputs`, as in bidirectional networks.
        kind: ``"last"``, ``"mean"``, ``"both"`` or ``"summary"``.
    """
    if isinstance(outputs, PackedSequence):
        rows, lengths = pad_packed_sequence(outputs)
        lengths = lengths.to(rows.device)
        there = (torch.arange(rows.shape[0], device=rows.device).unsqueeze(1) < lengths).unsqueeze(2)
        mean = rows.sum(0) / lengths.unsqueeze(1)
        if kind == "mean":
            return mean
        final = rows[lengths - 1, torch.arange(rows.shape[1], device=rows.device)]
        largest = rows.masked_fill(~there, -torch.inf).amax(0)
    else:
        mean = outputs.mean(0)
        if kind == "mean":
            return mean
        final, largest = outputs[-1], outputs.amax(0)
    final = final if last is None else last
    if kind == "last":
        return final
    return torch.cat([final, mean] if kind == "both" else [final, mean, largest], -1)


class RunningPool:
    """The same after each step of a stream."""

    def __init__(self, kind: Pool) -> None:
        self.kind = kind
        self._steps = 0
        self._sum: Tensor | None = None
        self._largest: Tensor | None = None

    def __call__(self, output: Tensor) -> Tensor:
        """Return the head's input for all steps so far. output: Output of this step, (B, F)."""
        if self.kind == "last":
            return output
        self._steps += 1
        self._sum = output.double() if self._sum is None else self._sum + output
        self._largest = output if self._largest is None else torch.maximum(self._largest, output)
        mean = (self._sum / self._steps).to(output.dtype)
        if self.kind == "mean":
            return mean
        return torch.cat([output, mean] if self.kind == "both" else [output, mean, self._largest], -1)
