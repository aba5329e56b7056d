"""Running an experiment.

Every run is an ordinary run directory, RUNS/PAPER/NAME/BUDGET/SYSTEM-SEED. Finished runs are skipped; interrupted runs, and
runs with fewer updates than now requested, resume from their newest checkpoint. The results are written between runs from
time to time, at the end, and after a signal, so they never wait for the last run.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from orthornn.errors import ArgumentError, Interrupted
from orthornn.learn.report.runs import read_run
from orthornn.learn.runs.changes import MAY_CHANGE
from orthornn.learn.training import Progress, Run, RunConfig, read_config, run_to_end

from . import results
from .experiment import Experiment, Plan, Setting
from .result_table import Runs, Trained

_WRITE_SECONDS = 20.0
Show = Callable[[str, Run, Progress], None]


def reproduce(
    experiment: Experiment,
    setting: Setting,
    runs: Path,
    evidence: Path,
    *,
    train: bool = True,
    only_systems: Collection[str] | None = None,
    only_seeds: Collection[int] | None = None,
    device: str | None = None,
    on_progress: Show = lambda name, run, progress: None,
) -> dict[str, Any]:
    """Run the unfinished part of an experiment; return the content of its results file.

    runs: folder of run directories. evidence: folder of results.
    train: False to write only the results of existing runs. only_systems, only_seeds: train no others.
    device: device for training. Default: None, the CPU, or for existing runs the device on which they began.

    Raises:
        ArgumentError: If a run directory or the results have another configuration.
        Interrupted: After Ctrl-C or SIGTERM.
    """
    plan = experiment.plan(setting)
    full = experiment.plan(dataclasses.replace(setting, budget="full"))
    folder = runs / experiment.paper / (experiment.shares or experiment.name) / setting.budget
    results.check_same_configurations(evidence, experiment, setting.budget, plan)

    def write() -> dict[str, Any]:
        return results.write(evidence, experiment, setting.budget, plan, collect(plan, folder, full))

    written = time.monotonic()
    if train:
        for (system, seed), config in plan.runs().items():
            if system not in (only_systems or [system]) or seed not in (only_seeds or [seed]):
                continue
            place = folder / f"{system}-{seed}"
            try:
                made = go_on(place, config, device, functools.partial(on_progress, place.name))
                if made and time.monotonic() - written > _WRITE_SECONDS:
                    write()
                    written = time.monotonic()
            except Interrupted:
                write()
                raise
    return write()


def go_on(place: Path, config: RunConfig, device: str | None, on_progress: Callable[[Run, Progress], None]) -> bool:
    """Begin or resume a run; return False if it was already finished. device: Same as for `reproduce`."""
    if not (place / "config.json").exists():
        run = Run(dataclasses.replace(config, device=device or config.device), place)
    else:
        there = read_config(place / "config.json")
        if dataclasses.replace(there, **{name: getattr(config, name) for name in MAY_CHANGE}) != config:
            raise ArgumentError(
                f"{place} holds a run with another configuration than this experiment has now. Move it away, or name "
                f"another folder with --runs."
            )
        if _is_done(place, config):
            return False
        run = Run.resume(place, steps=config.steps, device=device)
    run_to_end(run, lambda progress: on_progress(run, progress))
    return True


def collect(plan: Plan, folder: Path, full: Plan) -> Runs:
    """Return the runs of a plan in this folder; full: the plan of the full budget, for Runs.full."""
    wanted = plan.runs()
    there = [
        Trained(system, seed, read_run(folder / f"{system}-{seed}"))
        for system, seed in wanted
        if (folder / f"{system}-{seed}" / "metrics.jsonl").exists()
    ]
    sequences = {name: config.steps * config.batch_size for name, config in full.systems.items()}
    return Runs(wanted, there, sequences)


def _is_done(place: Path, config: RunConfig) -> bool:
    result = read_run(place).result
    return result is not None and result["steps"] >= config.steps
