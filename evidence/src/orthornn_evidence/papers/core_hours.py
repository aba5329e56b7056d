"""The cost of an experiment on this machine, estimated from a few timed updates of each of its networks.

Times are processor time of all threads, which other programs hardly affect. All updates of one configuration cost the same;
checkpoints and recorded spectra are left out.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator

from orthornn.learn.tasks import Batch
from orthornn.learn.training import RunConfig, Trainer

from .experiment import Plan

_ENOUGH = 0.2  # seconds of timed updates
_MOST = 20  # timed updates


def core_hours(plan: Plan) -> float:
    """Return the processor hours of all runs of a plan: updates, validations and test. 0 if it trains nothing."""
    runs = [system for system, _ in plan.runs()]
    return sum(runs.count(system) * _seconds(config) for system, config in plan.systems.items()) / 3600


def _seconds(config: RunConfig) -> float:
    trainer = Trainer(dataclasses.replace(config, device="cpu"))
    trainer.update()  # allocates what the others use again
    updates, spent = 0, 0.0
    while updates < _MOST and spent < _ENOUGH:
        spent += _timed(trainer.update)
        updates += 1
    batch = config.evaluation_batch
    validations = config.steps // config.validate_every if config.validate_every else 1
    validation = _evaluation(trainer, lambda: config.task.problem().validation(batch))
    test = _evaluation(trainer, lambda: config.task.problem().test(batch))
    tests = validations if config.record.test else 1
    return config.steps * spent / updates + validations * validation + tests * test


def _evaluation(trainer: Trainer, batches: Callable[[], Iterator[Batch]]) -> float:
    """Return the seconds of an evaluation: the time of the first batch, times the number of batches."""
    count = sum(1 for _ in batches())
    first = list(itertools.islice(batches(), 1))
    return count * _timed(lambda: trainer.evaluate(iter(first))) if first else 0.0


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
