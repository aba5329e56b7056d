"""How long one training step of a recurrent module takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from torch import Tensor, nn


def step_seconds(cases: Mapping[str, tuple[nn.Module, Tensor]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of a forward pass and the backward pass to all parameters, by name.

    cases: by name, a recurrent module and its input (T, B, I) or (T, B); every output has a gradient.

    The modules take turns, so that a disturbance of the machine meets all of them; one turn before counts for
    none.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(repeats + 1):
        for name, (core, inputs) in cases.items():
            core.zero_grad()
            start = time.perf_counter()
            core(inputs)[0].abs().sum().backward()
            if turn:
                times[name].append(time.perf_counter() - start)
    for core, _ in cases.values():
        core.zero_grad()
    return {name: statistics.median(seconds) for name, seconds in times.items()}
