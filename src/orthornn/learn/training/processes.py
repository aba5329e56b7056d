"""Data-parallel training under torchrun: every process computes its part of each batch.

Gradients are summed over processes, weighted by their share of the batch, so an update equals the update of one process
with the whole batch; weights, optimizer and random state are equal everywhere, and only rank 0 writes. There is no
wrapper around the model: checkpoints equal those of a single process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Processes:
    """rank: of this process. count: how many there are."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @classmethod
    def from_environment(cls) -> Processes:
        """Join the group that torchrun describes by RANK and WORLD_SIZE; a single process without it."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        return cls(dist.get_rank(), count)

    @property
    def first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor], numbers: Sequence[float]) -> list[float]:
        """Replace each tensor by its sum over the processes; the sums of the numbers. One message for all."""
        if self.count == 1:
            return list(numbers)
        flat = torch.cat(
            [torch.tensor(numbers, dtype=torch.float64), *(t.detach().double().cpu().reshape(-1) for t in tensors)]
        )
        dist.all_reduce(flat)
        place = len(numbers)
        for tensor in tensors:
            tensor.detach().copy_(flat[place : place + tensor.numel()].reshape(tensor.shape))
            place += tensor.numel()
        return flat[: len(numbers)].tolist()

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def leave(self) -> None:
        """End the group."""
        if self.count > 1 and dist.is_initialized():
            dist.destroy_process_group()
