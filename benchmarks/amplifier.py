"""The error of small networks on the task `amplifier`, next to what a sample costs.

    make bench-audio > COSTS
    python benchmarks/amplifier.py DRY.wav OUT --costs COSTS --results results/amplifier.json

Every network is trained briefly, at neighboring learning rates of a ladder until the best of them on validation has a worse
one on both sides. All but the one with tanh are then trained four times as long in the same way, and at the best rate from
other seeds. Runs are in OUT and resume where they stopped. The results have every network whose runs are complete.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from orthornn.environment import commit
from orthornn.errors import NonFiniteError
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Amplifier
from orthornn.learn.training import OptimizerConfig, RunConfig, ScheduleConfig, resume, train

RATES, FIRST = (2e-3, 5e-3, 1.25e-2, 3e-2, 7e-2, 1.5e-1, 3e-1, 6e-1), (3, 4)
BRIEF, UPDATES = 250, 1000
TRUNCATION, STREAMS = 512, 64


class Network(NamedTuple):
    """name: as in the output of bench-audio. seeds: of the long training; 0 for the brief one alone."""

    name: str
    model: str
    options: dict[str, Any]
    seeds: int = 0


def orthogonal(n: int, m: int, phi: str = "modrelu", seeds: int = 0) -> Network:
    """Return a network with M reflections of N units on a base of rotations."""
    options = {"hidden_size": n, "reflections": m, "nonlinearity": phi}
    return Network(f"orthornn n={n} m={m} {phi}", "ornn-rotations", options, seeds)


def lstm(n: int, seeds: int = 0) -> Network:
    """Return an LSTM that begins with a forget bias of 1."""
    return Network(f"LSTM 1x{n}", "lstm", {"hidden_size": n, "forget_bias": 1.0}, seeds)


def gru(n: int, seeds: int = 0) -> Network:
    """Return a GRU, which torch trains five times as slowly as an LSTM of this size."""
    return Network(f"GRU 1x{n}", "gru", {"hidden_size": n}, seeds)


NETWORKS = [
    orthogonal(64, 8, seeds=3),
    lstm(16, seeds=3),
    orthogonal(32, 4, seeds=3),
    gru(14, seeds=2),
    lstm(8, seeds=2),
    lstm(40, seeds=2),
    orthogonal(128, 8, seeds=2),
    orthogonal(64, 8, "tanh"),
]


class Study:
    """Runs on one recording below one folder."""

    def __init__(self, dry: Path, out: Path) -> None:
        self.task = Amplifier(data=str(dry.resolve()), truncation=TRUNCATION, skipped=TRUNCATION // 2)
        self.out = out

    def run(self, network: Network, rate: float, seed: int = 0, steps: int = UPDATES) -> dict[str, float]:
        """Return the errors of a run at its best validation. The run is begun, resumed, or there already."""
        folder = self.out / f"{network.name.replace(' ', '-')}-{rate:g}-{steps}-{seed}"
        if not (folder / "result.json").exists():
            config = RunConfig(
                task=self.task,
                model=model_named(network.model, **network.options),
                optimizer=OptimizerConfig(lr=rate, recurrent_lr=rate, clip_norm=1.0),
                schedule=ScheduleConfig("cosine"),
                steps=steps,
                batch_size=STREAMS,
                validate_every=100,
                seed=seed,
            )
            try:
                _ = resume(folder) if (folder / "config.json").exists() else train(config, folder)
            except NonFiniteError as error:
                print(f"{folder.name}: {error}", flush=True)
                return {"validation": math.inf, "esr": math.inf, "plain_esr": math.inf}
        found = json.loads((folder / "result.json").read_text())
        test = found["best_test"]
        print(f"{folder.name}: validation {found['best']['esr']:.5f}, test {test['esr']:.5f}", flush=True)
        return {
            "validation": found["best"]["esr"],
            "esr": test["esr"],
            "plain_esr": test["plain_esr"],
            "step": found["best"]["step"],
            "core_seconds": found["best"]["cpu_seconds"],
            "parameters": found["parameters"],
        }

    def sweep(self, network: Network, steps: int) -> dict[float, dict[str, float]]:
        """Return the runs with seed 0 by learning rate; the best one has a worse one on both sides."""
        low, high = FIRST
        found = {rate: self.run(network, rate, steps=steps) for rate in RATES[low : high + 1]}
        while True:
            best = self.best(found)
            if best == RATES[low] and low > 0:
                low -= 1
                found[RATES[low]] = self.run(network, RATES[low], steps=steps)
            elif best == RATES[high] and high < len(RATES) - 1:
                high += 1
                found[RATES[high]] = self.run(network, RATES[high], steps=steps)
            else:
                return dict(sorted(found.items()))

    @staticmethod
    def best(found: dict[float, dict[str, float]]) -> float:
        """Return the rate with the least error on validation."""
        return min(found, key=lambda rate: found[rate]["validation"])

    def row(self, network: Network) -> dict[str, Any]:
        """Return the record of a network after all its runs."""
        made: dict[str, Any] = {"name": network.name, "model": network.model, "options": network.options}
        for name, steps, seeds in (("brief", BRIEF, 2), ("long", UPDATES, network.seeds)):
            if not seeds:
                continue
            swept = self.sweep(network, steps)
            rate = self.best(swept)
            made["parameters"] = swept[rate]["parameters"]
            made[name] = {
                "validation_by_rate": {f"{rate:g}": _number(run["validation"]) for rate, run in swept.items()},
                "rate": rate,
                "seeds": [_only(self.run(network, rate, seed, steps)) for seed in range(seeds)],
            }
        return made


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _only(run: dict[str, float]) -> dict[str, Any]:
    return {name: _number(value) for name, value in run.items() if name != "parameters"}


def costs(text: str) -> dict[str, float]:
    """Return nanoseconds per sample by name, from the output of bench-audio; the least of several."""
    found: dict[str, float] = {}
    for name, ns in re.findall(r"^(.+?)\s+([\d.]+) ns per sample$", text, re.MULTILINE):
        found[name] = min(float(ns), found.get(name, math.inf))
    return found


def cost(name: str, known: dict[str, float]) -> float | None:
    """Return the cost of a network, or of a larger one of its kind that takes less: a smaller one can be padded to it."""
    if not name.startswith(("LSTM", "GRU")):
        return known.get(name)
    kind, units = name.split(" 1x")
    larger = [
        known[other] for other in known if other.startswith(f"{kind} 1x") and int(other.split("x")[1]) >= int(units)
    ]
    return min(larger, default=None)


def record(rows: dict[str, dict[str, Any]], dry: Path, known: dict[str, float]) -> dict[str, Any]:
    """Return what is stored."""
    networks = [row | {"ns": cost(name, known)} for name, row in rows.items()]
    return {
        "command": f"python benchmarks/amplifier.py {dry.name} OUT --costs COSTS --results results/amplifier.json",
        "torch": torch.__version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "recording": dry.name,
        "protocol": {
            "updates": {"brief": BRIEF, "long": UPDATES},
            "streams": STREAMS,
            "truncation": TRUNCATION,
            "rates": RATES,
            "optimizer": "adam",
            "schedule": "cosine",
            "clip_norm": 1.0,
        },
        "ns_per_sample": known,
        "networks": sorted(networks, key=lambda row: row["parameters"]),
    }


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("dry", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--costs", type=Path, required=True, help="the output of make bench-audio")
    options.add_argument("--results", type=Path, required=True, help="the JSON file to write")
    options.add_argument("--only", nargs="*", help="names of networks, where several processes share the work")
    given = options.parse_args()
    torch.set_num_threads(1)
    study, known = Study(given.dry, given.out), costs(given.costs.read_text())
    chosen = [network for network in NETWORKS if given.only is None or network.name in given.only]
    rows: dict[str, dict[str, Any]] = {}

    def write() -> None:
        given.results.write_text(json.dumps(record(rows, given.dry, known), indent=1) + "\n", encoding="utf-8")

    for network in chosen:
        rows[network.name] = study.row(network)
        write()


if __name__ == "__main__":
    main()
