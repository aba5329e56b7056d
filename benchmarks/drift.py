"""How far CayleySGD drifts from the manifold over many updates in float32: `python benchmarks/drift.py OUT`.

A random Gaussian gradient at every update, lr 0.01. Writes OUT/drift.jsonl, a line every --log updates, and goes on
from OUT/state.pt if it was stopped before --updates. Ends with an error if the drift is not below 1e-5.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch

from orthornn.optim import CayleySGD
from orthornn.parametrizations.matrices import haar

LIMIT = 1e-5


def main() -> int:
    """The exit status: 0 if the drift stayed below LIMIT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--log", type=int, default=1000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    state = arguments.out / "state.pt"
    n, generator = arguments.n, torch.Generator().manual_seed(0)
    saved = torch.load(state) if state.exists() else None
    first = haar(n, False, generator).float() if saved is None else saved["parameter"]
    parameter = torch.nn.Parameter(first)
    optimizer = CayleySGD([parameter], lr=0.01)
    done = 0
    if saved is not None:
        optimizer.load_state_dict(saved["optimizer"])
        generator.set_state(saved["generator"])
        done = saved["updates"]
    started, before = time.perf_counter(), done
    while done < arguments.updates:
        parameter.grad = torch.randn(n, n, generator=generator)
        optimizer.step()
        done += 1
        if done % arguments.log == 0 or done == arguments.updates:
            (now,) = optimizer.orthogonality_errors()
            line = {
                "updates": done,
                "drift": optimizer.drift(),
                "now": now,
                "ms_per_update": 1e3 * (time.perf_counter() - started) / (done - before),
            }
            with (arguments.out / "drift.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            print(line, flush=True)
            whole = {
                "parameter": parameter.detach(),
                "optimizer": optimizer.state_dict(),
                "generator": generator.get_state(),
                "updates": done,
            }
            torch.save(whole, state.with_suffix(".part"))
            os.replace(state.with_suffix(".part"), state)
    return 0 if 0 < optimizer.drift() < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
