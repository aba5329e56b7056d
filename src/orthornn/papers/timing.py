"""How long an update takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ..training import RunConfig, Trainer


def seconds_an_update(config: RunConfig, updates: int) -> float:
    """The median of so many updates, data and optimiser included, after one to warm up."""
    return median_seconds(Trainer(config).update, updates)


def median_seconds(work: Callable[[], object], repetitions: int) -> float:
    """The median of so many repetitions, after one to warm up."""
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
