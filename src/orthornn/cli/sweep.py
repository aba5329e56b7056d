"""`orthornn sweep TASK`: train many runs over a grid or at random."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._files import write_bytes
from .._shell_word import shell_word
from ..errors import ArgumentError
from ..learn import sweep
from ..learn.options import RunOptions
from ..learn.own_data import options_for
from ..learn.plain_results import plain_results_of
from ..learn.report.lines import say, show
from ..learn.report.page import write_report
from ..learn.report.runs import SavedRun, by_data, groups, read_runs, standings
from ..learn.report.significance import mean_and_spread
from ..learn.report.table import Column, Table
from ..learn.training.schedule import check_warmup
from .outputs import check_new_files
from .task_arguments import data_and_options

SUMMARY = (
    "Trains a model with a grid of settings, or with random ones, several at a time, on this machine or on a Ray cluster. "
    "Writes a run directory for each, a table and a report. Workers that were killed resume from their checkpoints; the "
    "same command with the same --out resumes a sweep."
)


@dataclass(frozen=True)
class SweepOptions(RunOptions):
    """The options of orthornn sweep."""

    model: str = "ornn-rotations"
    """Name of the model, unless --grid names models."""
    grid: str = ""
    """Settings and their values, such as "lr=1e-3,1e-4 model=ornn,lstm". A setting is a name in config.json: its full
    name, or only the last part.
    """
    random: str = ""
    """Settings and their ranges, such as "lr=1e-4..1e-2 hidden_size=64..256". The draw is logarithmic if both ends are
    positive."""
    samples: int = 10
    """Draws of --random per point of the grid."""
    seeds: int = 1
    """Runs per setting, with seeds from --seed upwards."""
    cpus: float = 1.0
    """Processor cores per trial. The number of trials that run at a time follows from the cores."""
    address: str | None = None
    """Address of a Ray cluster, or auto for the cluster that this machine belongs to. Default: this machine only."""
    early_stopping: bool = False
    """Stop trials whose validation results are comparatively bad (ASHA)."""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    data, given = data_and_options("sweep", SUMMARY, SweepOptions, words)
    options = options_for(data, given, say, command=SweepOptions, prog="orthornn sweep")
    if options["threads"] is not None:
        raise ArgumentError(
            f"Expected no --threads, since --cpus sets the number of threads per trial, but got "
            f"{options['threads']}. Pass --cpus {options['threads']}."
        )
    if "samples" in options.given and not options["random"]:
        raise ArgumentError(
            f"Expected --random with --samples, its draws per point of the grid, but got --samples {options['samples']} "
            f"alone. Leave it out, or name settings with --random."
        )
    base = options.config(options.make_task())
    grid = {name: [_value(text) for text in values.split(",")] for name, values in _pairs("grid", options["grid"])}
    ranges = {name: _range(name, values) for name, values in _pairs("random", options["random"])}
    configs = sweep.trials(base, grid, ranges, options["samples"], options["seeds"])
    folder = options.folder("sweep")
    if not sweep.is_begun(folder):
        check_new_files([folder / "table.txt", folder / "report.html"])
        for config in configs.values():
            check_warmup(config)
    for line in base.task.summary_lines():
        say(line)
    show(f"{len(configs)} trials in {folder}")
    sweep.run_sweep(
        configs, folder, address=options["address"], cpus=options["cpus"], early_stopping=options["early_stopping"]
    )
    failed = [f"{name} failed: {error}" for name, error in sweep.failures(folder).items()]
    left = sweep.unfinished(configs, folder, options["early_stopping"])
    failed += [f"{name} did not end: {reason}" for name, reason in left.items()]
    diverged = [f"{name} diverged: {ended.error}" for name, ended in sweep.diverged(folder).items()]
    if len(failed) + len(diverged) == len(configs):
        again = f"The same command with --out {shell_word(folder)} tries again." if failed else "Choose other settings."
        raise ArgumentError(f"Expected at least one trial to finish, but got none. {[*failed, *diverged][0]} {again}")
    runs = read_runs([folder / "runs"])
    shown = tables(runs)
    shown[-1].notes.extend([*failed, *diverged])
    text = "\n\n".join(one.plain() for one in shown) + "\n"
    write_bytes(folder / "table.txt", text.encode())
    write_report(runs, folder / "report.html", plain=plain_results_of(runs))
    for one in shown:  # after the files: whoever reads this may be gone
        one.show()
    show(f"results: {folder}   report: {folder / 'report.html'}")
    return 0


def tables(runs: Sequence[SavedRun]) -> list[Table]:
    """Return one table per data set, since settings may be tested on different ones."""
    return [_table(name, own) for name, own in by_data(runs).items()]


def _table(data: str, runs: Sequence[SavedRun]) -> Table:
    """Return one row per setting, the best by validation first; runs without a result are counted.

    Test figures use the weights of each run's best validation.
    """
    task = runs[0].config.task
    metrics = dict.fromkeys((task.metric, "loss"))
    heads = [f"validation {task.metric}", *(f"test {metric}" for metric in metrics)]
    shown = Table(
        f"{data}: best validation, and the test of its weights, mean ± standard deviation over seeds",
        [Column("setting", left=True), Column("finished"), *map(Column, heads)],
    )
    grouped = groups(runs)
    found = standings(grouped)
    columns = [found.validation(), *map(found.test, metrics)]
    for name in found.best_first():
        cells = [mean_and_spread(column[name]) for column in columns]
        if not found.runs[name]:
            is_diverged = any(run.diverged for run in grouped[name])
            cells = ["diverged" if is_diverged else "stopped early"] * len(heads)
        shown.rows.append([name, f"{len(found.runs[name])} of {len(grouped[name])}", *cells])
    shown.notes = found.verdicts()
    return shown


def _pairs(option: str, text: str) -> list[tuple[str, str]]:
    pairs = [part.split("=", 1) for part in text.split()]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ArgumentError(f"Expected {option} to be like NAME=VALUES NAME=VALUES, but got {'='.join(pair)!r}.")
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(
                f"Expected {name} once in {option}, but got it twice. Pass all its values together: "
                f"{name}=FIRST,SECOND."
            )
    return [(name, values) for name, values in pairs]


def _value(text: str) -> Any:
    """Return a number, true, false or null; otherwise a word."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _range(name: str, text: str) -> sweep.Range:
    try:
        low, high = map(float, text.split(".."))
    except ValueError:
        raise ArgumentError(f"Expected random to be like {name}=LOW..HIGH, but got {name}={text}.") from None
    if not (low <= high and math.isfinite(high - low)):
        raise ArgumentError(
            f"Expected random to be like {name}=LOW..HIGH, finite and LOW at most HIGH, but got {name}={text}."
        )
    return sweep.Range(low, high)
