"""Several models on one task, with the same seed, the same batches and one parameter budget.

    OUT/compare.json    the configuration of every run
    OUT/NAME            the run directories

A stopped comparison resumes when it is started again in the same folder. A run that diverges is left out, and the other
runs continue.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .._checks import check_choice, check_integer
from .._shell_word import shell_word
from ..errors import ArgumentError, Interrupted, NonFiniteError, OrthornnError
from ..saved.diverged import Diverged, read_diverged, write_diverged
from ..saved.json_files import write_json
from ..saved.run_files import CONFIG
from .report.figures import Curve
from .report.ranking import best_first, metric_text
from .report.runs import chosen
from .report.significance import mean_and_spread
from .report.standings import Standings
from .report.table import Column, Table
from .runs.changes import check_same_runs, described
from .runs.directory import check_is_no_run, make_folder
from .runs.run import TURN_SECONDS
from .runs.signals import StopSignals, output_refused
from .systems import MODELS, SIZES
from .tasks import Forecast, Task, forecast
from .tasks.abilities import baselines, plain_baselines
from .tasks.backtest import Backtest
from .tasks.plain_baselines import Baseline
from .tasks.regress import Numbers
from .tasks.table_options import names_in
from .training import Progress, Run, RunConfig, RunResult, load_model

_COMPARISON = "compare.json"  # in the folder of a comparison: its configs
_LEVEL = 0.02  # share of a test metric up to which two are about the same


def configs(base: RunConfig, models: Sequence[str], options: Mapping[str, Any] | None = None) -> dict[str, RunConfig]:
    """Return one config per model: `base` with that model; options such as reflections go to the models that have them.

    options: The size and the options. Default: those of the base's model.

    Raise ArgumentError for an unknown or repeated name, for no name at all, and for an option that no model has.
    """
    if not models:
        raise ArgumentError(f"Expected models to name at least one of {', '.join(MODELS)}, but got none.")
    made: dict[str, RunConfig] = {}
    given = base.model.given() if options is None else {k: v for k, v in options.items() if v is not None}
    for name in models:
        kind = MODELS[check_choice("model", name, MODELS)]
        if name in made:
            raise ArgumentError(f"Expected each model once, but got {name!r} twice. Name it once.")
        own = {option: value for option, value in given.items() if option in (*SIZES, *kind.options())}
        made[name] = dataclasses.replace(base, model=kind(**own))
    taken = {*SIZES, *(option for name in made for option in MODELS[name].options())}
    for option, value in given.items():
        if option not in taken:
            raise ArgumentError(
                f"Expected options of {', '.join(made)}, but got {option}={value!r}, which none has. Leave it out."
            )
    return made


def with_seeds(configs: dict[str, RunConfig], seeds: int) -> dict[str, RunConfig]:
    """Return every config with this many seeds, starting from the config's seed, under names like "lstm-seed3"."""
    check_integer("seeds", seeds, 1)
    if seeds == 1:
        return configs
    return {
        f"{name}-seed{seed}": dataclasses.replace(config, seed=seed)
        for name, config in configs.items()
        for seed in range(config.seed, config.seed + seeds)
    }


def is_begun(folder: Path) -> bool:
    """Return whether a folder holds a comparison that `Comparison` would resume."""
    return (folder / _COMPARISON).exists()


