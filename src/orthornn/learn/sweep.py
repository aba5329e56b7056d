"""Many runs over a grid or at random, with Ray Tune: on one machine by default, or on a cluster given its address.

Every trial has a run directory. A trial whose worker or machine dies is restarted and resumes from its checkpoints. A
killed sweep resumes when it is started again with the same folder, and then retries failed trials. A trial that
diverged would diverge again, so this counts as its result and is stored. On a cluster all machines must see the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import os
import signal
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._checks import check_choice, check_integer, check_number
from .._shell_word import shell_word
from ..errors import (
    ArgumentError,
    CheckpointError,
    Interrupted,
    LockedError,
    MissingPackageError,
    NonFiniteError,
    OrthornnError,
)
from ..saved.diverged import DIVERGED, Diverged, read_diverged, write_diverged
from ..saved.json_files import read_json, write_json
from ..saved.run_files import CONFIG, RESULT, read_result
from .fields import hints_of
from .files.data_frames import Frame
from .runs.changes import check_same_runs, described
from .runs.signals import StopSignals
from .systems import options
from .tasks.abilities import stored
from .training import Run, RunConfig

FAILED = "failed.json"  # in the folder of a trial that came to no end, and why
_SWEEP = "sweep.json"  # in the folder of a sweep: its configs
_OPTIONS = "options.json"  # next to it: what else a sweep is begun with
_TUNE = "tune"  # Ray's own state, in the folder ray
_LABEL = 200  # characters of a folder's name that say its settings
_RETRIES = 5  # of one trial whose worker or machine died
_LOCK_SECONDS = 60.0  # a worker that was lost may hold its run for a moment
_SHORT = {"model": "model.name", "optimizer": "optimizer.name", "schedule": "schedule.name"}


@dataclass(frozen=True)
class Range:
    """Random values from low to high, on a logarithmic scale if both are positive."""

    low: float
    high: float

    def draw(self, random: np.random.Generator, whole: bool = False) -> float:
        """Return one value with four digits, or for an integer setting a whole number with both ends included."""
        if whole and (self.low % 1 or self.high % 1):
            raise ArgumentError(
                f"Expected the ends of a range of whole numbers to be whole, but got {self.low:g}..{self.high:g}."
            )
        low, high = (self.low, self.high + 1) if whole else (self.low, self.high)
        if low > 0:
            value = math.exp(random.uniform(math.log(low), math.log(high)))
        else:
            value = random.uniform(low, high)
        return min(math.floor(value), int(self.high)) if whole else min(max(float(f"{value:.4g}"), self.low), self.high)


def full_name(name: str, config: RunConfig) -> str:
    """Return the dotted name of a setting: "lr" is optimizer.lr. For an unknown name, raise ArgumentError and suggest
    the nearest.
    """
    known = config.flat()
    if name in _SHORT:
        return _SHORT[name]
    if name in known:
        return name
    ends = [dotted for dotted in known if dotted.split(".")[-1] == name]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ArgumentError(
            f"Expected the whole name of a setting, but got {name!r}, which may be {' or '.join(ends)}."
        )
    return check_choice("setting", name, [*_SHORT, *known, *(dotted.split(".")[-1] for dotted in known)])


def _is_whole(config: RunConfig, name: str) -> bool:
    """Return whether a setting takes only whole numbers."""
    *above, last = name.split(".")
    owner: Any = config
    for part in above:
        owner = getattr(owner, part)
    known = options()
    hint = known[last].kind if owner is config.model and last in known else hints_of(type(owner)).get(last)
    return bool({int} & {hint, *typing.get_args(hint)}) and float not in (hint, *typing.get_args(hint))


def trials(
    base: RunConfig,
    grid: Mapping[str, Sequence[Any]],
    random: Mapping[str, Range],
    samples: int = 1,
    seeds: int = 1,
) -> dict[str, RunConfig]:
    """Return one config per trial, by name: every point of the grid, with `samples` random draws each, with `seeds`
    seeds each.

    The draws depend only on the base's seed. Raise ArgumentError or ConfigError if settings are unknown or invalid.
    """
    check_integer("samples", samples, 1)
    check_integer("seeds", seeds, 1)
    names = {name: full_name(name, base) for name in [*grid, *random]}
    _check_settings([names[name] for name in [*grid, *random]], grid)
    whole = {name: _is_whole(base, names[name]) for name in random}
    draw = np.random.default_rng(base.seed)
    made: dict[str, RunConfig] = {}
    for point in itertools.product(*grid.values()):
        for _ in range(samples if random else 1):
            chosen = dict(zip(grid, point)) | {name: span.draw(draw, whole[name]) for name, span in random.items()}
            for seed in range(base.seed, base.seed + seeds):
                plain = base.to_dict()
                for name, value in {**{names[name]: value for name, value in chosen.items()}, "seed": seed}.items():
                    *above, last = name.split(".")
                    place = plain
                    for part in above:
                        place = place[part]
                    place[last] = value
                label = "-".join(f"{name}={value}" for name, value in chosen.items()).replace("/", "_")[:_LABEL]
                made[f"{len(made):04d}-{label + '-' if label else ''}seed={seed}"] = _with_frames(
                    RunConfig.read(plain), base
                )
    return made


def _check_settings(names: Sequence[str], grid: Mapping[str, Sequence[Any]]) -> None:
    """Raise ArgumentError if a setting would be trained twice, or not at all."""
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise ArgumentError(
            f"Expected each setting once, but got {twice[0]} twice. Pass it once, in the grid or at random."
        )
    if "seed" in names:
        raise ArgumentError(
            "Expected settings to vary, but got seed. Pass seeds, --seeds: every setting is trained with so "
            "many, from --seed on."
        )
    for name, values in grid.items():
        if not values or len({_as_text(value) for value in values}) < len(values):
            raise ArgumentError(
                f"Expected the values of {name} to be different, and at least one, but got {list(values)}."
            )


def _as_text(value: Any) -> str:
    """Return equal text for values that give the same run: 1 and 1.0 are one learning rate."""
    return json.dumps(float(value) if type(value) is int and abs(value) < 2**53 else value)


def is_begun(folder: Path) -> bool:
    """Return whether a folder holds a sweep that `run_sweep` would resume."""
    return (folder / _SWEEP).exists()


def run_sweep(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    address: str | None = None,
    cpus: float = 1,
    early_stopping: bool = False,
    quiet: bool = False,
) -> None:
    """Train all configurations. Resume a previous call with the same folder where it stopped, and retry its failed
    trials.

    Retried trials of a previous call are not stopped early.

    address: Address of a Ray cluster ("auto" for the cluster of this machine); None for only this machine.
    cpus: Cores per trial. early_stopping: Whether ASHA stops trials with comparatively bad validations.
    Raise ArgumentError if the folder holds another sweep or cpus is not positive, MissingPackageError without Ray, and
    Interrupted if Ctrl-C or SIGTERM stopped it.
    """
    if check_number("cpus", cpus, 0) == 0:
        raise ArgumentError("Expected cpus to be above 0, but got 0. Pass the processor cores of one trial, such as 1.")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # else Ctrl-C ends a sweep as if all trials had come to their end
    # else a trial that fails before a validation ends all others
    os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = "1"
    try:
        import ray
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("a sweep", error.name or "ray", "sweep") from error
    folder = folder.resolve()
    configs = {name: with_absolute_data(_stored(config, folder)) for name, config in configs.items()}
    _same_sweep(folder, configs, early_stopping)
    task = next(iter(configs.values())).task
    first = next(iter(configs.values()))
    failed = [name for name in failures(folder) if name in configs]  # in earlier calls
    trainable = tune.with_resources(_trial, {"cpu": cpus})
    # the package's own folder, so that workers import what is running here
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(max(1, int(cpus)))}}
    mine = not ray.is_initialized()
    if mine:
        ray.init(
            address=address,
            runtime_env=environment,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        state = folder / "ray" / _TUNE

        def new(names: Sequence[str], name: str, scheduler: Any) -> Any:
            return tune.Tuner(
                trainable,
                param_space={"trial": tune.grid_search(list(names)), "folder": str(folder)},
                tune_config=tune.TuneConfig(
                    metric=task.metric, mode="max" if task.higher_is_better else "min", scheduler=scheduler
                ),
                run_config=tune.RunConfig(
                    name=name,
                    storage_path=str(folder / "ray"),
                    failure_config=tune.FailureConfig(max_failures=_RETRIES),
                    verbose=0 if quiet else 1,
                ),
            )

        tuners = []
        if tune.Tuner.can_restore(str(state)):
            tuners.append(tune.Tuner.restore(str(state), trainable, resume_unfinished=True, restart_errored=True))
            if failed:  # for Ray they have ended, and it does not begin them again
                tuners.append(new(failed, f"{_TUNE}-again-{time.time_ns()}", None))
        else:
            stop = ASHAScheduler(
                time_attr="step", max_t=first.steps, grace_period=max(first.validate_every, first.steps // 10)
            )
            tuners.append(new(list(configs), _TUNE, stop if early_stopping else None))
        with StopSignals() as signals:
            try:
                signals.at_once = True
                for tuner in tuners:
                    tuner.fit()
            except KeyboardInterrupt:
                signals.received = signals.received or signal.SIGINT
        if signals.received is not None:
            raise Interrupted(
                f"{signal.Signals(signals.received).name} ended the sweep in {folder}; its trials are saved. Resume with the "
                f"same command and --out {shell_word(folder)}",
                signals.received,
            )
    finally:
        if mine:
            ray.shutdown()


def _stored(config: RunConfig, folder: Path) -> RunConfig:
    """Return the same run with its DataFrames written to files that workers can read."""
    return dataclasses.replace(config, task=stored(config.task, folder))


def _with_frames(config: RunConfig, base: RunConfig) -> RunConfig:
    """Return a run read from JSON, which has no DataFrames, with the DataFrames of another run."""
    frames = {name: frame for name, frame in vars(base.task).items() if isinstance(frame, Frame)}
    return dataclasses.replace(config, task=dataclasses.replace(config.task, **frames))  # type: ignore[type-var]


def with_absolute_data(config: RunConfig) -> RunConfig:
    """Return the same run with absolute data paths: workers run in other folders."""
    given = {name: getattr(config.task, name, None) for name in ("data", "validation_data", "test_data")}
    paths = {
        name: str(Path(path).expanduser().resolve()) for name, path in given.items() if isinstance(path, str) and path
    }
    if not paths:
        return config
    return dataclasses.replace(config, task=dataclasses.replace(config.task, **paths))  # type: ignore[type-var]


def failures(folder: Path) -> dict[str, str]:
    """Return why trials of the sweep in this folder did not finish, by name."""
    found = sorted((folder / "runs").glob(f"*/{FAILED}"))
    return {path.parent.name: read_json(path, "Failure")["error"] for path in found}


def diverged(folder: Path) -> dict[str, Diverged]:
    """Return how trials of the sweep in this folder diverged, by name."""
    found = {path.parent.name: read_diverged(path.parent) for path in sorted((folder / "runs").glob(f"*/{DIVERGED}"))}
    return {name: ended for name, ended in found.items() if ended is not None}


def unfinished(configs: Iterable[str], folder: Path, early_stopping: bool = False) -> dict[str, str]:
    """Return what happened to trials that neither finished nor failed, by name; early stopping ends those that
    began.
    """
    known = failures(folder).keys() | diverged(folder).keys()
    found = {}
    for name in configs:
        path = folder / "runs" / name
        begun = (path / CONFIG).exists()
        if name not in known and not (path / RESULT).exists() and not (begun and early_stopping):
            found[name] = (
                f"its worker ended {'before its end' if begun else 'before it began'}. The same command "
                f"{'resumes' if begun else 'begins'} it."
            )
    return found


def _trial(parameters: dict[str, Any]) -> None:
    """Run one trial in a worker: start or resume its run, and report every validation."""
    from ray import tune

    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    folder = Path(parameters["folder"])
    name = parameters["trial"]
    config = RunConfig.read(read_json(folder / _SWEEP, "Objects")[name])

    def observe(record: dict[str, Any]) -> None:
        if record["kind"] == "validation":
            tune.report({key: value for key, value in record.items() if key != "kind"})

    path = folder / "runs" / name
    last = read_result(path)
    if last is not None:
        (path / FAILED).unlink(missing_ok=True)
        tune.report({**last["validation"], "step": last["steps"], "seconds": last["seconds"]})
        return
    if read_diverged(path) is not None:
        return
    run = None
    try:
        run = _begin(path, config, observe)
        while not run.done:
            run.advance(1.0)
        run.finish()
        (path / FAILED).unlink(missing_ok=True)  # only now: if this call is stopped, the next one tries again
    except (LockedError, CheckpointError):
        raise
    except OrthornnError as error:
        # the same would happen again: such a trial is not retried in this call, and the others continue
        path.mkdir(parents=True, exist_ok=True)
        if run is not None and isinstance(error, NonFiniteError):
            write_diverged(path, run.trainer.step, run.seconds, error)
            (path / FAILED).unlink(missing_ok=True)
        else:
            write_json(path / FAILED, {"error": str(error)}, summed=True)
    finally:
        if run is not None:
            run.close()


def _begin(path: Path, config: RunConfig, observe: Any) -> Run:
    patience = time.monotonic() + _LOCK_SECONDS
    while True:
        with contextlib.suppress(LockedError):
            if (path / "config.json").exists():
                return Run.resume(path, observers=[observe])
            return Run(config, path, observers=[observe])
        if time.monotonic() > patience:
            raise LockedError(
                f"Expected {path} to be free, but another process still writes it after "
                f"{_LOCK_SECONDS:.0f} s. Stop that."
            )
        time.sleep(0.5)


def _same_sweep(folder: Path, configs: Mapping[str, RunConfig], early_stopping: bool) -> None:
    """Write the description of the sweep, or check that it matches the existing one."""
    path, options = folder / _SWEEP, folder / _OPTIONS
    if path.exists():
        check_same_runs(configs, path, "sweep")
        began = read_json(options, "SweepOptions")["early_stopping"]
        if began != early_stopping:
            raise ArgumentError(
                f"Expected early_stopping={began}, with which the sweep in {folder} was begun, but got {early_stopping}. "
                f"{'Pass' if began else 'Leave out'} --early-stopping, or choose another folder."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(options, {"early_stopping": early_stopping}, summed=True)
    write_json(path, described(configs), summed=True)
