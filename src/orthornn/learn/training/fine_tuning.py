"""Fine-tuning of a trained network with rounded weights, before its export as integers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from ..._checks import check_float32, check_integer
from ..._recording import recording
from ...errors import ArgumentError, NonFiniteError
from ...export.c import RoundedNetwork
from ..tasks import Batch, Task
from .config import RunConfig

_CLIP = 1.0


class FineTuning(NamedTuple):
    """Validation metrics with rounded weights before and after, empty for a task without validation data.

    used: Whether the trained weights are in the network: not if the validation was better before, by the metric of the
        task, or by the loss if the metric is equal.
    """

    before: dict[str, float]
    after: dict[str, float]
    used: bool


@recording()
def fine_tune(network: RoundedNetwork, config: RunConfig, begin: int, steps: int, lr: float) -> FineTuning:
    """Train a network with rounded weights on the training data of its run: Adam, cosine schedule, gradient norm 1.

    Args:
        network: The network, which is changed.
        config: Config of the run: task, batch size and seed.
        begin: Updates that the run has made; the batches continue from there.
        steps: Updates.
        lr: Learning rate at the beginning.

    Raises:
        ArgumentError: If the task carries states from batch to batch.
        NonFiniteError: If the loss is NaN or infinite.
    """
    check_integer("fine_tune", steps, 1)
    check_float32("fine_tune_lr", lr, "Pass 0.001, for example.", zero=False)
    task = config.task
    if task.carries_state:
        raise ArgumentError(
            f"Expected a task whose batches begin with the network's own initial state, but got {task.name}, which carries "
            f"states over. Export without fine-tuning."
        )
    before = _metrics(network, task, task.validation(config.evaluation_batch))
    weights = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for step in range(begin, begin + steps):
        batch = task.train_batch(step, config.batch_size, config.seed)
        optimizer.zero_grad()
        loss = task.loss(network(batch.inputs), batch.targets)
        if not math.isfinite(loss.item()):
            raise NonFiniteError(
                f"Expected a finite loss, but got {loss.item()} at update {step}. Lower fine_tune_lr, --fine-tune-lr."
            )
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
        optimizer.step()
        schedule.step()
    after = _metrics(network, task, task.validation(config.evaluation_batch))
    sign = 1 if task.higher_is_better else -1
    used = not before or (sign * after[task.metric], -after["loss"]) >= (sign * before[task.metric], -before["loss"])
    if not used:
        network.load_state_dict(weights)
    network.eval()
    return FineTuning(before, after, used)


@torch.no_grad()
def _metrics(network: RoundedNetwork, task: Task, batches: Iterator[Batch]) -> dict[str, float]:
    network.eval()
    sums: dict[str, tuple[float, float]] = {}
    for batch in batches:
        for name, (total, count) in task.metrics(network(batch.inputs), batch.targets).items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = before[0] + total, before[1] + count
    return task.summarized({name: total / count for name, (total, count) in sums.items() if count})
