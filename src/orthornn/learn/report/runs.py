"""Runs read back from their directories, and what their configurations have in common."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..._html import table_html
from ..._shell_word import shell_word
from ..._warnings import warn
from ...errors import ArgumentError, DataError, OrthornnError
from ...saved.diverged import Diverged, read_diverged
from ...saved.run_files import DESCRIPTION, RESULT, read_result
from ..files.data_frames import without_folder
from ..files.left_out import is_left_out
from ..runs.changes import read_environment
from ..tasks import Task
from ..training import RunConfig, read_config, read_description, read_metrics
from .ranking import best_first
from .standings import Standings

# fields of tasks that change what a network is trained on or by, or what is told of it, and not what it is tested on
_OF_TRAINING = ("class_weights", "batching", "extra", "train_size", "backtest")
_DIGITS = 6  # of numbers that describe data; the last ones depend on the machine


@dataclass(frozen=True)
class SavedRun:
    """A run directory. result: what result.json holds; None if the run has not come to its end. description: what
    description.json holds. diverged: what diverged.json of a run among others holds."""

    path: Path
    config: RunConfig
    environment: dict[str, Any]
    records: list[dict[str, Any]]
    result: dict[str, Any] | None
    description: dict[str, Any] = field(default_factory=dict)
    diverged: Diverged | None = None

    @property
    def end(self) -> str:
        """The number of updates, of a run without a result with what became of it."""
        if self.result is not None:
            return f"{self.result['steps']:,}"
        if self.diverged is not None:
            return f"{self.diverged.step} of {self.config.steps}, diverged"
        return f"{self.records[-1]['step'] if self.records else 0} of {self.config.steps}, not finished"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of one kind."""
        return [record for record in self.records if record["kind"] == kind]

    def _repr_html_(self) -> str:
        config, result = self.config, self.result
        rows = [["model", config.model.name], ["task", config.task.name], ["seed", str(config.seed)]]
        if result is not None:
            rows.append(["parameters", f"{result['parameters']:,}"])
        rows.append(["updates", self.end])
        if result is not None:
            validation, test = chosen(result)
            rows += [[f"validation {name}", f"{value:.4g}"] for name, value in validation.items() if name != "step"]
            rows += [[f"test {name}", f"{value:.4g}"] for name, value in test.items()]
        return table_html(str(self.path), ["", ""], rows, left=[True, True])


def read_runs(paths: Iterable[Path]) -> list[SavedRun]:
    """Return the runs in these folders and in all folders below them; a run that cannot be read is left out, with a
    warning.

    So is a folder without a run, next to others. Raise ArgumentError if none contains a run, or a folder does not
    exist; raise DataError if none can be read.
    """
    found: dict[Path, SavedRun] = {}
    unreadable: list[str] = []
    without: list[Path] = []
    for path in paths:
        every = sorted(file.parent for file in path.rglob("config.json"))
        folders = [folder for folder in every if not is_left_out(folder.relative_to(path))]
        hidden = [folder for folder in every if folder not in folders]
        unreadable += [f"{folder} is hidden, or a folder of the system. Name it to read it." for folder in hidden]
        places = [folder for folder in folders if (folder / "metrics.jsonl").exists()]
        lacking = [folder for folder in folders if folder not in places and (folder / "description.json").exists()]
        unreadable += [f"{folder} has no metrics.jsonl. Restore the file." for folder in lacking]
        if not places and not lacking and not hidden:
            without.append(path)
        for place in places:
            try:
                found[place] = read_run(place)
            except OrthornnError as error:  # of one, which has no bearing on the others
                unreadable.append(str(error))
    wrong = [path for path in without if not path.is_dir()] or (without if not found and not unreadable else [])
    if wrong:
        raise ArgumentError(
            f"Expected a config.json of a run, but {wrong[0]} holds no run, nor does any folder below it."
        )
    if not found and unreadable:
        raise DataError(f"Expected a readable run, but got {len(unreadable)} that cannot be read. {unreadable[0]}")
    for path in without:
        warn(f"{path} is left out: it holds no run.")
    for reason in unreadable:
        warn(f"a run is left out: {reason}")
    return _with_shared_tasks(list(found.values()))


def _with_shared_tasks(runs: list[SavedRun]) -> list[SavedRun]:
    """Return the runs, equal tasks of which are one object, which reads their data only once."""
    known: list[Task] = []
    shared = []
    for run in runs:
        task = next((other for other in known if other == run.config.task), run.config.task)
        known.append(task)
        shared.append(dataclasses.replace(run, config=dataclasses.replace(run.config, task=task)))
    return shared


def differing(runs: Sequence[SavedRun]) -> dict[str, list[Any]]:
    """Return the dotted names whose values differ between the runs, and the value of each run (None if it has no
    such). Runs that have stored one DataFrame each have the same data.
    """
    configs = [{name: without_folder(value) for name, value in run.config.flat().items()} for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [config.get(name) for config in configs] for name in names}
    return {name: values for name, values in columns.items() if any(value != values[0] for value in values)}


_BOOKKEEPING = {  # what does not change the training
    "checkpoint_every",
    "checkpoint_seconds",
    "keep_checkpoints",
    "log_every",
    "orthogonality_bound",
}