class Comparison:
    """Runs that take turns, each for a moment, until their updates are done or their time is up.

    As a context manager it saves the state if a signal or an error leaves it, and closes the logs.

    configs: Configurations of the runs, by name.
    seconds: Stop all runs after this many seconds in total. Each run has an equal share; time that one does not use
        goes to the others. None to continue to the end.
    diverged: How runs diverged, by name; `runs` has the others.
    directory: Folder for the runs, each in a folder with the model's name. If it already holds this comparison, it is
        resumed.

    Raise ArgumentError if the directory holds another comparison, or runs that belong to none.
    """

    def __init__(
        self, configs: dict[str, RunConfig], directory: str | Path | None = None, seconds: float | None = None
    ) -> None:
        self.seconds = seconds
        self.directory = None if directory is None else Path(directory)
        self.runs: dict[str, Run] = {}
        self.diverged: dict[str, Diverged] = {}
        self._signals = StopSignals()
        resumed = self.directory is not None and is_begun(self.directory)
        if self.directory is not None and resumed:
            check_same_runs(configs, self.directory / _COMPARISON, "comparison")
        try:
            for name, config in configs.items():
                path = None if self.directory is None else self.directory / name
                begun = resumed and path is not None and (path / CONFIG).exists()
                ended = read_diverged(path) if begun and path is not None else None
                if ended is not None:
                    self.diverged[name] = ended
                    continue
                self.runs[name] = Run.resume(path) if begun and path is not None else Run(config)
            if self.directory is not None:  # only now: what is wrong with any model shows before there is a folder
                if not resumed:
                    for name in configs:
                        check_is_no_run(self.directory / name)
                    make_folder(self.directory).close()
                    write_json(self.directory / _COMPARISON, described(configs), summed=True)
                for name, run in self.runs.items():
                    if run.directory is None:
                        run.create_directory(self.directory / name)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Comparison:
        self._signals.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        try:
            if error is not None and self.directory is not None:
                self._stop(error)
        finally:
            self._signals.__exit__(kind, error, where)
            self.close()

    def train(self, on_progress: Callable[[dict[str, Progress]], None] = lambda progress: None) -> None:
        """Advance all runs in turns.

        Raises:
            KeyboardInterrupt: After a signal, within the context. The context turns it into Interrupted.
            NonFiniteError: If all runs diverge.
        """
        self._check_any()
        while True:
            waiting = [name for name, run in self.runs.items() if not run.done and self._left(run) > 0]
            if not waiting:
                return
            for name in waiting:
                run = self.runs[name]
                try:
                    run.advance(min(TURN_SECONDS, self._left(run)))
                except NonFiniteError as error:
                    self._leave_out(name, error)
                    self._check_any()
                on_progress({name: run.progress for name, run in self.runs.items()})
                if self._signals.received is not None:
                    raise KeyboardInterrupt

    def finish(self) -> dict[str, RunResult]:
        """Validate, test, and write the final files of the runs. From here on a signal ends the context at once.

        Raises:
            NonFiniteError: If all runs have diverged.
        """
        self._signals.at_once = True
        if self._signals.received is not None:  # since the last update
            raise KeyboardInterrupt
        results = {}
        for name, run in [*self.runs.items()]:
            try:
                results[name] = run.finish()
            except NonFiniteError as error:
                self._leave_out(name, error)
        self._check_any()
        return results

    def close(self) -> None:
        """Close the logs."""
        for run in self.runs.values():
            run.close()

    @property
    def spent(self) -> float:
        """Total seconds of all runs."""
        return sum(run.seconds for run in self.runs.values()) + sum(one.seconds for one in self.diverged.values())

    def _leave_out(self, name: str, error: NonFiniteError) -> None:
        """Stop training a diverged run, and store how it diverged."""
        run = self.runs.pop(name)
        path = None if run.directory is None else run.directory.path
        run.close()
        self.diverged[name] = write_diverged(path, run.trainer.step, run.seconds, error)

    def _check_any(self) -> None:
        if not self.runs:
            name, found = next(iter(self.diverged.items()))
            raise NonFiniteError(
                f"Expected at least one model to finish its training, but got none. {name}: {found.error}"
            )

    def _left(self, run: Run) -> float:
        """Return the remaining seconds of a run's share."""
        if self.seconds is None:
            return math.inf
        waiting = [other for other in self.runs.values() if not other.done]
        others = self.spent - sum(other.seconds for other in waiting)
        return (self.seconds - others) / max(1, len(waiting)) - run.seconds

    def _stop(self, error: BaseException) -> None:
        """Save the state of every run, and raise an error that names the command to resume them, unless the original
        error already says what is wrong.
        """
        unsaved: OrthornnError | None = None
        torn = [name for name, run in self.runs.items() if run.fit.torn]
        for name, run in [*self.runs.items()]:
            try:
                if not run.fit.torn:
                    run.checkpoint()
            except NonFiniteError as own:
                self._leave_out(name, own)
            except OrthornnError as own:  # of one run: the others are saved
                unsaved = unsaved or own
        if unsaved is not None and not isinstance(error, OrthornnError):
            raise unsaved from error
        if not self.runs:
            return
        steps = [run.trainer.step for run in self.runs.values()]
        done = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
        ended = (
            f"the comparison after update {done} of {max(run.config.steps for run in self.runs.values())}; its runs are "
            f"saved{f', {torn[0]} as it was at its last checkpoint' if torn else ''}. Resume with the same command and "
            f"--out {shell_word(str(self.directory))}"
        )
        if isinstance(error, KeyboardInterrupt):
            number = self._signals.received or signal.SIGINT
            raise Interrupted(f"{signal.Signals(number).name} ended {ended}", number) from None
        if isinstance(error, OSError) and not isinstance(error, OrthornnError) and error.filename is None:
            raise output_refused(error, f"That ended {ended}") from error


