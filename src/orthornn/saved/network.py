"""A trained network from its files: config.json, description.json and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._shell_word import shell_word
from .._warnings import warn
from ..errors import ArgumentError, CheckpointError, OrthornnError
from ..learn.systems import Model, SequenceModel, build
from .checkpoint import FOLDER, WEIGHTS, Checkpoints, Damaged, read_checkpoint, read_plain
from .config_file import naming, read_model
from .config_file import read_plain as read_plain_config
from .diverged import read_diverged
from .run_files import CONFIG, RESULT, check_is_run, read_description, read_result
from .sizes import check_against_header, on_meta
from .weights_file import check_finite, check_header, read_header, read_weights


class Network(NamedTuple):
    """A network in eval mode, and what config.json and description.json hold of it."""

    model: SequenceModel
    config: dict[str, Any]
    description: dict[str, Any]


def load_network(path: str | Path, which: str | int = "last") -> Network:
    """Return the trained network of a run directory.

    Args:
        path: The run directory.
        which: "last" for the final weights, or the newest checkpoint of an unfinished run; "best" for the weights of
            the best validation; "chosen" for the best if they exist, otherwise the last; or the step of a checkpoint.

    Raises:
        ArgumentError: If the run or the checkpoint does not exist.
        CheckpointError, ConfigError, DataError: If its files are damaged.
    """
    path, which = Path(path), str(which)
    check_is_run(path)
    plain, description = read_plain_config(path / CONFIG), read_description(path)
    with naming(path / CONFIG):
        config = read_model(plain)
    weights = _weights(path, which, config, description)
    with torch.random.fork_rng(devices=[]):  # its initial values are of no use
        model = make_model(config, description)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"the weights in {path} do not fit its {CONFIG}: {error}") from error
    return Network(model.eval(), plain, description)


def make_model(model: Model, description: dict[str, Any], device: str | None = None) -> SequenceModel:
    """Return the model with its initial values, which come from torch's global generator, in float32 as the data are,
    whatever the default dtype is. device: "meta" for only its shapes.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return build(
            model,
            description["input_size"],
            description["output_size"],
            output=description["output"],
            tokens=description["input"] == "tokens",
            known_inputs=sum(lead > 0 for lead in description.get("leads") or ()),
            last_input=_last_input(description),
            device=device,
        )
    finally:
        torch.set_default_dtype(default)


def _last_input(description: dict[str, Any]) -> tuple[int, int] | Literal["elapsed"] | None:
    if description.get("time_unit") is not None:
        return "elapsed"
    return (len(description["series"]), description["embedding"]) if description.get("series") else None


def expected_weights(config: Model, description: dict[str, Any], file: Path) -> dict[str, Tensor]:
    """Return the state_dict that a run's weights must have, on the meta device.

    file: the weights. CheckpointError if they are of another network, before one is built.
    """
    check_against_header(config, description, read_header(file), file)
    try:
        expected = on_meta(lambda device: make_model(config, description, device=device))
    except OrthornnError as error:
        raise CheckpointError(f"{file.parent / CONFIG} describes no network: {error}") from error
    check_header(file, expected)
    return expected


def _weights(path: Path, which: str, config: Model, description: dict[str, Any]) -> dict[str, Any]:
    checkpoints = Checkpoints(path / FOLDER)

    def check(place: Path) -> None:
        expected_weights(config, description, place / WEIGHTS)

    if which == "chosen":
        step, end = _best_step(path, checkpoints), (read_result(path) or {}).get("steps")
        which = "last" if step is None or step == end or step not in checkpoints.steps() else str(step)
        if which == "last" and step not in (None, end):
            warn(
                f"{path}: the weights of the best validation, after update {step}, are not there, so the last ones are used. "
                f"To silence this, name them: checkpoint='last', --checkpoint last."
            )
    if which == "last":
        result = read_result(path)
        if (path / WEIGHTS).exists() and (result is not None or not checkpoints.steps()):
            expected = expected_weights(config, description, path / WEIGHTS)
            if result is None:
                warn(
                    f"{path} has no {RESULT}, which holds the sum of its weights, and no checkpoints: whether {WEIGHTS} was "
                    f"changed cannot be seen. Restore the file. Silence this with warnings.filterwarnings('ignore', "
                    f"category=orthornn.errors.OrthornnWarning)."
                )
            return read_weights(path / WEIGHTS, expected, None if result is None else result["weights_sha256"])
        step, damaged = checkpoints.newest(check)
        _warn_of(damaged, step)
        if step is None and damaged:
            listed = "".join(f"\n  {reason}" for _, reason in damaged)
            raise CheckpointError(f"{path} has no sound weights:{listed}")
        ended = read_diverged(path) if step is None else None
        if ended is not None:
            raise ArgumentError(
                f"Expected weights, but {path} has none: its training diverged after update {ended.step}, as it would "
                f"again. {ended.error} Then begin a new run."
            )
        if step is None:
            raise ArgumentError(
                f"Expected weights, but {path} has none yet. Train it: orthornn train --resume {shell_word(path)}."
            )
        which = str(step)
    if which == "best":
        which = str(_best_step(path, checkpoints))
    if not (which.isascii() and which.isdigit() and len(which) < 20) or int(which) not in checkpoints.steps():
        known = ", ".join(map(str, checkpoints.steps())) or "none"
        raise ArgumentError(
            f"Expected checkpoint to be last, best, chosen or one of the steps stored in {path} ({known}), but got {which!r}."
        )
    place = checkpoints.path(int(which))
    check(place)
    weights = read_checkpoint(place)[0]
    check_finite(weights, place)
    return weights


def _best_step(path: Path, checkpoints: Checkpoints) -> int | None:
    result = read_result(path)
    if result is not None:
        return _step_of(result["best"])
    step, damaged = checkpoints.newest()
    _warn_of(damaged, step)
    best = None if step is None else read_plain(checkpoints.path(step))["state"]["run"]["best"]
    return None if best is None else _step_of(best)


def _warn_of(damaged: list[Damaged], step: int | None) -> None:
    """Report the checkpoints that are newer than the one that is taken, after `step` updates."""
    if step is not None and damaged:
        warn(
            f"{damaged[0].reason} The weights after update {step} are used. Resuming the run sets the damaged checkpoint "
            f"aside."
        )


def _step_of(best: dict[str, Any]) -> int | None:
    """Return the step of a best validation; None in a run without validations."""
    step = best.get("step")
    return step if isinstance(step, int) else None
