"""Compare networks by processor time on one thread, which holds also while other programs use the machine.

`python benchmarks/processor_time.py OUT.json` runs the cases of the README: forward and backward to all parameters over 784
steps, W rebuilt each time, float32, input size 1. Every network takes its turn in every round; the least processor time of
all rounds counts, because whatever disturbs a run makes it longer. `orthornn bench` measures wall time with all threads, on
a machine that is otherwise idle.
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
from orthornn.lab.bench.cases import Case, Work
from orthornn.lab.bench.networks import NETWORKS, OURS, Runnable
from orthornn.lab.systems import count_parameters

CASES = {  # rounds of each
    "wy-256-32-b1": 7,
    "wy-128-16-b1": 7,
    "cayley-170-b1": 7,
    "wy-256-32-b50": 4,
    "cayley-170-b50": 4,
    "cayley-512-b50": 3,
}
PEERS = ("rnn", "lstm", "lstm-parameters")
_SHORT = 0.05


def seconds(network: Runnable) -> float:
    """Return the least processor time of a run; a short one is repeated."""
    least, spent = float("inf"), 0.0
    while spent < _SHORT:
        network.clear()
        start = time.process_time()
        network.run()
        least = min(least, time.process_time() - start)
        spent += time.process_time() - start
    return least


def main() -> int:
    """Measure, and write the JSON after every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, help="for every case, instead of the cases' own")
    parser.add_argument("--T", type=int, default=784)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    work = Work(T=arguments.T)
    machine = environment()
    content = {
        "command": "python benchmarks/processor_time.py results/bench/one-thread.json",
        "what": "least processor time of one forward and backward pass, seconds, one thread",
        "T": work.T,
        "written": machine["started"],
        "machine": {key: machine.get(key) for key in ("processor", "cores", "threads", "torch", "commit", "isa")},
        "cases": {},
    }
    gc.disable()
    for name, rounds in CASES.items():
        case = Case.parse(name)
        networks = {key: Runnable.make(key, case, work) for key in (OURS, *PEERS)}
        for network in networks.values():
            seconds(network)
        runs: dict[str, list[float]] = {key: [] for key in networks}
        for _ in range(arguments.rounds or rounds):
            for key, network in networks.items():
                runs[key].append(seconds(network))
        content["cases"][name] = {
            "title": case.title,
            "n": case.n,
            "m": case.m,
            "batch": case.batch,
            "networks": {
                key: {
                    "what": NETWORKS[key].summary,
                    "parameters": count_parameters(network.module),
                    "seconds": min(runs[key]),
                    "rounds": runs[key],
                }
                for key, network in networks.items()
            },
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, *(f"{key} {1e3 * min(values):.3g} ms" for key, values in runs.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
