"""The frequency of a damped oscillator, from samples at irregular times: rotations over time next to gated networks.

    python -m orthornn_evidence.irregular_time results/irregular_time.json

A sequence is exp(-lambda t) cos(omega t + phase) with noise at 100 times 1, 2, ..., of which a share is dropped at random:
the same number in each sequence, at other places. The network predicts omega after the last sample; the error is the mean
squared one, divided by the variance of omega. Every batch is fresh.

networks  blocks over time   OrthogonalBlocks that move their state by the time since the sample before
          blocks, LSTM, GRU  read this time as a second input

All have a linear readout of the mean output and about the same number of parameters. The rate of each network and share is
the best on validation with seed 0; the other seeds use it, and test sequences are others again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from orthornn._files import write_bytes
from orthornn.environment import commit
from orthornn.learn.systems import SequenceModel, build
from orthornn.learn.systems.build import count_parameters
from orthornn.learn.tasks.streams import stream

from .markdown import markdown_table

POINTS = 100
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
RATES = (1e-3, 3e-3, 1e-2)
NETWORKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "blocks over time": ("blocks", {"decay": True}),
    "blocks": ("blocks", {"decay": True}),
    "LSTM": ("lstm", {"forget_bias": 1.0}),
    "GRU": ("gru", {}),
}
_OVER_TIME = "blocks over time"
_FREQUENCIES, _RATES_OF_DECAY, _NOISE = (0.1, 1.5), (0.005, 0.03), 0.1
_VARIANCE = (_FREQUENCIES[1] - _FREQUENCIES[0]) ** 2 / 12


@dataclass(frozen=True)
class Budget:
    """How long each network is trained and how many sequences test it."""

    updates: int = 1000
    batch: int = 32
    seeds: int = 3
    parameters: int = 12_000
    tested: int = 2000


def oscillators(random: np.random.Generator, count: int, dropped: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples (T, B, 2), value and time since the sample before, and frequencies (B, 1), standardized.

    Args:
        random: Of the draws.
        count: B.
        dropped: Share of the points that is left out.
    """
    kept = round(POINTS * (1 - dropped))
    times = np.sort(np.argsort(random.random((count, POINTS)), 1)[:, :kept], 1) + 1.0
    omega, decay = (random.uniform(*ends, (count, 1)) for ends in (_FREQUENCIES, _RATES_OF_DECAY))
    values = np.exp(-decay * times) * np.cos(omega * times + random.uniform(0, 2 * math.pi, (count, 1)))
    values += _NOISE * random.normal(size=values.shape)
    elapsed = np.diff(times, axis=1, prepend=0)
    inputs = torch.from_numpy(np.stack([values.T, elapsed.T], -1).astype(np.float32))
    targets = (omega - sum(_FREQUENCIES) / 2) / math.sqrt(_VARIANCE)
    return inputs, torch.from_numpy(targets.astype(np.float32))


def trained(name: str, dropped: float, rate: float, seed: int, budget: Budget) -> SequenceModel:
    """Return a network after its training."""
    torch.manual_seed(seed)
    kind, options = NETWORKS[name]
    model = build(
        kind,
        2,
        1,
        last_input="elapsed" if name == _OVER_TIME else None,
        parameters=budget.parameters,
        pool="mean",
        **options,
    )
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.updates)
    for update in range(budget.updates):
        inputs, targets = oscillators(stream("train", seed, update), budget.batch, dropped)
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def error(model: SequenceModel, part: str, dropped: float, budget: Budget) -> float:
    """Return the mean squared error on "validation" or "test" sequences, divided by the variance of the frequencies."""
    inputs, targets = oscillators(stream(part, 0), budget.tested, dropped)
    return float(F.mse_loss(model(inputs), targets))


def measured(budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield what each network reaches at each share: its rate, test errors by seed, parameters, and seconds per update."""
    for dropped in SHARES:
        for name in NETWORKS:
            start = time.process_time()
            first = {rate: trained(name, dropped, rate, 0, budget) for rate in RATES}
            seconds = (time.process_time() - start) / (len(RATES) * budget.updates)
            validation = {rate: error(model, "validation", dropped, budget) for rate, model in first.items()}
            rate = min(validation, key=lambda rate: validation[rate])
            models = [first[rate], *(trained(name, dropped, rate, seed, budget) for seed in range(1, budget.seeds))]
            yield {
                "network": name,
                "dropped": dropped,
                "rate": rate,
                "validation": {f"{rate:g}": found for rate, found in validation.items()},
                "errors": [error(model, "test", dropped, budget) for model in models],
                "parameters": count_parameters(models[0]),
                "seconds_per_update": seconds,
            }


def table(results: Path) -> str:
    """Return the errors in results/irregular_time.json: a row for each network, a column for each share that is dropped."""
    rows = json.loads((results / "irregular_time.json").read_text(encoding="utf-8"))["rows"]
    found = {(row["network"], row["dropped"]): row["errors"] for row in rows}
    cells = [
        [
            name,
            *(
                f"{fmean(own):.2g} ({min(own):.2g} to {max(own):.2g})"
                for own in (found[name, share] for share in SHARES)
            ),
        ]
        for name in NETWORKS
    ]
    return "\n".join(markdown_table(["network", *(f"{share:.0%} dropped" for share in SHARES)], cells))


def main() -> None:
    """Measure all networks and write what they reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON file that is written")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    budget, rows = Budget(), []
    for row in measured(budget):
        rows.append(row)
        print(
            row["network"],
            f"{row['dropped']:.0%}",
            row["rate"],
            *(f"{found:.4g}" for found in row["errors"]),
            flush=True,
        )
        made = {"commit": commit(), "torch": torch.__version__, "budget": vars(budget), "rows": rows}
        write_bytes(file, json.dumps(made, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
