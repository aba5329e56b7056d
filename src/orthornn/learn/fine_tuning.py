"""Fine-tuning of a trained network with rounded weights, before its export as integers."""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

from .._checks import check_float32, check_integer
from .._recording import recording
from ..errors import ArgumentError
from ..export.c import RoundedNetwork
from .fit import Fit
from .training.config import OptimizerConfig, RunConfig, ScheduleConfig
from .training.learner import Learner

_CLIP = 1.0
_SMALLER = "Lower fine_tune_lr, --fine-tune-lr."


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
    problem, objective = task.problem(), task.objective()
    if objective.carries_state:
        raise ArgumentError(
            f"Expected a task whose batches begin with the network's own initial state, but got {task.name}, which carries "
            f"states over. Export without fine-tuning."
        )
    own = RunConfig(
        optimizer=OptimizerConfig(lr=lr, clip_norm=_CLIP),
        schedule=ScheduleConfig("cosine"),
        steps=steps,
        validate_every=steps + 1,
        **{name: getattr(config, name) for name in ("batch_size", "seed", "evaluation_batch")},
    )
    later = dataclasses.replace(problem, train=lambda step, *which: problem.train(begin + step, *which))
    learner = Learner(later, objective, network, own, smaller_updates=_SMALLER)  # type: ignore[arg-type]
    before = learner.evaluate(problem.validation(own.evaluation_batch))
    weights = copy.deepcopy(network.state_dict())
    Fit(learner).advance(lambda seconds: False)
    after = learner.evaluate(problem.validation(own.evaluation_batch))
    sign = 1 if task.higher_is_better else -1
    used = not before or (sign * after[task.metric], -after["loss"]) >= (sign * before[task.metric], -before["loss"])
    if not used:
        network.load_state_dict(weights)
    network.eval()
    return FineTuning(before, after, used)
