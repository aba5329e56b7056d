"""`orthornn certify RUN --eps EPS`: how many test sequences keep their class, whatever moves their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._checks import check_number
from ..certify import Mode, certified_radius
from ..errors import ArgumentError
from ..learn.predict import load
from ..learn.report.lines import show
from ..learn.runs.fingerprint import check_data
from .arguments import read_options

_BATCH = 250


def parse_sizes(text: str) -> tuple[float, ...]:
    """Return "0.01,0.1" as numbers."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"Expected eps to be numbers separated by commas, such as 0.01,0.1, but got {text!r}."
        ) from None
    return tuple(check_number("eps", value, 0) for value in values)


@dataclass(frozen=True)
class CertifyArguments:
    """The options of orthornn certify."""

    _: KW_ONLY
    run: Path = field(metadata={"positional": "RUN"})
    """Run directory of a classifier that is read after the last step."""
    eps: str
    """How far inputs move, in Euclidean norm and as the network reads them, separated by commas, such as 0.01,0.1."""
    mode: Mode = "every"
    """What moves by at most eps: the input of every step, the energy of all (the root of the sum of squares), or the input of
    one step, whichever."""
    checkpoint: str = "chosen"
    """Weights to use: best, last, or the step of a checkpoint; chosen is best, or last if nothing was validated."""


DESCRIPTION = (
    "Prints the accuracy on the test data of a trained network, and for every eps the share of sequences that keep the right "
    "class whatever moves their inputs by at most eps."
)


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(CertifyArguments, "orthornn certify", DESCRIPTION, words or ["--help"])
    sizes = parse_sizes(arguments.eps)
    loaded = load(arguments.run, arguments.checkpoint)
    task = loaded.config.task
    if task.metric != "accuracy" or task.output != "last":
        raise ArgumentError(
            f"Expected a classifier that is read after the last step, but got a network for {task.name}."
        )
    if loaded.threshold is not None:
        raise ArgumentError(
            f"Expected a network that predicts the likelier class, but got the threshold {loaded.threshold:.4g}. Train it "
            f"without --threshold."
        )
    folder = loaded.directory or arguments.run
    radii = torch.cat([_radii(loaded.model, batch, arguments.mode) for batch in task.problem().test(_BATCH)])
    check_data(folder, task)  # now, as the task may have fetched them first
    shares = {"accuracy": float((radii > 0).double().mean())}
    shares |= {f"certified at {eps:g}": float((radii > eps).double().mean()) for eps in sizes}
    show("   ".join(f"{name} {share:.6g}" for name, share in shares.items()))
    return 0


def _radii(model: Any, batch: Any, mode: Mode) -> Tensor:
    return certified_radius(model, batch.inputs, batch.targets, mode)
