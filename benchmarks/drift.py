"""How far CayleySGD drifts from the manifold over many updates in float32: `python benchmarks/drift.py OUT.json`.

Each update takes a random Gaussian gradient, lr 0.01. The JSON has, for every n, the largest error found before a
correction and the one after the last update, at points a factor of ten apart. Ends with an error if the drift is not
below 1e-5.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from orthornn.environment import environment
from orthornn.optim import CayleySGD
from orthornn.parametrizations.matrices import haar

LIMIT = 1e-5
UPDATES = {64: 100_000, 128: 100_000, 512: 20_000}  # seven minutes on one core


def drift(n: int, updates: int) -> dict[str, Any]:
    """Return the errors ||W'W - I|| of one matrix over this many updates."""
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(haar(n, False, generator).float())
    optimizer = CayleySGD([parameter], lr=0.01)
    found, start = [], time.process_time()
    for done in range(1, updates + 1):
        parameter.grad = torch.randn(n, n, generator=generator)
        optimizer.step()
        if done == updates or done in (100, 1000, 10_000):
            (now,) = optimizer.orthogonality_errors()
            found.append({"updates": done, "before_a_correction": optimizer.drift(), "now": now})
    return {"updates": updates, "cpu_seconds": round(time.process_time() - start, 1), "errors": found}


def main() -> int:
    """The exit status: 0 if the drift stayed below LIMIT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--updates", type=int, help="for every n, instead of its own")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = environment()
    content = {
        "command": "python benchmarks/drift.py results/bench/drift.json",
        "machine": {name: machine[name] for name in ("processor", "torch", "python", "commit", "started")},
        "sizes": {},
    }
    for n, updates in UPDATES.items():
        content["sizes"][n] = drift(n, arguments.updates or updates)
        print(n, content["sizes"][n], flush=True)
    part = arguments.out.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(arguments.out)
    last = [size["errors"][-1]["before_a_correction"] for size in content["sizes"].values()]
    return 0 if all(0 < error < LIMIT for error in last) else 1


if __name__ == "__main__":
    sys.exit(main())
