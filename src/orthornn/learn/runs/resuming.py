"""The checkpoint from which a run is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._warnings import warn
from ...errors import ArgumentError, CheckpointError, ConfigError
from ...saved.checkpoint import FOLDER as CHECKPOINTS
from ...saved.checkpoint import WEIGHTS, Checkpoints, Damaged, read_plain
from ...saved.json_files import shortened
from ...saved.network import expected_weights
from ...saved.run_files import CONFIG, ENVIRONMENT, METRICS, RESULT, read_description
from ...saved.sizes import check_memory
from ...saved.weights_file import check_finite
from ..fit import Fit
from ..training.config import RunConfig
from .changes import check_same_run, environment_changes
from .directory import RunDirectory
from .log import read_metrics
from .selection import Selection


@dataclass(frozen=True)
class Found:
    """The newest sound checkpoint of a run, and the damaged ones that are newer; step None if there is none yet."""

    step: int | None
    place: Path | None
    weights: dict[str, Any]
    state: dict[str, Any]
    damaged: list[Damaged]

    @classmethod
    def newest(cls, path: Path, config: RunConfig) -> Found:
        """Look for it in a run that `config` describes. ConfigError if it was made with another, CheckpointError if
        none is sound."""
        description = read_description(path)
        checkpoints = Checkpoints(path / CHECKPOINTS)

        def check(place: Path) -> None:
            # what names an option that this version does not know is damage; another value is for the user to mend
            plain = read_plain(place)["state"]["config"]
            try:
                before = RunConfig.read(plain)
            except ConfigError as error:
                raise CheckpointError(f"{place} has no configuration that can be read: {error}") from error
            check_same_run(before, config, path / CONFIG, place)
            expected_weights(config.model, description, place / WEIGHTS)

        step, damaged = checkpoints.newest(check)
        if step is None:
            if damaged:
                listed = "".join(f"\n  {reason}" for _, reason in damaged)
                raise CheckpointError(f"{path} has no sound checkpoint to resume from:{listed}")
            if (path / RESULT).exists():
                raise CheckpointError(
                    f"Expected {checkpoints.folder} to have a checkpoint of the run, which has a result, but got none: it "
                    f"would be trained again from the start, and its result lost. Restore the checkpoints, or begin a new "
                    f"run."
                )
            check_memory(config.model, description)
            return cls(None, None, {}, {}, [])
        place = checkpoints.path(step)
        weights, state = checkpoints.read(step)
        check_finite(weights, place)
        return cls(step, place, weights, state, damaged)


def restore(found: Found, fit: Fit, selection: Selection, path: Path) -> None:
    """Take over a checkpoint that was found. Nothing is written."""
    if found.step is None:  # the run begins from the start
        return
    weights, state = found.weights, found.state
    if fit.learner.config.steps < found.step:
        raise ArgumentError(
            f"Expected steps to be at least {found.step}, the updates that {path} has made, but got "
            f"{fit.learner.config.steps}. The weights of earlier updates are in {path / CHECKPOINTS}, where they are "
            f"stored."
        )
    own = state["run"]
    try:
        fit.learner.load_state_dict({**state["trainer"], "model": weights}, state["config"]["steps"])
    except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"the state in {found.place} does not fit the run: {shortened(str(error))}.") from error
    records = read_metrics(path / METRICS, own["records"])
    if len(records) < own["records"]:
        raise CheckpointError(
            f"{path / METRICS} holds {len(records)} records; {found.place} was made after "
            f"{own['records']}. Restore the file, or begin a new run."
        )
    fit.load_state_dict(own, records)
    selection.restore(own["best"], own["stale"], (record for record in records if record["kind"] == "validation"))


def begin_log(found: Found, directory: RunDirectory, device: str, kept: int) -> None:
    """Write that a run is resumed, and warn of what changed since it began.

    device: Current device of the run. kept: Records that remain valid.
    """
    path = directory.path
    if found.step is None and (path / METRICS).exists() and (path / METRICS).stat().st_size > 0:
        warn(f"{path} has no checkpoint: it is trained from the start, and its records are written again.")
    if not (path / ENVIRONMENT).exists():
        warn(
            f"{path} has no {ENVIRONMENT}: whether torch, the instruction set, the number of threads or the GPU has "
            f"changed since the run began cannot be seen. Restore the file; without it, its numbers may differ in their "
            f"last bits from a run that was never stopped."
        )
    changes = environment_changes(path, device)
    if changes:
        warn(
            f"{path} is resumed, but {' and '.join(changes)}: from here on its numbers may differ in their last "
            f"bits from a run that was never stopped."
        )
    directory.begin_log()
    record = {"kind": "resume", "step": found.step or 0, "keep": kept}
    directory.log.append({**record, "changes": changes} if changes else record)
    for (_, reason), aside in zip(found.damaged, directory.checkpoints.set_aside(found.damaged)):
        warn(f"{reason} The damaged one is renamed to {aside}; training resumes from step {found.step}.")
