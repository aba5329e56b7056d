"""Choose a model by successive halving within a time budget: `orthornn train DATA --model auto --minutes 10`.

A handful of candidates are trained in rounds. After each round the better half by validation continues; the test data
are not used. The winner is then retrained with all its updates and another seed, in the remaining time or in two fifths
of the time if that is more. The better of the two by validation is the result.

    OUT/auto.json            the budget and the rounds that are decided
    OUT/environment.json     what it began on: versions, processor, threads
    OUT/.lock                held by the process that searches
    OUT/candidates/NAME      the run directories of the candidates
    OUT/retrained            the run directory of the retrained winner

Each candidate is a run that can be resumed, and a round is decided by the stored results of its runs, so a search
resumes where it stopped. A candidate that diverges is excluded from the following rounds.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._checks import check_number
from .._folder import Folder
from .._shell_word import shell_word
from ..environment import environment
from ..errors import ArgumentError, DataError, Interrupted, NonFiniteError, OrthornnError
from ..saved.json_files import read_json, write_json
from ..saved.run_files import CONFIG, ENVIRONMENT, METRICS, SEARCH
from .report.ranking import best_first, metric_text
from .report.table import Column, Table
from .runs.directory import make_folder
from .runs.lock import Lock
from .runs.run import TURN_SECONDS
from .runs.signals import StopSignals
from .systems import MODELS, SIZES, Model
from .training import Run, RunConfig, RunResult, Trainer, read_metrics
from .training.guards import SMALLER_UPDATES
from .training.schedule import check_warmup

AUTO = "auto"
"""The model name that requests a search."""
STATE = SEARCH
_CANDIDATES, _RETRAINED = "candidates", "retrained"
_BUDGET = "Name a budget with minutes, --minutes, such as 5."
_SEARCH = 0.6  # share of the time

CANDIDATES: dict[str, dict[str, Any]] = {
    "strict": {"model": "blocks", "decay": False},
    "forgetting": {"model": "blocks", "decay": True},
    "forgetting-last": {"model": "blocks", "decay": True, "pool": "last"},
    "gated": {"model": "goru"},
    "lstm": {"model": "lstm", "forget_bias": 1.0},
    "gru": {"model": "gru"},
}
"""The candidates: strictly orthogonal blocks, blocks that forget, the same read only at the last step (for one answer
per sequence), a gated orthogonal network, and torch's LSTM and GRU.
"""


@dataclass
class Search:
    """A search in its folder, which it locks until it is finished or closed.

    seconds: The whole budget. rounds: The metric of every candidate by round, best first; candidates that diverged come
    last with an infinite metric. result: The run directory of the result in the folder, once it exists.
    """

    folder: Path
    seconds: float
    configs: dict[str, RunConfig]
    rounds: list[dict[str, float]] = field(default_factory=list)
    result: str | None = None
    _release: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)

    @classmethod
    def begin(
        cls, configure: Callable[[Model], RunConfig], options: Mapping[str, Any], minutes: float, folder: Path
    ) -> Search:
        """Create a search in a new folder.

        Args:
            configure: Function from a model to its run.
            options: Size and options for candidates whose model knows them. They take precedence over a candidate's
                options, except for its pool; candidates with another decay are left out.
            minutes: The budget, for candidates and for training the winner.
            folder: Folder for all files.

        Raises:
            ArgumentError: If the folder holds a search or a run, if no candidate has an option or a penalty has nothing
                to act on in one, or if the warmup is too long.
            LockedError: If another process has just begun a search there.
        """
        seconds = _seconds(minutes)
        _check_is_new(folder)
        configs, used = {}, {*SIZES}
        for name, chosen in CANDIDATES.items():
            kind = MODELS[chosen["model"]]
            known = (*SIZES, *kind.options())
            used |= {*known}
            given = {key: value for key, value in options.items() if key in known}
            own = {key: value for key, value in chosen.items() if key != "model"}
            if "decay" in given and given["decay"] != own["decay"]:
                continue
            at = {"pool": own["pool"]} if "pool" in own else {}
            config = configure(kind(**{**own, **given, **at}))
            if "pool" not in own or config.task.output == "last":
                check_warmup(config)
                configs[name] = config
        unknown = [name for name in options if name not in used]
        if unknown:
            raise ArgumentError(
                f"Expected options that a candidate has, but got {', '.join(unknown)}. Leave them out; the candidates are "
                f"{', '.join(CANDIDATES)}."
            )
        for config in configs.values():
            Trainer(config)  # raises for a candidate that the configuration does not fit, before any is trained
        task = next(iter(configs.values())).task
        if next(iter(task.problem().validation(1)), None) is None:
            raise ArgumentError(
                f"Expected a task with validation data, by which candidates are compared, but got {task.name} without. Hold "
                f"some back, or name a model."
            )
        search = cls(folder, seconds, configs)
        search._lock(make_folder(folder))
        try:
            _check_is_new(folder)  # another process may have begun and ended one since
            write_json(folder / ENVIRONMENT, environment(), summed=True)
            search._store()
        except BaseException:
            search.close()
            raise
        return search

    @classmethod
    def resume(cls, folder: Path, minutes: float | None = None) -> Search:
        """Resume the search in this folder.

        Args:
            folder: Folder in which the search was created.
            minutes: A new budget; decided rounds are not repeated. Default: the previous budget.

        Raises:
            ArgumentError: If minutes is not a positive, finite number.
            DataError: If auto.json is damaged.
            LockedError: If another process is executing it.
        """
        budget = None if minutes is None else _seconds(minutes)
        search = cls(folder, 0.0, {})
        if folder.is_dir():
            search._lock(Folder.open(folder))
        try:
            search._read(budget)
            search._store()
        except BaseException:
            search.close()
            raise
        return search

    def _read(self, budget: float | None) -> None:
        """Load auto.json, and apply a new budget if there is one. Raise DataError if the file is damaged."""
        path = self.folder / STATE
        plain = read_json(path, "Objects")
        try:
            configs = {str(name): RunConfig.read(config) for name, config in plain["configs"].items()}
            rounds = [{str(name): float(value) for name, value in own.items()} for own in plain["rounds"]]
            seconds = check_number("seconds", float(plain["seconds"]), 0)
            result = None if plain.get("result") is None else str(plain["result"])
        except OrthornnError as error:
            raise DataError(f"{path} is damaged: {error}") from error
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise DataError(f"{path} is damaged: {error!r}. Restore the file, or begin a new search.") from error
        strange = [name for name in [*configs, *(name for own in rounds for name in own)] if name not in configs]
        if strange or not configs or any(name != Path(name).name or name == ".." for name in configs):
            raise DataError(f"{path} is damaged: it names candidates that it does not have. Begin a new search.")
        self.seconds = seconds if budget is None else budget
        self.configs, self.rounds, self.result = configs, rounds, result
        if not self.alive:
            raise DataError(f"{path} is damaged: no candidate is left. Restore the file, or begin a new search.")

    def _lock(self, folder: Folder) -> None:
        try:
            lock = Lock(folder)
        except BaseException:
            folder.close()
            raise
        self._release = weakref.finalize(self, lock.release)

    def close(self) -> None:
        """Allow other processes to execute the search."""
        self._release()

    def run_to_end(self, on_progress: Callable[[str], None] = lambda line: None) -> tuple[str, RunResult, Path]:
        """Search, retrain the winner, and return (its name, its result, its run directory).

        on_progress: Function called with a line after each round.

        Raises:
            Interrupted: If Ctrl-C or SIGTERM stopped it. Its state is saved.
            NonFiniteError: If every candidate diverges.
        """
        try:
            return self._search(on_progress)
        finally:
            self.close()

    def _search(self, on_progress: Callable[[str], None]) -> tuple[str, RunResult, Path]:
        for own in (self.folder / _CANDIDATES, *map(self._path, self.configs), self.retrained):
            if own.is_symlink():  # nothing is written where it leads
                raise DataError(
                    f"Expected {own} to be a folder of the search itself, but got a symbolic link. Replace it by the folder "
                    f"that it points to."
                )
        runs: dict[str, Run] = {}
        try:
            with StopSignals() as signals:
                while len(self.alive) > 1 or not self.rounds:
                    metrics = self._round(runs, signals, on_progress)
                    self.rounds.append(metrics)
                    self._store()
                    for name in [name for name in runs if name not in self.alive]:
                        runs.pop(name).close()
                    listed = ", ".join(f"{name} {self._shown(value)}" for name, value in metrics.items())
                    on_progress(f"round {len(self.rounds)}, validation {self.metric}: {listed}")
                (winner,) = self.alive
                first = self._open(winner, runs)
                left = self.seconds - sum(self._spent(name, runs) for name in self.configs)
                second = self._retrain(winner, max(left, (1 - _SEARCH) * self.seconds))
                runs[_RETRAINED] = second
                finishing = {self._path(winner): first, self.retrained: second}
                try:
                    self._advance(second, math.inf, signals)
                except NonFiniteError as error:
                    on_progress(f"{winner}, trained again, is left out: {error}")
                    finishing.pop(self.retrained)
                results = self._finished(finishing, signals)
        finally:
            for run in runs.values():
                run.close()
        validation = {path: result.best.get(self.metric, math.nan) for path, result in results.items()}
        path = best_first(validation, self.higher_is_better)[0]
        self.result = path.relative_to(self.folder).as_posix()
        self._store()
        return winner, results[path], path

    @property
    def alive(self) -> list[str]:
        """The candidates of the next round."""
        if not self.rounds:
            return list(self.configs)
        last = self.rounds[-1]
        return [name for name in list(last)[: max(1, len(last) // 2)] if math.isfinite(last[name])]

    @property
    def metric(self) -> str:
        """Metric by which candidates are compared."""
        return next(iter(self.configs.values())).task.metric

    @property
    def higher_is_better(self) -> bool:
        """Direction of improvement of the metric."""
        return next(iter(self.configs.values())).task.higher_is_better

    @property
    def retrained(self) -> Path:
        """Run directory of the retrained winner."""
        return self.folder / _RETRAINED

    def table(self) -> Table:
        """Return one row per candidate: its model, and its validation metric after each of its rounds."""
        columns = [Column("candidate", left=True), Column("model", left=True)]
        shown = Table(
            "candidates, by validation", [*columns, *(Column(f"round {k + 1}") for k in range(len(self.rounds)))]
        )
        depth = {name: sum(name in own for own in self.rounds) for name in self.configs}
        for name in sorted(
            self.configs, key=lambda name: (-depth[name], list(self.rounds[depth[name] - 1]).index(name))
        ):
            cells = [self._shown(own[name]) if name in own else "" for own in self.rounds]
            shown.rows.append([name, self.configs[name].model.name, *cells])
        return shown

    def _shown(self, value: float) -> str:
        if not math.isfinite(value):
            return "diverged"
        return metric_text(value, self.higher_is_better)

    def _path(self, name: str) -> Path:
        return self.folder / _CANDIDATES / name

    def _store(self) -> None:
        configs = {name: config.to_dict() for name, config in self.configs.items()}
        content = {"seconds": self.seconds, "rounds": self.rounds, "configs": configs}
        content |= {} if self.result is None else {"result": self.result}
        write_json(self.folder / STATE, content, summed=True)

    def _open(self, name: str, runs: dict[str, Run]) -> Run:
        if name not in runs:
            path = self._path(name)
            runs[name] = Run.resume(path) if (path / CONFIG).exists() else Run(self.configs[name], path)
        return runs[name]

    def _round(
        self, runs: dict[str, Run], signals: StopSignals, on_progress: Callable[[str], None]
    ) -> dict[str, float]:
        """Train every remaining candidate to the end of its share, and return the metrics, best first.

        Raises:
            NonFiniteError: If all of them diverge.
        """
        sizes = [len(self.configs)]
        while sizes[-1] > 1:
            sizes.append(sizes[-1] // 2)
        counts = sizes[:-1] or sizes
        share = self.seconds * _SEARCH / len(counts)
        until = sum(share / count for count in counts[: len(self.rounds) + 1])
        found: dict[str, float] = {}
        worst = -math.inf if self.higher_is_better else math.inf
        failed: NonFiniteError | None = None
        for name in self.alive:
            run = self._open(name, runs)
            try:
                self._advance(run, until, signals)
                found[name] = self._metric(run)
                run.checkpoint()
            except NonFiniteError as error:
                found[name], failed = worst, failed or error
                on_progress(f"{name} is left out: {error}")
        if failed is not None and not any(map(math.isfinite, found.values())):
            raise NonFiniteError(f"Expected a candidate that can be trained, but all of them diverge. {failed}")
        return {name: found[name] for name in best_first(found, self.higher_is_better)}

    def _metric(self, run: Run) -> float:
        """Return the metric of the best validation, or validate now if there was none. Raise NonFiniteError if it is
        infinite.
        """
        found = run.best
        if found is None:  # not one validation yet
            found = run.trainer.evaluate(run.config.task.problem().validation(run.config.evaluation_batch))
        if not math.isfinite(found[self.metric]):
            raise NonFiniteError(
                f"Expected a finite validation {self.metric}, but got {found[self.metric]} after update "
                f"{run.trainer.step}. {SMALLER_UPDATES}"
            )
        return found[self.metric]

    def _advance(self, run: Run, until: float, signals: StopSignals) -> None:
        """Run updates until the run has taken this many seconds; raise Interrupted after a signal."""
        while not run.done and run.seconds < until:
            run.advance(min(TURN_SECONDS, until - run.seconds))
            if signals.received is not None:
                run.checkpoint()
                raise self._interruption(signals.received)

    def _finished(self, runs: dict[Path, Run], signals: StopSignals) -> dict[Path, RunResult]:
        """Finish these runs. A signal stops this immediately, and a resumed search repeats it."""
        try:
            signals.at_once = True
            if signals.received is not None:
                raise KeyboardInterrupt
            return {path: run.finish() for path, run in runs.items()}
        except KeyboardInterrupt:
            raise self._interruption(signals.received or signal.SIGINT) from None

    def _interruption(self, number: int) -> Interrupted:
        return Interrupted(
            f"{signal.Signals(number).name} ended the search; its state is saved. Resume it with: orthornn train --resume "
            f"{shell_word(self.folder)}",
            number,
        )

    def _spent(self, name: str, runs: dict[str, Run]) -> float:
        """Return the seconds of a candidate, up to the end of its rounds."""
        if name in runs:
            return runs[name].seconds
        log = self._path(name) / METRICS
        records = read_metrics(log) if log.exists() else []
        return float(records[-1]["seconds"]) if records else 0.0

    def _retrain(self, winner: str, seconds: float) -> Run:
        """Return the run that retrains the winner for this long; a resumed run may have a new budget."""
        if (self.retrained / CONFIG).exists():
            return Run.resume(self.retrained, max_seconds=seconds)
        config = self.configs[winner]
        return Run(dataclasses.replace(config, seed=config.seed + 1, max_seconds=seconds), self.retrained)


def _check_is_new(folder: Path) -> None:
    """Raise ArgumentError if a folder holds a search or a run."""
    if (folder / STATE).exists() or (folder / CONFIG).exists():
        raise ArgumentError(
            f"Expected a new folder, but got {folder}, which holds a run. Name another with out, --out."
        )


def _seconds(minutes: float) -> float:
    """Return a budget in seconds. Raise ArgumentError if it is not positive and finite."""
    if check_number("minutes", minutes, 0, advice=_BUDGET) == 0:
        raise ArgumentError(f"Expected minutes to be positive, but got 0. {_BUDGET}")
    return 60 * minutes
