"""The results of a plan's runs: rows, conclusions and a figure.

There are two selections. validation-selected: the test metric at the best validation, called "reproduced" if the task has
validation data. test-selected: the best test metric of the run, which some papers report; only for comparison. Without
validation data, "reproduced" is the test metric after the last update.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orthornn.learn.report.figures import Curve
from orthornn.learn.report.runs import SavedRun
from orthornn.learn.tasks import Task
from orthornn.learn.training import RunConfig

Selection = Literal["validation", "test", "last", "lowest", "measured", "computed"]


@dataclass(frozen=True)
class Trained:
    """One run of a plan, finished or not."""

    system: str
    seed: int
    saved: SavedRun

    @property
    def task(self) -> Task:
        """Its task."""
        return self.saved.config.task

    @property
    def finished(self) -> bool:
        """All updates are made."""
        return self.saved.result is not None and self.saved.result["steps"] >= self.saved.config.steps

    @property
    def steps(self) -> int:
        """Updates that are recorded."""
        return max((record["step"] for record in self.saved.records), default=0)

    @property
    def sequences(self) -> int:
        """Training sequences so far, counting repetitions."""
        return self.steps * self.saved.config.batch_size

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return max((record.get("seconds", 0.0) for record in self.saved.records), default=0.0)

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, of all threads."""
        return max((record.get("cpu_seconds", 0.0) for record in self.saved.records), default=0.0)

    @property
    def place(self) -> str:
        """The GPU on which it was trained, in words; "" for a CPU. A run resumed elsewhere has the device of its
        configuration.
        """
        began, ends = self.saved.environment.get("gpu"), self.saved.config.device != "cpu"
        if began is None:
            return "resumed on a GPU" if ends else ""
        return f"on {began}" if ends else f"begun on {began}"

    @property
    def minutes(self) -> float:
        """Processor time so far in minutes; on a GPU, wall time."""
        return (self.seconds if self.place.startswith("on ") else self.cpu_seconds) / 60

    def curve(self, kind: str, metric: str = "loss", *, epochs: bool = False) -> Curve:
        """Return (updates or epochs, values) of the records of this kind."""
        records = self.saved.of_kind(kind)
        unit = (self.task.steps_per_epoch(self.saved.config.batch_size) or 1) if epochs else 1
        return [record["step"] / unit for record in records], [record[metric] for record in records]

    def selected(self, metric: str | None = None) -> dict[str, dict[str, float] | None]:
        """Return "validation", "test" and "last", each {"step", "validation", "test"} or None.

        metric: default the task's metric; another metric is read at the step that the task's metric selects.
        """
        task, metric = self.task, metric or self.task.metric
        tests = {record["step"]: record for record in self.saved.of_kind("test")}
        validations = {record["step"]: record for record in self.saved.of_kind("validation")}
        best = max if task.higher_is_better else min

        def at(step: int) -> dict[str, float]:
            found = {"validation": validations.get(step), "test": tests.get(step)}
            return {"step": step, **{part: record[metric] for part, record in found.items() if record is not None}}

        def chosen(records: Mapping[int, Any]) -> dict[str, float] | None:
            return at(best(records, key=lambda step: records[step][task.metric])) if records else None

        last = max([*tests, *validations], default=None)
        return {
            "validation": chosen(validations),
            "test": chosen(tests),
            "last": None if last is None else at(last),
        }


