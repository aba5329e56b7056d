"""Measure what the programs in examples/ learn, and how long an update takes, on one thread.

    python benchmarks/examples.py --out results/examples.json

Rates are per second of processor time. The step of the online learner is timed on its own, the least of five runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.environment import environment

ROOT = Path(__file__).resolve().parent.parent


def example(name: str) -> ModuleType:
    """Return a program of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policy(updates: int, report: int) -> dict[str, Any]:
    """Return the share of episodes that end right before each report, by the update of the report, and the rates."""
    found = example("recurrent_policy").train(updates, report=report)
    shares, steps, rates = zip(*found)
    return {
        "right": {str(report * (k + 1)): share for k, share in enumerate(shares)},
        "environment_steps_per_second": median(steps),
        "updates_per_second": median(rates),
        "milliseconds_per_update": 1000 / median(rates),
    }


def online(observations: int, report: int) -> dict[str, float]:
    """Return the squared errors over the last observations, truncated and exact, of the trivial predictor and the noise."""
    module = example("online")
    truncated, exact = module.learn(observations, report), module.learn_exactly(observations, report)
    return {
        "truncated": truncated[-1][0],
        "exact": exact[-1][0],
        "trivial": exact[-1][1],
        "noise": module.NOISE**2,
    }


def learner(steps: int, every: int, size: int = 64) -> float:
    """Return the microseconds of a step of the online learner with an update by Adam every so many steps."""
    torch.manual_seed(0)
    rnn = OrthogonalRNN(1, size, parametrization=Householder(), nonlinearity="identity", gain=0.95)
    found = rnn.online(torch.nn.Linear(size, 1), lr=1e-3, recurrent_lr=1e-4, every=every)
    x, target = torch.randn(steps, 1), torch.randn(steps, 1)
    least = float("inf")
    for _ in range(5):
        start = time.process_time()
        found(x, target)
        least = min(least, time.process_time() - start)
    return 1e6 * least / steps


def main() -> None:
    """Measure, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=400, help="of the policy")
    parser.add_argument("--observations", type=int, default=10_000, help="of the stream")
    parser.add_argument("--steps", type=int, default=100_000, help="of the online learner that is timed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record = {
        "environment": environment(),
        "policy": {"updates": given.updates} | policy(given.updates, min(50, given.updates)),
        "online": {"observations": given.observations} | online(given.observations, min(1000, given.observations)),
        "learner_microseconds": {f"every {k}": learner(given.steps, k) for k in (1, 10)},
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
