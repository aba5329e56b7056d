"""`orthornn train TASK`: one model, one task, one run directory."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import ArgumentError, MissingPackageError
from ..learn import compare
from ..learn.auto import AUTO, STATE, Search
from ..learn.report.figures import learning_curves, or_a_warning, told
from ..learn.systems import model_named
from ..learn.tasks import Classify, Task
from ..learn.training import Processes, Run, RunConfig, RunResult, Trainer, carry_out, load_model, read_config
from ..learn.training.changes import read_environment
from ..learn.training.directory import CONFIG, check_is_run
from ..learn.training.tensorboard import TensorBoard
from .arguments import (
    RunArguments,
    TaskT,
    announce,
    choose_threads,
    most_threads,
    options_in,
    own_data,
    parse,
    read_options,
    updates_of_epochs,
)
from .class_results import FILE as CLASS_SCORES
from .class_results import class_tables
from .lines import show
from .optimizer_options import announce_unused
from .outputs import check_new_files
from .plain_results import show_all, with_baselines
from .progress import Display
from .recipes import announce_recipe, expand, leave_room_for_network, limit_warmup
from .terminated import terminable

SUMMARY = (
    "Trains one model and writes a run directory: config.json, environment.json, metrics.jsonl, checkpoints, "
    "model.safetensors, result.json, curves.png. Ctrl-C saves; `orthornn train --resume RUN` resumes bit for bit. "
    "`torchrun --nproc-per-node K -m orthornn train ...` divides every batch among K processes."
)
_MINUTES = 10.0
_HELP = {"-h", "--help"}
RESUME = "Resumes a run from its newest intact checkpoint, bit for bit."


@dataclass(frozen=True)
class TrainArguments(RunArguments[TaskT]):
    """The options of orthornn train."""

    model: str = "ornn-rotations"
    """Name of the model; `orthornn train --help` lists them. auto tries several and trains the best by validation."""
    minutes: float | None = None
    """With --model auto: minutes for the whole search. Default: 10."""
    tensorboard: bool = False
    """Also write the records for TensorBoard, to the folder tensorboard of the run directory."""
    recipe: str | None = None
    """Named preset of options: linear, linear-deep, blocks, blocks-decay, blocks-first (docs/how_to/stacked_layers.md);
    table, numbers, forecast for your own data; or none. Options that you give override it. Default: for your own data
    that of the task, else none."""


@dataclass(frozen=True)
class ResumeArguments:
    """The options of orthornn train --resume."""

    resume: Path
    """Run directory."""
    steps: int | None = None
    """Total number of updates. Default: as the run began."""
    epochs: float | None = None
    """Total number of epochs, instead of --steps; for tasks with a fixed training set."""
    seconds: float | None = None
    """Total seconds of training. Default: as the run began."""
    device: str | None = None
    """Device: cpu, cuda, or cuda:N. Default: as the run began."""
    tensorboard: bool = False
    """Also write the records for TensorBoard."""


@dataclass(frozen=True)
class ResumeSearchArguments:
    """The options of orthornn train --resume for a search by --model auto."""

    resume: Path
    """Folder of the search."""
    minutes: float | None = None
    """Total minutes of the search. Default: as it began."""


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    train_as_asked(words)
    return 0


def train_as_asked(words: Sequence[str]) -> tuple[RunResult, Path]:
    """Carry out the run that the words ask for and show it; return its result and the run directory."""
    if importlib.util.find_spec("matplotlib") is None:  # reported now, not after hours of training
        raise MissingPackageError.named("orthornn train", "matplotlib", "cli")
    with terminable():
        return _trained_and_shown(words)


def _trained_and_shown(words: Sequence[str]) -> tuple[RunResult, Path]:
    processes = Processes.from_environment()
    words = _resume_first(words)
    try:
        search = _search(words, processes)
        if search is not None:
            return _carry_out(search)
        run, folder = _run(words, processes)
        name = run.config.model.name
        if processes.first:
            announce(run.config.task)
        display = Display(run.trivial_loss, run.config.max_seconds)
        with display if processes.first else contextlib.nullcontext():
            result = carry_out(run, lambda progress: display({name: progress}) if processes.first else None)
    finally:
        processes.leave()
    folder = folder if run.directory is None else run.directory.path
    if processes.first:
        try:
            _show(result, folder)
        except KeyboardInterrupt:  # all of the run is there, and perhaps nothing has named its folder
            show(f"run directory: {folder}")
            raise
    return result, folder


def _resume_first(words: Sequence[str]) -> Sequence[str]:
    """Return the words with --resume RUN before all others, as in `--steps 90 --resume=RUN`, if they name no task; and
    `--config FILE --out FOLDER` in this order.
    """
    if not words or not words[0].startswith("-"):
        return words
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--resume":
            own = [name, value] if equals else list(words[index : index + 2])
            rest = [*words[:index], *words[index + (1 if equals else 2) :]]
            if own[-1].startswith("-"):
                if _HELP & {*own, *rest}:
                    read_options(ResumeArguments, "orthornn train", RESUME, ["--help"])
                raise ArgumentError(
                    f"Expected a run directory after --resume, but got {own[1] if len(own) > 1 else 'none'}. Name "
                    f"it: orthornn train --resume RUN."
                )
            return [*own, *rest]
    parted = [part for word in words for part in word.split("=", 1)]
    if len(parted) == 4 and {parted[0], parted[2]} == {"--config", "--out"}:
        return parted if parted[0] == "--config" else [*parted[2:], *parted[:2]]
    return words


def _search(words: Sequence[str], processes: Processes) -> Search | None:
    """Return the search for a model that the words ask for: a new one, or one that resumes; None if they ask for none."""
    if len(words) > 1 and words[0] == "--resume" and (Path(words[1]) / STATE).exists():
        resumed = read_options(ResumeSearchArguments, "orthornn train", RESUME, words)
        _same_threads(resumed.resume)
        return Search.resume(resumed.resume, resumed.minutes)
    if not words or words[0].startswith("-") or options_in(words).get("model") != AUTO:
        return None
    if processes.count > 1:
        raise ArgumentError(
            f"Expected one process for --model auto, but got {processes.count}. Run it without torchrun."
        )
    words = own_data(words)
    expanded = expand(words)
    announce_recipe(words, expanded)
    arguments = parse("train", SUMMARY, lambda task: TrainArguments[task], expanded)  # type: ignore[valid-type]
    arguments = leave_room_for_network(limit_warmup(arguments, words), words)
    if arguments.tensorboard:
        raise ArgumentError(
            "Expected --tensorboard only with one model, but got it with --model auto. Leave it out, or name a model."
        )
    minutes = _MINUTES if arguments.minutes is None else arguments.minutes
    options = arguments.given_model_options()
    announce(arguments.task)
    folder = arguments.folder(AUTO)
    _check_folder(folder, arguments.task)
    search = Search.begin(lambda model: arguments.config(model, arguments.seconds), options, minutes, folder)
    announce_unused(words, map(Trainer, search.configs.values()))
    return search


def _carry_out(search: Search) -> tuple[RunResult, Path]:
    """Search, show the candidates and the result, and return the result with its folder."""
    show(f"candidates: {', '.join(search.configs)}; {search.seconds / 60:g} minutes in all")
    name, result, folder = search.carry_out(show)
    search.table().show()
    show(f"\nchosen by validation: {name}\n")
    _show(result, folder)
    return result, folder


def _run(words: Sequence[str], processes: Processes) -> tuple[Run, Path]:
    """Return the run of these words: a new one, one from a file, or one that is resumed."""
    if words and words[0] == "--resume":
        resumed = read_options(ResumeArguments, "orthornn train", RESUME, words)
        _same_threads(resumed.resume)
        observers = _observers(resumed.tensorboard, resumed.resume, processes)
        changes: dict[str, Any] = {"steps": _steps(resumed), "max_seconds": resumed.seconds, "device": resumed.device}
        return Run.resume(resumed.resume, **changes, processes=processes, observers=observers), resumed.resume
    tensorboard, threads = False, None
    if words and words[0] == "--config":
        config, folder = _from_file(words[1:])
    else:
        words = own_data(words) if words else words
        expanded = expand(words)
        if processes.first:
            announce_recipe(words, expanded)
        arguments = parse("train", SUMMARY, lambda task: TrainArguments[task], expanded)  # type: ignore[valid-type]
        if arguments.minutes is not None:
            raise ArgumentError(
                f"Expected --minutes only with --model auto, but got --model {arguments.model}. Use --seconds."
            )
        arguments = limit_warmup(arguments, words, processes.first)
        arguments = leave_room_for_network(arguments, words, processes.first)
        config = arguments.config(model_named(arguments.model, **arguments.given_model_options()), arguments.seconds)
        folder, tensorboard, threads = arguments.folder(arguments.model), arguments.tensorboard, arguments.threads
    _check_folder(folder, config.task)
    if threads is None:
        choose_threads([config])
    observers = _observers(tensorboard, folder, processes)
    run = Run(config, folder, processes=processes, observers=observers)
    if processes.first:
        announce_unused(words, [run.trainer])
    return run, folder


def _check_folder(folder: Path, task: Task) -> None:
    """Raise ArgumentError if a file that `_show` is to write for a new run is in its folder: recordings, for example."""
    names = ["curves.png", *([CLASS_SCORES] if isinstance(task, Classify) else []), *task.output_files()]
    check_new_files(folder / name for name in names)


def _observers(tensorboard: bool, folder: Path, processes: Processes) -> list[Any]:
    if not tensorboard or not processes.first:
        return []
    return [TensorBoard(folder / "tensorboard")]


def _steps(resumed: ResumeArguments) -> int | None:
    """Return the updates that are asked for, in updates or in epochs."""
    if resumed.epochs is None:
        return resumed.steps
    if resumed.steps is not None:
        raise ArgumentError(
            f"Expected --steps or --epochs, but got both, {resumed.steps} and {resumed.epochs:g}. Pass one."
        )
    check_is_run(resumed.resume)
    config = read_config(resumed.resume / CONFIG)
    return updates_of_epochs(config.task, config.batch_size, resumed.epochs)


def _same_threads(folder: Path) -> None:
    """Set as many threads as the run or the search began with: the order of a sum, and so its last bit, may depend on them.

    But no more than a machine of today has use for: the file may be a stranger's.
    """
    threads = read_environment(folder).get("threads")
    if threads is not None and threads <= most_threads():
        torch.set_num_threads(threads)


def _show(result: RunResult, folder: Path) -> None:
    name, task = result.config.model.name, result.config.task
    result.model.eval()
    outcomes = task.write_outputs(result.model, folder)
    shown = compare.table({name: result})
    if result.best:
        best = {
            "update" if key == "step" else key: value
            for key, value in result.best.items()
            if not key.endswith("seconds")
        }
        shown.notes.append("best validation: " + ", ".join(f"{key} {value:.4g}" for key, value in best.items()))
    if result.best_test and result.best_test != result.test and result.best.get("step") != result.steps:
        last = ", ".join(f"{key} {value:.4g}" for key, value in result.test.items())
        shown.notes.append(
            f"test of the last weights: {last}; predict, evaluate and export use them with --checkpoint last"
        )
    if result.whole_test:
        whole = ", ".join(f"{key} {value:.4g}" for key, value in result.whole_test.items())
        shown.notes.append(f"test of whole series, as predict and streams process them: {whole}")
    shown.notes.extend(outcomes)
    tables = [shown]
    if isinstance(task, Classify):
        tables += class_tables(task, load_model(folder, "chosen")[1], folder, result.threshold)
    figure = folder / "curves.png"  # before the tables: whoever reads those may be gone
    curves = {kind: compare.curves({name: result}, kind)[name] for kind in ("train", "validation")}
    curves = {kind: curve for kind, curve in curves.items() if curve[0]}
    with or_a_warning(figure):
        learning_curves(figure, f"{task.name}, {name}", curves, result.trivial_loss)
    show_all(*with_baselines(tables, {name: result}))
    show(f"run directory: {folder}{told(figure)}")


def _from_file(words: Sequence[str]) -> tuple[RunConfig, Path]:
    """Read `orthornn train --config FILE --out FOLDER`, which repeats the run that a config.json describes."""
    if len(words) != 3 or words[1] != "--out":
        raise ArgumentError(f"Expected --config FILE --out FOLDER, but got --config {' '.join(words)}. Name both.")
    return read_config(Path(words[0])), Path(words[2])