def table(results: dict[str, RunResult], diverged: Mapping[str, Diverged] | None = None) -> Table:
    """Return one row per model: sizes, speed, loss next to the trivial baseline, orthogonality, and the task's metric.

    Models that diverged come last, each with a note.

    Validation and test use the weights of the best validation.
    us/step: Microseconds per update, data and optimizer included, divided by the time steps of the task.
    """
    first = next(iter(results.values()))
    task, objective = first.config.task, first.config.task.objective()
    columns = [
        Column("model", left=True),
        Column("parameters"),
        Column("width"),
        Column("updates"),
        Column("us/step"),
        Column("validation" if task.metric == "loss" else f"validation {task.metric}"),
        Column("test loss"),
        Column("over baseline"),
        Column("||W'W-I||"),
    ]
    if task.metric != "loss":
        columns += [Column(f"test {task.metric}"), Column("baseline")]
    shown = Table(
        f"{task.name}: sequences of {task.steps} steps, trivial baseline {first.trivial_loss:.4g} = "
        f"{objective.trivial_formula}",
        columns,
    )
    for name, result in results.items():
        per_step = 1e6 * result.update_seconds / (result.steps * task.steps) if result.steps else 0.0
        error = result.orthogonality_error
        validation, test = chosen(result.summary())
        row = [
            name,
            str(result.parameters),
            str(result.hidden_size),
            str(result.steps) if result.finished else f"{result.steps} of {result.config.steps}",
            f"{per_step:.1f}",
            _shown(task, validation[task.metric]) if validation else "-",
            f"{test['loss']:.4g}",
            f"{test['loss'] / result.trivial_loss:.3f}",
            "-" if error is None else "decay" if result.config.model.forgets else f"{error:.1e}",
        ]
        if task.metric != "loss":
            row += [_shown(task, test[task.metric]), _shown(task, objective.trivial_metric)]
        shown.rows.append(row)
    for name, result in results.items():
        if not result.finished:
            of = f"{name} " * (len(results) > 1)
            shown.notes.append(
                f"{of}ended after {result.steps} of {result.config.steps} updates, by --seconds or --patience"
            )
    for name, ended in (diverged or {}).items():
        shown.rows.append([name, "-", "-", str(ended.step), "-", "diverged", *["-"] * (len(columns) - 6)])
        shown.notes.append(f"{name} diverged: {ended.error}")
    if any(result.config.model.forgets for result in results.values()):
        shown.notes.append(
            "decay: each rotation is multiplied by a trained factor below 1, which makes W non-orthogonal"
        )
    if any(result.best_test for result in results.values()):
        shown.notes.append("validation and test use the weights of the best validation")
    if isinstance(task, Numbers) and len(by_model(results)) == len(results):  # else the summary over seeds has them
        for name, result in results.items():
            of = f" of {name}" * (len(results) > 1)
            shown.notes.append(f"test{of} {_units(task)}: {_in_words([chosen(result.summary())[1]])}")
    for name, loss in baselines(task).items():
        shown.notes.append(f"test loss of {name}: {loss:.4g} = {loss / first.trivial_loss:.3f} x trivial baseline")
    return shown


