"""Sequences of unequal length, as the flat rows of a PackedSequence: reversal, and the last state of each."""

from __future__ import annotations

import torch
from torch import Tensor


def _positions(batch_sizes: Tensor, rows: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For each row its step and its sequence, and the row at which each step begins: int64, (R,), (R,), (T,)."""
    starts = batch_sizes.cumsum(0) - batch_sizes
    step = torch.repeat_interleave(
        torch.arange(batch_sizes.shape[0], device=batch_sizes.device), batch_sizes, output_size=rows
    )
    sequence = torch.arange(rows, device=batch_sizes.device) - starts[step]
    return step.to(device), sequence.to(device), starts.to(device)


def lengths(batch_sizes: Tensor, batch: int, device: torch.device) -> Tensor:
    """The length of each sequence: int64, (B,)."""
    return (
        (batch_sizes.unsqueeze(0) > torch.arange(batch, device=batch_sizes.device).unsqueeze(1)).sum(dim=1).to(device)
    )


def reverse_rows(x: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """Each sequence backwards, every one from its own last step: (T, B, ...) or flat rows (R, ...)."""
    if batch_sizes is None:
        return x.flip(0)
    step, sequence, starts = _positions(batch_sizes, x.shape[0], x.device)
    end = starts.new_zeros(x.shape[0]).scatter_reduce(0, sequence, step, "amax")[sequence]
    return x[starts[end - step] + sequence]


def last_of_each(states: Tensor, h0: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """The last state of each sequence, h_0 where there is no step: (B, N)."""
    if batch_sizes is None:
        return states[-1] if states.shape[0] else h0
    ends = lengths(batch_sizes, h0.shape[0], states.device) - 1
    starts = (batch_sizes.cumsum(0) - batch_sizes).to(states.device)
    return states[starts[ends] + torch.arange(h0.shape[0], device=states.device)]
