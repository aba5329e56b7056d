"""Sequences of unequal length, end to end in memory, and batches of them without a Python cost per sequence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


class StepIndex(NamedTuple):
    """The rows of a store that are the steps of a batch.

    places: int64, (T, B) if all sequences are equally long, else (R,) in the order of a PackedSequence.
    batch_sizes: int64 (T,), or None. order: which sequence of the batch each packed one is, int64 (B,), or None.
    """

    places: Tensor
    batch_sizes: Tensor | None
    order: Tensor | None

    def take(self, values: Tensor, ahead: int = 0) -> Tensor | PackedSequence:
        """Return the rows of `values` (rows, ...) for every step, or those `ahead` rows later."""
        taken = values[self.places + ahead if ahead else self.places]
        if self.batch_sizes is None:
            return taken
        return pack_rows(taken, self.batch_sizes, self.order)


def pack_rows(rows: Tensor, batch_sizes: Tensor, order: Tensor | None) -> PackedSequence:
    """Return rows (R, ...) in the order of a PackedSequence as one."""
    return PackedSequence(rows, batch_sizes, order, None if order is None else order.argsort())


def step_index(starts: np.ndarray, lengths: np.ndarray) -> StepIndex:
    """Return the index of the sequences that begin at rows `starts` (B,) and have `lengths` (B,) >= 1 steps."""
    longest = int(lengths.max())
    steps = np.arange(longest)[:, None]
    if int(lengths.min()) == longest:
        return StepIndex(torch.from_numpy(starts[None] + steps), None, None)
    order = np.argsort(-lengths, kind="stable")
    there = steps < lengths[order]
    index = (starts[order] + steps)[there]
    return StepIndex(torch.from_numpy(index), torch.from_numpy(there.sum(1)), torch.from_numpy(order))


class Ragged:
    """Sequences of unequal length as one block of rows.

    lengths: int64 (S,), each at least 1. starts: the row at which each begins.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = np.asarray(lengths, np.int64)
        self.starts = self.lengths.cumsum() - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def steps(self, chosen: np.ndarray, shorter: int = 0) -> StepIndex:
        """Return the index of the steps of these sequences, each without its last `shorter` steps."""
        return step_index(self.starts[chosen], self.lengths[chosen] - shorter)


def flat(prediction: Tensor, targets: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
    """Return the prediction (R, O) and targets (R, ...), row by row, of a task with an output at every step."""
    if isinstance(targets, PackedSequence):
        return prediction, targets.data
    return prediction.flatten(0, 1), targets.flatten(0, 1)


def mean_of_each(rows: Tensor, targets: Tensor | PackedSequence) -> Tensor:
    """Return the mean of `rows` (R,) over each sequence of the batch: (B,), in the order of the packing."""
    if not isinstance(targets, PackedSequence):
        return rows.unflatten(0, targets.shape[:2]).mean(0)
    sizes = targets.batch_sizes
    place = torch.arange(len(rows)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    batch = int(sizes[0])
    sums = rows.new_zeros(batch).index_add_(0, place.to(rows.device), rows)
    lengths = (sizes.unsqueeze(0) > torch.arange(batch).unsqueeze(1)).sum(1)
    return sums / lengths.to(rows.device)
