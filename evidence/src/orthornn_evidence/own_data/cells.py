"""A cell of the table: a network on a data set with a seed, trained as by the command `orthornn train`.

The options are passed to the function that the command calls, so the command's automatic choices (the recipe, updates,
patience, the window of a series with a period) apply here too. Each cell trains in a separate folder and resumes there.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from orthornn.learn.auto import AUTO, STATE, Search
from orthornn.learn.fields import spelled
from orthornn.learn.options import Options
from orthornn.learn.own_data import options_for
from orthornn.learn.recipes import NONE, with_recipe
from orthornn.learn.report.runs import chosen
from orthornn.learn.shown import Silent
from orthornn.learn.tasks import TASKS, Forecast, Task
from orthornn.learn.train import completed
from orthornn.learn.training import Run, RunResult, read_config, read_metrics, run_to_end
from orthornn.saved.run_files import CONFIG, METRICS

from .sets import SETS, Places

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "lstm": {"model": "lstm", "forget_bias": 1, "pool": "last"},
    "lstm, pooled": {"model": "lstm", "forget_bias": 1},
    "gru": {"model": "gru", "pool": "last"},
    "goru": {"model": "goru", "pool": "last"},
    "auto": {"model": AUTO, "minutes": 2},
    "strict": {"model": "blocks", "decay": False},
    "no recipe": {"recipe": NONE},
}
"""Options of `orthornn train` by the name of the row."""
FIRST = [("default", 0), ("lstm", 0), ("gru", 0), ("goru", 0), ("default", 1), ("default", 2), ("lstm", 1), ("lstm", 2)]
FIRST += [("auto", 0), ("gru", 1), ("gru", 2), ("goru", 1), ("goru", 2)]
"""The most important cells as (row, seed); the others follow by seed."""
_AUTO_SECONDS = 120.0


class Cell(NamedTuple):
    """A network on a set with a seed."""

    set: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.set}-{self.method.replace(', ', '-').replace(' ', '-')}-seed{self.seed}"


def in_order(sets: Sequence[str], methods: Sequence[str], seeds: int) -> list[Cell]:
    """Return the cells of these rows and columns, the most important first."""
    wanted = [(method, seed) for seed in range(seeds) for method in methods]
    pairs = [pair for pair in FIRST if pair in wanted]
    pairs += [pair for pair in wanted if pair not in pairs]
    return [Cell(name, method, seed) for method, seed in pairs for name in sets]


def asked(places: Places, name: str, **options: Any) -> Options:
    """Return the options of a run on a data set, including those that depend on the data."""
    task = SETS[name](places)
    given = {
        entry.name: getattr(task, entry.name)
        for entry in dataclasses.fields(task)  # type: ignore[arg-type]
        if entry.name != "data" and getattr(task, entry.name) != entry.default
    }
    more = {"ahead": 1} if isinstance(task, Forecast) else {}
    return options_for(task.data, {**given, **more, **options}, lambda line: None)  # type: ignore[attr-defined]


def options(places: Places, cell: Cell) -> tuple[Options, Task]:
    """Return all options of a cell, and its task."""
    found = asked(places, cell.set, seed=cell.seed, **OPTIONS[cell.method])
    return completed(with_recipe(found), Silent())


def trained(places: Places, cell: Cell, folder: Path) -> dict[str, Any]:
    """Train a cell in a folder, or resume it there; return its entry. Raise Interrupted after a signal."""
    found, task = options(places, cell)
    if found["model"] == AUTO:
        result = _searched(found, task, folder)
    else:
        config = found.config(task)
        if (folder / CONFIG).exists() and read_config(folder / CONFIG) != config:
            shutil.rmtree(folder)  # of another version
        result = run_to_end(Run.resume(folder) if (folder / CONFIG).exists() else Run(config, folder))
    validation, test = chosen(result.summary())
    return {
        **cell._asdict(),
        "task": result.config.task.name,
        "words": recipe_words(result.config.task.name, cell.method),
        "model": result.config.model.name,
        "parameters": result.parameters,
        "validation": validation,
        "test": test,
        "updates": result.steps,
        "limit": result.config.steps,
        "cpu_seconds": round(sum(_processor_seconds(folder)), 1),
    }


def recipe_words(task: str, method: str) -> str:
    """Return the options of a row together with the recipe for a task."""
    found = with_recipe(Options(TASKS[task], OPTIONS[method]))
    own = {name: value for name, value in found.given.items() if name != "recipe"}
    return spelled({**own, **found.chosen})


def is_current(entry: dict[str, Any]) -> bool:
    """Return whether a stored cell was trained with the current options and recipe."""
    task, method = entry.get("task"), entry["method"]
    return (
        isinstance(task, str)
        and task in TASKS
        and method in OPTIONS
        and entry.get("words") == recipe_words(task, method)
    )


def _searched(options: Options, task: Task, folder: Path) -> RunResult:
    if (folder / STATE).exists():
        search = Search.resume(folder)
    else:
        search = Search.begin(partial(options.config, task), options.of_model(task), options["minutes"], folder)
    return search.run_to_end()[1]


def _processor_seconds(folder: Path) -> Iterator[float]:
    for log in folder.rglob(METRICS):
        yield max((record["cpu_seconds"] for record in read_metrics(log)), default=0.0)


class Costs:
    """Estimates of processor seconds from stored entries. plain: Entries of data sets; runs: entries of cells."""

    def __init__(self, plain: dict[str, dict[str, Any]], runs: Sequence[dict[str, Any]]) -> None:
        self._plain = plain
        self._update: dict[tuple[str, str], float] = {}
        for entry in runs:
            self._update[entry["set"], entry["method"]] = entry["cpu_seconds"] / max(1, entry.get("updates", 0) or 200)

    def seconds(self, cell: Cell) -> float:
        """Return the largest time of a cell, the time of all its updates."""
        if OPTIONS[cell.method].get("model") == AUTO:
            return _AUTO_SECONDS
        sequences = self._plain.get(cell.set, {}).get("pieces", [0])[0]
        return max(600, sequences // 32) * self._per_update(cell)

    def _per_update(self, cell: Cell) -> float:
        own = self._update.get((cell.set, cell.method))
        if own is not None:
            return own
        both = [
            cost / self._update[name, "default"]
            for (name, method), cost in self._update.items()
            if method == cell.method and (name, "default") in self._update
        ]
        usual = sum(self._update.values()) / len(self._update) if self._update else 0.02
        return self._update.get((cell.set, "default"), usual) * (sum(both) / len(both) if both else 1.0)