def groups(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """Return the runs that differ only in their seed, under a label of what is theirs only: one of each seed.

    Several runs with one seed are not independent: only the one that has come furthest counts, with a warning.
    """
    differences = {
        name: values
        for name, values in differing(runs).items()
        if name != "seed" and name not in _BOOKKEEPING and not name.startswith("record.")
    }
    options = {name: values for name, values in differences.items() if not name.startswith("model.")}
    of_models = {
        name: values for name, values in differences.items() if name.startswith("model.") and name != "model.name"
    }
    made: dict[str, list[SavedRun]] = {}
    for index, run in enumerate(runs):
        words = [run.config.model.name]
        alike = [place for place, other in enumerate(runs) if other.config.model.name == run.config.model.name]
        own = {name: values for name, values in of_models.items() if len({repr(values[place]) for place in alike}) > 1}
        words += [_setting(name, values[index]) for name, values in {**own, **options}.items()]
        made.setdefault(" ".join(words), []).append(run)
    kept = {label: _one_of_each_seed(own) for label, own in made.items()}
    left = len(runs) - sum(map(len, kept.values()))
    if left:
        warn(
            f"{left} run(s) of a seed that another run has, too, count for nothing: they are the same training. To silence "
            f"this, move them away."
        )
    return kept


def _setting(name: str, value: Any) -> str:
    """Return one setting of a configuration, by its dotted name, as headings and legends have it."""
    *above, last = name.split(".")
    last = above[-1] if last == "name" else last
    return f"no {last.replace('_', ' ')}" if value is None else f"{last}={value}"


def _one_of_each_seed(runs: Sequence[SavedRun]) -> list[SavedRun]:
    """Return of each seed the first run among those that have come furthest."""
    kept: dict[int, SavedRun] = {}
    for run in runs:
        other = kept.get(run.config.seed)
        if other is None or _progress(run) > _progress(other):
            kept[run.config.seed] = run
    return list(kept.values())


def _progress(run: SavedRun) -> tuple[bool, int]:
    return run.result is not None, run.records[-1]["step"] if run.records else 0


def read_run(path: Path) -> SavedRun:
    """Return the run in this folder, finished or not."""
    config = read_config(path / "config.json")
    records, result = read_metrics(path / "metrics.jsonl"), read_result(path)
    if result is None and any(record["kind"] == "test" and record["step"] >= config.steps for record in records):
        warn(
            f"{path} has come to its end, but has no {RESULT}: it counts as unfinished. Restore the file, or write it again: "
            f"orthornn train --resume {shell_word(path)}."
        )
    return SavedRun(
        path,
        config,
        read_environment(path),
        records,
        result,
        read_description(path) if (path / DESCRIPTION).exists() else {},
        read_diverged(path),
    )


def chosen(result: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the validation and the test metrics by which a run is compared with others.

    They belong to the weights of the best validation, or if these were not tested, to the last weights. A task
    without validation data has no validation metrics.
    """
    if result["best_test"]:
        return result["best"], result["best_test"]
    return result["validation"], result["test"]


def standings(grouped: Mapping[str, Sequence[SavedRun]]) -> Standings:
    """Return the results of the finished runs of every group."""
    task = next(iter(grouped.values()))[0].config.task
    return Standings(task, {name: [chosen(run.result) for run in own if run.result] for name, own in grouped.items()})


def best_of(runs: Sequence[SavedRun]) -> SavedRun | None:
    """Return the finished run with the best validation by the task's metric, or test if a task has no validation
    data.
    """
    task, scores = runs[0].config.task, {}
    for place, run in enumerate(runs):
        validation, test = chosen(run.result) if run.result is not None else ({}, {})
        score = (validation or test).get(task.metric, math.nan)
        if not math.isnan(score):
            scores[place] = score
    return runs[best_first(scores, task.higher_is_better)[0]] if scores else None


def names_of(runs: Sequence[SavedRun]) -> list[str]:
    """Return a name for each run: the name of its folder, preceded by parent folders until the names differ."""
    parts = [run.path.parts for run in runs]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def by_data(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """Return the runs whose test figures can be compared, under the name of their task and what tells them apart.

    Those are runs of one task on the same data: the fields of the task agree, and so does what was read from the data
    (their scale, labels and vocabulary, as description.json and the trivial baseline tell them).
    """
    made: list[list[SavedRun]] = []
    for run in runs:
        for own in made:
            if _same_data(own[0], run):
                own.append(run)
                break
        else:
            made.append([run])
    named: dict[str, list[SavedRun]] = {}
    for own in made:
        rivals = [others[0].config.task for others in made if others[0].config.task.name == own[0].config.task.name]
        label = _told_apart(own[0].config.task, rivals)
        number = sum(name == label or name.startswith(f"{label} (data set ") for name in named)
        named[label if not number else f"{label} (data set {number + 1})"] = own
    return named


def _same_data(first: SavedRun, second: SavedRun) -> bool:
    if _fields(first.config.task) != _fields(second.config.task):
        return False
    if first.description and second.description and _rounded(first.description) != _rounded(second.description):
        return False
    losses = [run.result["trivial_loss"] for run in (first, second) if run.result is not None]
    return len(losses) < 2 or _rounded(losses[0]) == _rounded(losses[1])


def _fields(task: Task) -> dict[str, Any]:
    found = {entry.name: without_folder(getattr(task, entry.name)) for entry in dataclasses.fields(task)}  # type: ignore[arg-type]
    return {"task": task.name, **{name: value for name, value in found.items() if name not in _OF_TRAINING}}


def _told_apart(task: Task, rivals: Sequence[Task]) -> str:
    """Return the task's name, and the fields in which the tasks differ."""
    fields = [_fields(rival) for rival in rivals]
    apart = {name: value for name, value in _fields(task).items() if any(own[name] != value for own in fields)}
    return ", ".join([task.name, *(_setting(name, value) for name, value in apart.items())])


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
