"""The time of an update."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from orthornn.learn.training import RunConfig, Trainer


def clock() -> Callable[[], float]:
    """Return the processor clock if there is one thread, which other programs do not affect, else the wall clock."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def seconds_an_update(config: RunConfig, updates: int) -> float:
    """Return the median time of an update, including data and optimizer, after a warm-up update."""
    return median_seconds(Trainer(config).update, updates)


def median_seconds(work: Callable[[], object], repetitions: int) -> float:
    """Return the median time of a call, after a warm-up call."""
    now = clock()
    work()
    times = []
    for _ in range(repetitions):
        start = now()
        work()
        times.append(now() - start)
    return statistics.median(times)