@dataclass(frozen=True)
class Runs:
    """The runs of a plan. wanted: all runs; there: the runs that have begun.

    full: by system, the number of training sequences of a run of the full budget.
    """

    wanted: Mapping[tuple[str, int], RunConfig]
    there: Sequence[Trained]
    full: Mapping[str, int] = field(default_factory=dict)

    def share(self, system: str) -> float | None:
        """Return the average fraction of the full budget's training that a system's runs have had; None without one."""
        runs, full = self.of(system), self.full.get(system)
        return statistics.fmean(run.sequences for run in runs) / full if runs and full else None

    def of(self, system: str) -> list[Trained]:
        """Return the runs of a system that have records."""
        return [run for run in self.there if run.system == system and run.saved.records]

    @property
    def systems(self) -> list[str]:
        """The systems of the plan."""
        return list(dict.fromkeys(system for system, _ in self.wanted))

    def missing(self, elsewhere: Collection[tuple[str, int]] = ()) -> list[str]:
        """Return the unfinished runs, in words; without those that were finished elsewhere."""
        found = {(run.system, run.seed): run for run in self.there}
        words, absent = [], []
        for (system, seed), config in self.wanted.items():
            run = found.get((system, seed))
            if (system, seed) in elsewhere:
                continue
            if run is None:
                absent.append(f"{system}-{seed}")
            elif not run.finished or run.steps < config.steps:
                words.append(f"{system}, seed {seed}: {run.steps} of {config.steps} updates")
        if absent:
            words.append(f"not begun, {len(absent)} of {len(self.wanted)} runs: {', '.join(absent)}")
        return words

    def rows(
        self, metric: str | None = None, *, form: str = "{:.4g}", names: Mapping[str, str] | None = None
    ) -> list[Row]:
        """Return two rows for each system that has begun: "SYSTEM, validation METRIC" and "SYSTEM, test METRIC".

        names: words for systems. Default: their names.
        """
        made = []
        for system in self.systems:
            runs = self.of(system)
            if not runs:
                continue
            called = metric or runs[0].task.metric
            found = [run.selected(metric) for run in runs]
            minutes = statistics.fmean(run.minutes for run in runs)
            for part in ("validation", "test"):
                selection: Selection = "validation" if any(one["validation"] for one in found) else "last"
                values = _values(found, selection, part)
                if not values:
                    continue
                best = _values(found, "test", part)
                made.append(
                    Row.of_seeds(
                        f"{(names or {}).get(system, system)}, {part} {called}",
                        values,
                        selection=selection,
                        test_selected=statistics.fmean(best) if part == "test" and best else None,
                        minutes=minutes,
                        share=self.share(system),
                        form=form,
                        note=_note(runs, "unfinished"),
                    )
                )
        return made

    def rows_at_end(
        self, metric: str | None = None, *, form: str = "{:.4g}", names: Mapping[str, str] | None = None
    ) -> list[Row]:
        """Return for each system that has begun the row "SYSTEM, test METRIC" after the last update, or the validation
        metric so far if a run is unfinished. This is for generated data, where every batch is new and nothing is selected.
        """
        made = []
        for system in self.systems:
            runs = self.of(system)
            found = [run.selected(metric)["last"] for run in runs]
            values = [end.get("test", end.get("validation")) for end in found if end is not None]
            known = [value for value in values if value is not None]
            if not known:
                continue
            steps = max(run.steps for run in runs)
            made.append(
                Row.of_seeds(
                    f"{(names or {}).get(system, system)}, test {metric or runs[0].task.metric}",
                    known,
                    selection="last",
                    minutes=statistics.fmean(run.minutes for run in runs),
                    share=self.share(system),
                    form=form,
                    note=_note(runs, f"unfinished: held-out data after at most {steps} updates"),
                )
            )
        return made


def _note(runs: Sequence[Trained], unfinished: str) -> str:
    """Return the note of a row: whether a run is unfinished, and the GPUs used for training."""
    places = dict.fromkeys(run.place for run in runs if run.place)
    return "; ".join([*([] if all(run.finished for run in runs) else [unfinished]), *places])


def _values(found: Sequence[Mapping[str, Any]], selection: str, part: str) -> list[float]:
    return [one[selection][part] for one in found if one[selection] is not None and part in one[selection]]


@dataclass(frozen=True)
class Row:
    """A line of a results table.

    what: system and quantity, as in Published. value: the mean over seeds; spread: their standard deviation.
    test_selected: the mean of each run's best test value. minutes: mean of Trained.minutes. share: see Runs.share.
    """

    what: str
    value: float | None
    spread: float | None = None
    seeds: int = 1
    selection: Selection = "measured"
    test_selected: float | None = None
    minutes: float | None = None
    share: float | None = None
    form: str = "{:.4g}"
    note: str = ""

    @classmethod
    def of_seeds(cls, what: str, values: Sequence[float], **options: Any) -> Row:
        """Return the row of the mean over seeds, with their standard deviation if there are several."""
        spread = statistics.stdev(values) if len(values) > 1 else None
        return cls(what, statistics.fmean(values), spread, len(values), **options)


@dataclass(frozen=True)
class ResultTable:
    """The results that are reported.

    conclusions: sentences about the rows, including contradictions to the paper.
    numbers: other results to store in the JSON.
    draw: fills a matplotlib figure of `size` inches; None for no figure.
    """

    rows: Sequence[Row]
    conclusions: Sequence[str] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Any], None] | None = None
    size: tuple[float, float] = (6.4, 4.2)