def _units(task: Numbers) -> str:
    return f"in the units of the target{'s' * (len(names_in(task.target)) > 1)}"


def _in_words(tests: Sequence[Mapping[str, float]]) -> str:
    """Return the means over seeds of all metrics except the loss, which the table already has."""
    names = [name for name in dict.fromkeys(name for test in tests for name in test) if name != "loss"]
    return ", ".join(f"{name} {mean_and_spread([test[name] for test in tests if name in test])}" for name in names)


def best_baselines_first(task: Task, found: Sequence[Baseline]) -> list[Baseline]:
    """Return plain baselines by their validation, the best first."""
    scores = {place: one.validation[task.metric] for place, one in enumerate(found)}
    return [found[place] for place in best_first(scores, task.higher_is_better)]


def plain_table(task: Task) -> tuple[Table, list[Baseline]] | None:
    """Return the measured plain baselines of a task and a table of them, or None if there are none.

    Raise MissingPackageError if scikit-learn is not installed.
    """
    found = plain_baselines(task)
    if not found:
        return None
    metrics = list(dict.fromkeys([task.metric, "loss"]))
    columns = [Column(f"{part} {metric}") for metric in metrics for part in ("validation", "test")]
    shown = Table("plain baselines, on the same parts", [Column("method", left=True), *columns])
    for one in best_baselines_first(task, found):
        cells = [
            _shown(task, scores[metric])
            if metric == task.metric
            else f"{scores[metric]:.4g}"
            if metric in scores
            else ""
            for metric in metrics
            for scores in (one.validation, one.test)
        ]
        shown.rows.append([one.name, *cells])
    return shown, found


def backtested(task: Task, folders: Mapping[str, Path]) -> Backtest | None:
    """Return the backtest of the networks in run directories, by name, with the weights of the best validation.

    None for a task that asks for none.
    """
    if not isinstance(task, Forecast) or task.backtest is None:
        return None
    return forecast.backtested(task, {name: load_model(folder, "chosen")[1] for name, folder in folders.items()})


def backtest_table(found: Backtest) -> Table:
    """Return a table of a backtest, the least loss first."""
    metrics = list(next(iter(found.errors.values())))
    count, series = len(found.origins[0].rows), len(found.origins)
    each = f", in each of {series} series" if series > 1 else ""
    shown = Table(
        f"backtest from {count} origin{'s' if count > 1 else ''} in the test part{each}",
        [Column("method", left=True), *map(Column, metrics)],
    )
    for name in best_first({name: errors["loss"] for name, errors in found.errors.items()}, False):
        errors = found.errors[name]
        shown.rows.append([name, *(f"{errors[metric]:.4g}" if metric in errors else "" for metric in metrics)])
    shown.notes += ["networks are trained once; ETS and theta are fitted at every origin", *found.notes]
    return shown


