"""How long an update takes."""

from __future__ import annotations

import statistics
import time

from ..training import RunConfig, Trainer


def seconds_an_update(config: RunConfig, updates: int) -> float:
    """The median of so many updates, data and optimiser included, after one to warm up."""
    trainer = Trainer(config)
    trainer.update()
    times = []
    for _ in range(updates):
        start = time.perf_counter()
        trainer.update()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
