"""The parts of a script, and the plain loop that trains its network.

A network is built by a function of the layer's constructor, which every script calls like ``torch.nn.LSTM``:
``layer(inputs, width)``, plus ``bidirectional=True`` if needed, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

Layer = Callable[..., nn.Module]
"""A constructor: (inputs, width, bidirectional=False) -> a layer that takes and returns what torch.nn.RNN does."""

CLIP = 1.0
"""Bound on the norm of the gradient."""


@dataclass(frozen=True)
class Places:
    """Folders of data. data: Folder with ptb, mnist and speech. digits: Folder of WAVs named DIGIT_SPEAKER_NUMBER.wav."""

    data: Path = Path("data")
    digits: Path | None = None


@dataclass(frozen=True)
class Script:
    """A task with its data.

    network: Builds the network from a layer's constructor. batch: Returns the inputs and targets of an update from its
    number and a generator. loss: Returns the loss of a network on a batch. score: Returns the score of a network on the test
    data, without gradient. chance: Score of a prediction that ignores the input. updates: Updates of a run.
    """

    network: Callable[[Layer], nn.Module]
    batch: Callable[[int, Generator], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    score: Callable[[nn.Module], float]
    chance: float
    updates: int
    metric: str
    higher_is_better: bool = False


def train(script: Script, layer: Layer, rate: float, seed: int, reads: Sequence[int]) -> list[float]:
    """Train a network with Adam; return its score after each number of updates in `reads`, NaN once it has diverged."""
    torch.manual_seed(seed)
    network = script.network(layer)
    update = updates(script, network, rate, seed)
    scores = dict.fromkeys(reads, math.nan)
    for done in range(1, max(reads) + 1):
        if not math.isfinite(update(done - 1)):
            break
        if done in scores:
            network.eval()
            with torch.no_grad():
                scores[done] = script.score(network)
            network.train()
    return [scores[read] for read in reads]


def updates(script: Script, network: nn.Module, rate: float, seed: int) -> Callable[[int], float]:
    """Return a function that makes update number k and returns the loss before it."""
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)

    def update(number: int) -> float:
        loss = script.loss(network, script.batch(number, generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return update


def seconds_per_update(script: Script, layers: dict[str, Layer], rounds: int = 7, each: int = 3) -> dict[str, float]:
    """Return the median processor seconds of an update of every network, measured in turns."""
    made = {}
    for name, layer in layers.items():
        torch.manual_seed(0)
        made[name] = updates(script, script.network(layer), 1e-3, 0)
        made[name](0)
    times: dict[str, list[float]] = {name: [] for name in layers}
    for turn in range(rounds):
        for name, update in made.items():
            began = time.process_time()
            for number in range(each):
                update(1 + turn * each + number)
            times[name].append((time.process_time() - began) / each)
    return {name: sorted(found)[rounds // 2] for name, found in times.items()}
