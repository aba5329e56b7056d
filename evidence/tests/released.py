"""What tests of a paper's configuration look at."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthornn.learn.training import RunConfig, Trainer
from orthornn_evidence.papers import Setting, experiments

PAGES = Path(__file__).parents[2] / "docs" / "results"


def trained(paper: str, name: str, data: Path) -> dict[str, RunConfig]:
    """Return what `orthornn reproduce PAPER --only NAME --budget full` trains, by system."""
    return dict(experiments(paper)[name].plan(Setting("full", data)).systems)


def trainer(config: RunConfig, **task: Any) -> Trainer:
    """Return a trainer of this configuration, with these options of its task."""
    return Trainer(dataclasses.replace(config, task=dataclasses.replace(config.task, **task)))


def is_uniform(values: Tensor, bound: float) -> bool:
    """Tell whether entries are from U(-bound, bound), as far as their extremes and their mean size tell."""
    size = values.detach().double().abs()
    expected = 0.9 if size.numel() > 40 else 0.5
    even = abs(float(size.mean()) / (bound / 2) - 1) < 3 / size.numel() ** 0.5
    return expected * bound < float(size.max()) <= bound * (1 + 1e-6) and even


def is_zero(*vectors: Tensor) -> bool:
    """Tell whether every entry is 0."""
    return not any(bool(vector.detach().any()) for vector in vectors)


def protocol(paper: str) -> str:
    """Return the table of the section "Protocol" of a paper's page, in one line and without its marks for code."""
    text = (PAGES / f"{paper}.md").read_text(encoding="utf-8").split("## Protocol", 1)[1]
    return re.sub(r"\s+", " ", text.replace("`", ""))


def passes(task: Any, count: int, each: int) -> list[list[bytes]]:
    """Return two passes over `count` training sequences in batches of `each`: the bytes of each batch's inputs."""
    steps = count // each

    def shown(step: int) -> bytes:
        inputs = task.problem().train(step, each, 0).inputs
        return bytes((inputs if isinstance(inputs, torch.Tensor) else inputs.data).numpy().tobytes())

    return [[shown(first + step) for step in range(steps)] for first in (0, steps)]
