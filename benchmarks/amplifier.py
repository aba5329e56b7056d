"""The error of small networks on the task `amplifier`, next to what a sample costs.

    make bench-audio > COSTS && python benchmarks/amplifier.py DRY.wav OUT --costs COSTS

Every network is trained for a short time at each of three learning rates, and for longer at the one with the best
validation. Runs are in OUT and resume where they stopped. results/amplifier.md is written from those that are complete.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from orthornn.lab.systems import model_named
from orthornn.lab.tasks import Amplifier
from orthornn.lab.training import OptimizerConfig, RunConfig, ScheduleConfig, resume, train

RATES = (5e-3, 1.25e-2, 3e-2)
SWEEP, FINAL = 60, 400
TRUNCATION, STREAMS = 512, 64
PAGE = Path(__file__).parents[1] / "results" / "amplifier.md"


class Network(NamedTuple):
    """name: as in the output of bench-audio."""

    name: str
    model: str
    options: dict[str, Any]


def orthogonal(n: int, m: int, phi: str = "modrelu") -> Network:
    """Return a network with M reflections of N units on a base of rotations."""
    return Network(
        f"orthornn n={n} m={m} {phi}", "ornn-rotations", {"hidden_size": n, "reflections": m, "nonlinearity": phi}
    )


NETWORKS = [
    orthogonal(64, 8),
    Network("LSTM 1x16", "lstm", {"hidden_size": 16, "forget_bias": 1.0}),
    orthogonal(32, 4),
    Network("LSTM 1x8", "lstm", {"hidden_size": 8, "forget_bias": 1.0}),
    orthogonal(128, 8),
    Network("LSTM 1x12", "lstm", {"hidden_size": 12, "forget_bias": 1.0}),
    orthogonal(64, 8, "tanh"),
    Network("LSTM 1x40", "lstm", {"hidden_size": 40, "forget_bias": 1.0}),
    Network("GRU 1x14", "gru", {"hidden_size": 14}),
]


def run(network: Network, rate: float, steps: int, task: Amplifier, out: Path) -> dict[str, Any]:
    """Return result.json of a run, which is begun, resumed, or there already."""
    folder = out / f"{network.name.replace(' ', '-')}-{rate:g}-{steps}"
    if not (folder / "result.json").exists():
        config = RunConfig(
            task=task,
            model=model_named(network.model, **network.options),
            optimizer=OptimizerConfig(lr=rate, recurrent_lr=rate, clip_norm=1.0),
            schedule=ScheduleConfig("cosine"),
            steps=steps,
            batch_size=STREAMS,
            validate_every=-(-steps // 4),
        )
        _ = resume(folder) if (folder / "config.json").exists() else train(config, folder)
    found = json.loads((folder / "result.json").read_text())
    print(f"{network.name}, rate {rate:g}, {steps} updates: validation ESR {found['best']['esr']:.4f}", flush=True)
    return found


def costs(text: str) -> dict[str, float]:
    """Return nanoseconds per sample by name, from the output of bench-audio."""
    return {name: float(ns) for name, ns in re.findall(r"^(.+?)\s+([\d.]+) ns per sample$", text, re.MULTILINE)}


def page(rows: list[dict[str, Any]]) -> str:
    """Return results/amplifier.md."""
    rows = sorted(rows, key=lambda row: row["ns"])
    lines = [
        "# An amplifier, sample by sample",
        "",
        "The task `amplifier`: an overdrive circuit, from a dry recording of 20 s of music at 44.1 kHz: 12 s for training,",
        "4 s each for validation and test. The wet one is made by the circuit of src/orthornn/lab/tasks/circuit.py. ESR is",
        "the error-to-signal ratio after pre-emphasis, of one stream over the 4 s of the test; silence has 1.",
        "",
        f"One seed, {FINAL} updates of {STREAMS} streams of {TRUNCATION} samples, Adam, cosine schedule, gradient norm",
        f"at most 1; the learning rate of each network is the best of {', '.join(f'{rate:g}' for rate in RATES)} on",
        f"validation after {SWEEP} updates; the weights are those of the best validation. The LSTMs' forget bias is 1.",
        "These are short trainings: all networks still improve. The cost is processor time by `make bench-audio`, one core.",
        "",
        "    make bench-audio > COSTS && python benchmarks/amplifier.py DRY.wav OUT --costs COSTS",
        "",
        "| network | parameters | ns per sample | learning rate | ESR | ESR without pre-emphasis |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['name']} | {row['parameters']} | {row['ns']:.0f} | {row['rate']:g} | {row['esr']:.4f} | "
            f"{row['plain_esr']:.4f} |"
        )
    lines += ["", *_comparisons(rows)]
    return "\n".join(lines) + "\n"


def _comparisons(rows: list[dict[str, Any]]) -> list[str]:
    """Return which network has the least error, overall and next to each of orthornn's at equal size and cost."""
    ours = [row for row in rows if row["name"].startswith("orthornn")]
    others = [row for row in rows if row not in ours]
    best = min(rows, key=lambda row: row["esr"])
    lines = [f"The least error has {best['name']}, {best['esr']:.4f}.", ""]
    lines += ["| orthornn | gated, nearest in parameters | gated, nearest in cost |", "|---|---|---|"]
    for row in ours:
        near = []
        for what in ("parameters", "ns"):
            other = min(others, key=lambda entry: abs(entry[what] / row[what] - 1))
            verdict = "more" if other["esr"] > row["esr"] else "less"
            unit = "parameters" if what == "parameters" else "ns"
            near.append(f"{other['name']} ({other[what]:.0f} {unit}): {other['esr']:.4f}, {verdict} error")
        lines.append(
            f"| {row['name'].removeprefix('orthornn ')} ({row['parameters']} parameters, {row['ns']:.0f} ns): "
            f"{row['esr']:.4f} | {near[0]} | {near[1]} |"
        )
    return lines


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("dry", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--costs", type=Path, help="the output of make bench-audio")
    options.add_argument("--only", nargs="*", help="names of networks, where several processes share the work")
    given = options.parse_args()
    task = Amplifier(data=str(given.dry.resolve()), truncation=TRUNCATION, skipped=TRUNCATION // 2)
    chosen = [network for network in NETWORKS if given.only is None or network.name in given.only]
    rows: list[dict[str, Any]] = []
    known = costs(given.costs.read_text()) if given.costs else {}
    for network in chosen:
        swept = {rate: run(network, rate, SWEEP, task, given.out)["best"]["esr"] for rate in RATES}
        rate = min(swept, key=lambda rate: swept[rate])
        found = run(network, rate, FINAL, task, given.out)
        test = found["best_test"]
        rows.append(
            {
                "name": network.name,
                "parameters": found["parameters"],
                "ns": known.get(network.name, float("nan")),
                "rate": rate,
            }
            | {name: test[name] for name in ("esr", "plain_esr")}
        )
    if given.costs:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(PAGE)


if __name__ == "__main__":
    main()
