"""Compare networks by processor time on one thread, which holds also while other programs use the machine.

`python benchmarks/processor_time.py OUT.json` runs the cases of the README: forward and backward to all parameters over 784
steps, W rebuilt each time, float32, input size 1. Every network takes its turn in every round; the least processor time of
all rounds counts, because whatever disturbs a run makes it longer. The rounds are those of six processes: where an
allocator puts large tensors, and with it the time of a network, can differ from one process to the next by a factor of
three. Half of the processes run as by default, and half with an allocator that keeps all freed memory: tensors of more than
32 MB are otherwise new pages for every call, on which an LSTM spends much of its time. `orthornn bench` measures wall time
with all threads, on a machine that is otherwise idle.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from orthornn.environment import environment
from orthornn.learn.systems import count_parameters
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.networks import NETWORKS, OURS, Runnable

CASES = {  # rounds of each in a process
    "rotations-256-16-b1": 7,
    "rotations-128-16-b1": 7,
    "cayley-170-b1": 7,
    "rotations-256-16-b50": 4,
    "cayley-170-b50": 4,
    "cayley-512-b50": 3,
}
PROCESSES = 3  # of either kind
# Settings of the GNU C library, which a process reads when it starts: from how many bytes on it returns freed memory.
KEEPING = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
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


def measured(name: str, rounds: int, T: int) -> dict[str, dict[str, Any]]:
    """Return what each network is, its parameters, and the seconds of its rounds in this process."""
    torch.set_num_threads(1)
    gc.disable()
    case, work = Case.parse(name), Work(T=T)
    networks = {key: Runnable.make(key, case, work) for key in (OURS, *PEERS)}
    for network in networks.values():
        seconds(network)
    runs: dict[str, list[float]] = {key: [] for key in networks}
    for _ in range(rounds):
        for key, network in networks.items():
            runs[key].append(seconds(network))
    return {
        key: {
            "what": NETWORKS[key].summary,
            "parameters": count_parameters(network.module),
            "rounds": runs[key],
        }
        for key, network in networks.items()
    }


def in_own_process(name: str, rounds: int, T: int, settings: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return what `measured` does, in a process that begins with these variables of the environment."""
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    try:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(measured, (name, rounds, T))
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def main() -> int:
    """Measure, and write the JSON after every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, help="for every case, instead of the cases' own")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--T", type=int, default=784)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    work = Work(T=arguments.T)
    machine = environment()
    content = {
        "command": "python benchmarks/processor_time.py results/bench/one-thread.json",
        "what": "least processor time of one forward and backward pass, seconds, one thread",
        "keeping": KEEPING,
        "T": work.T,
        "written": machine["started"],
        "machine": {
            key: machine[key] for key in ("processor", "cores", "threads", "torch", "commit", "instruction_set")
        },
        "cases": {},
    }
    for name, rounds in CASES.items():
        case = Case.parse(name)
        networks: dict[str, dict[str, Any]] = {}
        for _ in range(arguments.processes):
            for kind, settings in (("rounds", {}), ("rounds_keeping", KEEPING)):
                found = in_own_process(name, arguments.rounds or rounds, work.T, settings)
                for key, values in found.items():
                    own = networks.setdefault(key, {**values, "rounds": [], "rounds_keeping": []})
                    own[kind] += values["rounds"]
        for values in networks.values():
            values["seconds_by_default"] = min(values["rounds"])
            values["seconds"] = min(values["rounds"] + values["rounds_keeping"])
        content["cases"][name] = {"network": case.network, "batch": case.batch, "networks": networks}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, *(f"{key} {1e3 * values['seconds']:.3g} ms" for key, values in networks.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
