"""`orthornn train TASK`: train one model on one task in one run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import ArgumentError
from ..learn import compare
from ..learn import train as training
from ..learn.auto import STATE, Search
from ..learn.options import TrainOptions, updates_of_epochs
from ..learn.report.figures import figure_note, learning_curves, or_a_warning
from ..learn.runs.changes import read_environment
from ..learn.shown import Printed, Silent
from ..learn.tasks import Task
from ..learn.training import Processes, Run, RunResult, read_config
from ..learn.training.threads import choose_threads, most_threads
from ..saved.run_files import CONFIG, check_is_run
from .arguments import HELP, read_options
from .progress import Display
from .task_arguments import data_and_options

SUMMARY = (
    "Trains one model and writes a run directory: config.json, environment.json, metrics.jsonl, checkpoints, "
    "model.safetensors, result.json, curves.png. Ctrl-C saves; `orthornn train --resume RUN` resumes bit for bit. "
    "`torchrun --nproc-per-node K -m orthornn train ...` divides every batch among K processes."
)
RESUME = "Resumes a run from its newest intact checkpoint, bit for bit."
_FIGURE = "curves.png"


@dataclass(frozen=True)
class ResumeOptions:
    """The options of orthornn train --resume."""

    resume: Path
    """Run directory."""
    steps: int | None = None
    """Total number of updates. Default: the number with which the run began."""
    epochs: float | None = None
    """Total number of epochs, instead of --steps; for tasks with a fixed training set."""
    seconds: float | None = None
    """Total seconds of training. Default: the limit with which the run began."""
    device: str | None = None
    """Device: cpu, cuda, or cuda:N. Default: the device on which the run began."""
    tensorboard: bool = False
    """Also write the records for TensorBoard."""


@dataclass(frozen=True)
class ResumeSearchOptions:
    """The options of orthornn train --resume for a search by --model auto."""

    resume: Path
    """Folder of the search."""
    minutes: float | None = None
    """Total minutes of the search. Default: the limit with which it began."""


@dataclass(frozen=True)
class RepeatOptions:
    """The options of orthornn train --config."""

    config: Path
    """config.json of the run to repeat."""
    out: Path
    """Folder for the results."""


class Shown(Printed):
    """Print the messages of a training, with bars, and draw its learning curves."""

    def display(self, trivial_loss: float, limit: float | None) -> Display:
        """Return bars on a terminal."""
        return Display(trivial_loss, limit)

    def files(self, task: Task) -> list[str]:
        """Return the figure and the other files that were written."""
        return [_FIGURE, *super().files(task)]

    def figure(self, result: RunResult, folder: Path) -> str:
        """Draw the learning curves."""
        name, task, figure = result.config.model.name, result.config.task, folder / _FIGURE
        curves = {kind: compare.curves({name: result}, kind)[name] for kind in ("train", "validation")}
        with or_a_warning(figure):
            drawn = {kind: curve for kind, curve in curves.items() if curve[0]}
            learning_curves(figure, f"{task.name}, {name}", drawn, result.trivial_loss)
        return figure_note(figure)


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    named = [part for word in words for part in word.split("=", 1)] if words and words[0].startswith("-") else []
    if "--resume" in named:
        _resume(words, named)
    elif "--config" in named:
        _repeat(words, named)
    else:
        data, given = data_and_options("train", SUMMARY, TrainOptions, words)
        training.train(data, options=given, shown=Shown())
    return 0


def _resume(words: Sequence[str], named: Sequence[str]) -> None:
    """Resume the run, or the search, that the words name. named: The words, with options separated from their
    values.
    """
    if HELP & {*named}:
        read_options(ResumeOptions, "orthornn train", RESUME, ["--help"])
    run = "".join(named[named.index("--resume") + 1 :][:1])
    if run.startswith("-") or named[-1] == "--resume":
        raise ArgumentError(
            f"Expected a run directory after --resume, but got {run or 'none'}. Name it: orthornn train --resume RUN."
        )
    if (Path(run) / STATE).exists():
        search = read_options(ResumeSearchOptions, "orthornn train", RESUME, words)
        _same_threads(search.resume)
        training.searched(Search.resume(search.resume, search.minutes), Shown())
        return
    options = read_options(ResumeOptions, "orthornn train", RESUME, words)
    _same_threads(options.resume)
    changes = {"steps": _steps(options), "max_seconds": options.seconds, "device": options.device}

    def begin(processes: Processes) -> tuple[Run, Path]:
        observers = training.observers(options.tensorboard, options.resume, processes)
        return Run.resume(options.resume, **changes, processes=processes, observers=observers), options.resume

    _run(begin)


def _repeat(words: Sequence[str], named: Sequence[str]) -> None:
    """Repeat the run described by a config.json."""
    if not HELP & {*words} and "--out" not in named:
        raise ArgumentError(f"Expected --config FILE --out FOLDER, but got {' '.join(words)}. Name both.")
    options = read_options(RepeatOptions, "orthornn train", "Repeats the run that a config.json describes.", words)
    config = read_config(options.config)
    training.check_folder(options.out, Shown().files(config.task))
    choose_threads([config])
    _run(lambda processes: (Run(config, options.out, processes=processes), options.out))


def _run(begin: Callable[[Processes], tuple[Run, Path]]) -> None:
    processes = Processes.from_environment()
    try:
        training.run_and_show(*begin(processes), Shown() if processes.first else Silent())
    finally:
        processes.leave()


def _steps(options: ResumeOptions) -> int | None:
    """Return the requested number of updates, given as updates or as epochs."""
    if options.epochs is None:
        return options.steps
    if options.steps is not None:
        raise ArgumentError(
            f"Expected --steps or --epochs, but got both, {options.steps} and {options.epochs:g}. Pass one."
        )
    check_is_run(options.resume)
    config = read_config(options.resume / CONFIG)
    return updates_of_epochs(config.task, config.batch_size, options.epochs)


def _same_threads(folder: Path) -> None:
    """Use the number of threads with which the run or the search began: the order of a sum, and so its last bit, may
    depend on it.

    The number is limited to what a current machine can use, since the file may come from an untrusted source.
    """
    threads = read_environment(folder).get("threads")
    if threads is not None and threads <= most_threads():
        torch.set_num_threads(threads)
