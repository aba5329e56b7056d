"""A batch in parts: for gradients that are added up over time (accumulation) or over processes."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from ...errors import ArgumentError
from ..tasks import Batch, Objective


def split_batch(objective: Objective, batch: Batch, parts: int) -> list[tuple[Batch, float]]:
    """Return parts of a batch, by sequences, and the weight of each in the mean loss; the weights add up to 1.

    The parts' weighted losses and gradients add up to the loss and gradient of the whole, for a loss that is a mean
    over what `objective.mass` counts; a part without any has weight 0. ArgumentError if there are fewer sequences than
    parts.
    """
    if parts == 1:
        return [(batch, 1.0)]
    inputs = _split(batch.inputs, parts, 1)
    targets = _split(batch.targets, parts, 0 if objective.output == "last" else 1)
    batches = [Batch(x, y) for x, y in zip(inputs, targets, strict=True)]
    masses = [objective.mass(one) for one in batches]
    return [(one, mass / (sum(masses) or 1)) for one, mass in zip(batches, masses, strict=True)]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return the batch on a device; batch_sizes of packed sequences stay on the CPU."""
    return batch if device.type == "cpu" else Batch(batch.inputs.to(device), batch.targets.to(device))


def _split(values: Any, parts: int, along: int) -> list[Any]:
    count = int(values.batch_sizes[0]) if isinstance(values, PackedSequence) else values.shape[along]
    if count < parts:
        raise ArgumentError(
            f"Expected at least {parts} sequences in a batch, one for each part, but got {count}. Raise "
            f"batch_size, --batch-size."
        )
    bounds = [index * count // parts for index in range(parts + 1)]
    if isinstance(values, Tensor):
        return [values.narrow(along, a, b - a) for a, b in itertools.pairwise(bounds)]
    sequences = unpack_sequence(values)
    return [pack_sequence(sequences[a:b], enforce_sorted=False) for a, b in itertools.pairwise(bounds)]
