"""Measure the usual calls by processor time on one thread, which holds also while other programs use the machine.

`python benchmarks/usual_calls.py OUT.json` times forward and backward to all parameters for each way of reading the last
state, and updates of the training loop next to their time inside the compiled kernels. Everything takes its turn in every
round; the least time of all rounds counts, because whatever disturbs a run makes it longer.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

import torch

from orthornn.environment import environment
from orthornn.modules import OrthogonalRNN
from orthornn_evidence.bench import floors
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.last_state import WAYS
from orthornn_evidence.bench.networks import OURS, Runnable
from orthornn_evidence.bench.training_step import training_step


def last_state(case: Case, T: int, rounds: int) -> dict[str, float]:
    """Return the least seconds of forward and backward in each way of reading the last state."""
    runnable = Runnable.make(OURS, case, Work(T, "last"))
    module = runnable.module
    assert isinstance(module, OrthogonalRNN)
    least = dict.fromkeys(WAYS, float("inf"))
    for _ in range(2 * rounds):
        for way, read in WAYS.items():
            runnable.clear()
            start = time.process_time()
            read(module, runnable.x).backward(runnable.grad)
            least[way] = min(least[way], time.process_time() - start)
    return least


def update(case: Case, T: int, rounds: int) -> dict[str, float]:
    """Return the least seconds of an update, of its part inside the compiled kernels, and of the rest."""
    cost = training_step(T, rounds, case, time.process_time)
    timings = {"update": cost.update, "inside": cost.inside, "outside": cost.outside}
    return {name: min(map(min, timing.rounds)) for name, timing in timings.items()}


def main() -> int:
    """Measure, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--T", type=int, default=784)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    machine, T = environment(), arguments.T
    case = Case.parse(floors.LAST_STATE_CASE)
    content = {
        "command": "python benchmarks/usual_calls.py results/bench/usual-calls.json",
        "what": "least processor time, seconds, one thread",
        "T": T,
        "written": machine["started"],
        "machine": {
            key: machine[key] for key in ("processor", "cores", "threads", "torch", "commit", "instruction_set")
        },
        "last_state": {"title": case.title, "ways": last_state(case, T, arguments.rounds)},
        "updates": {
            case.title: update(case, T, arguments.rounds if case.batch > 1 else 10 * arguments.rounds)  # short ones
            for case in map(Case.parse, floors.STEP_CASES)
        },
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: content[key] for key in ("last_state", "updates")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