def plain_verdict(task: Task, results: Mapping[str, Mapping[str, Any]], found: Sequence[Baseline]) -> str:
    """Return whether a plain baseline beats the networks on validation, and whether the test agrees.

    The best of each is chosen by validation; one without numbers, or with NaN, is not compared, and if none is left, the
    text is empty. results: Contents of result.json, by the name of the network.
    """
    sign = 1 if task.higher_is_better else -1
    networks = _numbers(task, {name: chosen(result) for name, result in results.items()})
    others = _numbers(task, {one.name: (one.validation, one.test) for one in found})
    if not networks or not others:
        return ""
    network, plain = (
        best_first({name: seen for name, (seen, _) in known.items()}, task.higher_is_better)[0]
        for known in (networks, others)
    )
    own, its = networks[network], others[plain]
    better = sign * (its[0] - own[0]) > 0
    numbers = (
        f"test {task.metric} {_shown(task, its[1])} against {_shown(task, own[1])}, "
        f"validation {_shown(task, its[0])} against {_shown(task, own[0])}"
    )
    unmoved = results[network]["best"].get("step") == 0
    added = f" {network} is best before its first update: its training added nothing." if unmoved else ""
    on_test = 0.0 if math.isclose(its[1], own[1], rel_tol=_LEVEL) else sign * (its[1] - own[1])
    if better and on_test >= 0:
        advice = f"Use it, train longer, or change the options.{added}"
        return f"A plain baseline is better: {plain} beats {network} ({numbers}). {advice}"
    if better:
        return (
            f"Undecided: a plain baseline, {plain}, is better than {network} on validation, but not on the test "
            f"({numbers}, baseline first).{added}"
        )
    if on_test > 0:
        return (
            f"Undecided: {network} is at least as good as the best plain baseline, {plain}, on validation, but not on "
            f"the test ({numbers}, baseline first).{added}"
        )
    return f"{network} is at least as good as the best plain baseline, {plain} ({numbers}, baseline first).{added}"


def _numbers(
    task: Task, scored: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]]
) -> dict[str, tuple[float, float]]:
    """Return the task's metric on validation and test by name, of what has both as numbers."""
    pairs = {
        name: (seen.get(task.metric, math.nan), test.get(task.metric, math.nan))
        for name, (seen, test) in scored.items()
    }
    return {name: pair for name, pair in pairs.items() if not any(map(math.isnan, pair))}


def by_model(results: dict[str, RunResult]) -> dict[str, list[RunResult]]:
    """Return the results of all seeds, by model."""
    made: dict[str, list[RunResult]] = {}
    for result in results.values():
        made.setdefault(result.config.model.name, []).append(result)
    return made


def summary(results: dict[str, RunResult]) -> Table:
    """Return one row per model: means and standard deviations over seeds, with notes on what they do and do not show.

    The best model by validation comes first and is compared with the others on the test data, so the test does not
    choose it.
    """
    grouped = by_model(results)
    task = next(iter(results.values())).config.task
    metrics = list(dict.fromkeys(["loss", task.metric]))
    columns = [Column("model", left=True), Column("parameters"), Column("seeds"), Column(f"validation {task.metric}")]
    columns += [Column(f"test {metric}") for metric in metrics]
    columns += [Column("over baseline"), Column("updates/s")]
    shown = Table(f"{task.name}: {task.steps} steps, mean ± standard deviation over seeds", columns)
    found = Standings(task, {name: [chosen(result.summary()) for result in own] for name, own in grouped.items()})
    scores = [found.validation(), *map(found.test, metrics)]
    for name in found.best_first():
        own = grouped[name]
        speeds = [result.steps / result.update_seconds for result in own]
        ratios = [test["loss"] / result.trivial_loss for result, (_, test) in zip(own, found.runs[name])]
        shown.rows.append(
            [
                name,
                str(own[0].parameters),
                str(len(own)),
                *(mean_and_spread(column[name]) for column in scores),
                mean_and_spread(ratios),
                f"{statistics.fmean(speeds):.1f}",
            ]
        )
    shown.notes += found.verdicts()
    if isinstance(task, Numbers):
        for name, pairs in found.runs.items():
            shown.notes.append(f"test of {name} {_units(task)}: {_in_words([test for _, test in pairs])}")
    return shown


def _shown(task: Task, value: float) -> str:
    return metric_text(value, task.higher_is_better)


def curves(results: dict[str, RunResult], kind: str = "train") -> dict[str, Curve]:
    """Return (updates, losses) by model, from the records of this kind ("train" or "validation")."""
    made: dict[str, Curve] = {}
    for name, result in results.items():
        records = [record for record in result.records if record["kind"] == kind]
        made[name] = ([record["step"] for record in records], [record["loss"] for record in records])
    return made
