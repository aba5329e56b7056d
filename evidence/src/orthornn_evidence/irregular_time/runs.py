"""Train networks on sequences with dropped samples, and store each run when it ends.

    python -m orthornn_evidence.irregular_time --out results/irregular_time

networks  blocks over time   OrthogonalBlocks whose state moves by the time since the previous sample
          blocks, LSTM, GRU  read this time as another input
          GRU-D              decays its state by it (gru_d.py)

All have a linear readout and about the same number of parameters. For each problem, share of dropped samples and network,
runs with the first seed select the learning rate by validation; the other seeds use it, and the test errors of all seeds
count. A file of results/irregular_time has all runs of a problem; the same command resumes after the last one. Several
problems may be trained at the same time, each by one process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from orthornn._files import write_bytes
from orthornn.environment import environment
from orthornn.errors import ArgumentError
from orthornn.learn.systems import build
from orthornn.learn.systems.build import count_parameters

from ..once_parser import OnceParser
from .gru_d import gru_d
from .problems import PROBLEMS, Problem

RATES = (3e-3, 1e-2)
SHARES: Mapping[str, tuple[float, ...]] = {
    "forecast": (0.1, 0.3, 0.5, 0.7, 0.9),
    "frequency": (0.1, 0.7),
    "sensors": (0.5, 0.7, 0.9),
    "events": (0.7, 0.9),
}
OURS = "blocks over time"
GRU_D = "GRU-D"
_BUILT: Mapping[str, tuple[str, dict[str, Any]]] = {
    OURS: ("blocks", {"decay": True}),
    "blocks": ("blocks", {"decay": True}),
    "LSTM": ("lstm", {"forget_bias": 1.0}),
    "GRU": ("gru", {}),
}
NETWORKS = (*_BUILT, GRU_D)
Run = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """How long each network is trained, and how large it is."""

    updates: int = 400
    batch: int = 32
    seeds: int = 3
    parameters: int = 6000


def made(network: str, problem: Problem, parameters: int) -> nn.Module:
    """Return a network for a problem."""
    if network == GRU_D:
        return gru_d(problem.inputs, problem.outputs, parameters, problem.pool)
    kind, options = _BUILT[network]
    return build(
        kind,
        problem.inputs,
        problem.outputs,
        last_input="elapsed" if network == OURS else None,
        parameters=parameters,
        pool=problem.pool,
        **options,
    )


def trained(network: str, problem: Problem, rate: float, seed: int, budget: Budget) -> nn.Module:
    """Return a network after its training."""
    torch.manual_seed(seed)
    model = made(network, problem, budget.parameters)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.updates)
    for update in range(budget.updates):
        inputs, answers = problem.batch(seed, update, budget.batch)
        loss = problem.loss(model(inputs), answers)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def error(model: nn.Module, problem: Problem, part: str) -> float:
    """Return the error on a part of a problem."""
    inputs, answers = problem.part(part)
    return problem.error(model(inputs), answers)


def best_rate(runs: Sequence[Run], rates: Sequence[float] = RATES) -> float | None:
    """Return the learning rate with the best validation result of the first seed; None unless all rates were tried."""
    tried = {run["rate"]: run["validation"] for run in runs if run["seed"] == 0}
    return min(rates, key=tried.__getitem__) if tried.keys() >= set(rates) else None


def of(runs: Sequence[Run], dropped: float, network: str) -> list[Run]:
    """Return the runs of a network with a share of samples dropped."""
    return [run for run in runs if (run["dropped"], run["network"]) == (dropped, network)]


def left(runs: Sequence[Run], shares: Sequence[float], seeds: int) -> Iterator[tuple[float, str, float, int]]:
    """Yield (share, network, rate, seed) of the missing runs, while `runs` grows."""
    for dropped in shares:
        for network in NETWORKS:
            for rate in RATES:
                if not any((run["rate"], run["seed"]) == (rate, 0) for run in of(runs, dropped, network)):
                    yield dropped, network, rate, 0
            best = best_rate(of(runs, dropped, network))
            assert best is not None
            there = {run["seed"] for run in of(runs, dropped, network) if run["rate"] == best}
            for seed in sorted({*range(seeds)} - there):
                yield dropped, network, best, seed


def run(file: Path, name: str, budget: Budget, shares: Sequence[float] = ()) -> None:
    """Train the missing runs of a problem, and store each when it ends.

    shares: Shares of dropped samples; all of `SHARES` unless given.

    Raises:
        ArgumentError: If the file has runs with another budget or other rates.
    """
    asked = {"budget": asdict(budget), "rates": list(RATES)}
    record: dict[str, Any] = {**asked, "environments": [], "runs": []}
    if file.exists():
        record = json.loads(file.read_text(encoding="utf-8"))
        other = [key for key in asked if record[key] != asked[key]]
        if other:
            raise ArgumentError(
                f"Expected the {other[0]} of {file}, {record[other[0]]}, but got {asked[other[0]]}. Write another file."
            )
    command = ["python", "-m", "orthornn_evidence.irregular_time", *sys.argv[1:]]  # not the folder of the source
    record["environments"].append({**environment(), "command": command})  # now: the source may change while it runs
    with tempfile.TemporaryDirectory() as folder:
        for dropped, network, rate, seed in left(record["runs"], shares or SHARES[name], budget.seeds):
            problem, start = PROBLEMS[name](Path(folder), dropped), time.process_time()
            model = trained(network, problem, rate, seed, budget)
            found = {
                "dropped": dropped,
                "network": network,
                "rate": rate,
                "seed": seed,
                "validation": error(model, problem, "validation"),
                "test": error(model, problem, "test"),
                "parameters": count_parameters(model),
                "cpu_seconds": round(time.process_time() - start, 2),
                "environment": len(record["environments"]) - 1,
            }
            record["runs"].append(found)
            write_bytes(file, (json.dumps(record, indent=1) + "\n").encode())
            print(name, *list(found.values())[:-1], flush=True)


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    parser = OnceParser(prog="orthornn_evidence.irregular_time", description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--dropped", nargs="+", type=float, default=(), help="shares of dropped samples; default: all")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.problems:
        shares = [share for share in SHARES[name] if share in given.dropped]
        if shares or not given.dropped:
            run(given.out / f"{name}.json", name, Budget(), shares)
    return 0
