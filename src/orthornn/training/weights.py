"""The trained model of a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, CheckpointError
from ..models import SequenceModel
from .checkpoint import WEIGHTS, Checkpoints, read_checkpoint, read_tensors
from .config import RunConfig, read_config
from .description import make_model
from .directory import CONFIG, DESCRIPTION, RESULT


def load_model(path: Path, which: str = "last") -> tuple[RunConfig, SequenceModel]:
    """The configuration of a run and its model in eval mode.

    which: "last" for the weights at the end, or the newest checkpoint of a run without an end; "best" for those of the
        best validation; or the step of a checkpoint.
    Raises ArgumentError if there is no such run or checkpoint, CheckpointError if its files are damaged.
    """
    if not (path / CONFIG).exists():
        raise ArgumentError(f"{path} holds no run: there is no {path / CONFIG}.")
    config = read_config(path / CONFIG)
    weights = _weights(path, which)
    model = make_model(config.model, read_description(path))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"the weights in {path} do not fit its {CONFIG}: {error}") from error
    return config, model.eval()


def read_description(path: Path) -> dict[str, Any]:
    """What the network of a run reads and says; see description.py. CheckpointError if the file is missing or wrong."""
    try:
        return json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / DESCRIPTION} cannot be read: {error}.") from error


def _weights(path: Path, which: str) -> dict[str, Any]:
    checkpoints = Checkpoints(path / "checkpoints")
    if which == "last":
        if (path / WEIGHTS).exists():
            return read_tensors(path / WEIGHTS)
        step, damaged = checkpoints.newest()
        if step is None:
            raise ArgumentError(f"{path} has no weights yet{''.join(f'; {reason}' for _, reason in damaged)}.")
        return checkpoints.read(step)[0]
    if which == "best":
        which = str(_best_step(path, checkpoints))
    if not which.isdigit() or int(which) not in checkpoints.steps():
        kept = ", ".join(map(str, checkpoints.steps())) or "none"
        raise ArgumentError(
            f"checkpoint must be last, best or one of the steps kept in {path} ({kept}); got {which!r}."
        )
    return read_checkpoint(checkpoints.path(int(which)))[0]


def _best_step(path: Path, checkpoints: Checkpoints) -> int | None:
    if (path / RESULT).exists():
        return int(json.loads((path / RESULT).read_text(encoding="utf-8"))["best"].get("step", -1))
    step, _ = checkpoints.newest()
    best = None if step is None else checkpoints.read(step)[1]["run"]["best"]
    return None if best is None else int(best["step"])
