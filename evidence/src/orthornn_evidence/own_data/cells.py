"""A cell of the table: a network on a set with a seed, trained as the command `orthornn train` trains it.

The task's options become words of the command, so that what the command chooses by itself (the recipe, updates, patience, the
window of a series with a period) is chosen here too. A cell trains in a folder of its own and resumes there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orthornn.cli.arguments import own_data, read_options
from orthornn.cli.recipes import expand, leave_room_for_network, limit_warmup
from orthornn.cli.train import TrainArguments
from orthornn.learn.auto import STATE, Search
from orthornn.learn.recipes import NONE
from orthornn.learn.report.runs import chosen
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import TASKS, Forecast, Task
from orthornn.learn.training import Run, RunResult, carry_out, read_config, read_metrics
from orthornn.learn.training.directory import CONFIG, METRICS

from .sets import SETS, Places

OPTIONS = {
    "default": "",
    "lstm": "--model lstm --forget-bias 1 --pool last",
    "lstm, pooled": "--model lstm --forget-bias 1",
    "gru": "--model gru --pool last",
    "goru": "--model goru --pool last",
    "auto": "--model auto --minutes 2",
    "strict": "--model blocks --decay False",
    "no recipe": f"--recipe {NONE}",
}
"""Options of `orthornn train` by the name of the row."""
FIRST = [("default", 0), ("lstm", 0), ("gru", 0), ("goru", 0), ("default", 1), ("default", 2), ("lstm", 1), ("lstm", 2)]
FIRST += [("auto", 0), ("gru", 1), ("gru", 2), ("goru", 1), ("goru", 2)]
"""What is worth most, as (row, seed); the others follow by seed."""
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
    """Return the cells of these rows and columns, what is worth most first."""
    wanted = [(method, seed) for seed in range(seeds) for method in methods]
    pairs = [pair for pair in FIRST if pair in wanted]
    pairs += [pair for pair in wanted if pair not in pairs]
    return [Cell(name, method, seed) for method, seed in pairs for name in sets]


def command(places: Places, name: str) -> list[str]:
    """Return the words of `orthornn train` for a set, with what the command adds to them."""
    task = SETS[name](places)
    words = [str(task.data)]  # type: ignore[attr-defined]
    for entry in dataclasses.fields(task):  # type: ignore[arg-type]
        value = getattr(task, entry.name)
        if entry.name != "data" and value != entry.default:
            words += [f"--{entry.name.replace('_', '-')}", str(value)]
    words += ["--ahead", "1"] if isinstance(task, Forecast) else []
    with contextlib.redirect_stdout(io.StringIO()):
        return list(own_data(words))


def arguments(places: Places, cell: Cell) -> TrainArguments[Task]:
    """Return what the command would read."""
    typed = [*command(places, cell.set), *OPTIONS[cell.method].split(), "--seed", str(cell.seed)]
    words = expand(typed)
    kind: Any = TrainArguments[TASKS[words[0]]]  # type: ignore[valid-type]
    read = limit_warmup(read_options(kind, "orthornn train", "", words[1:]), typed, announced=False)
    return leave_room_for_network(read, typed, announced=False)


def trained(places: Places, cell: Cell, folder: Path) -> dict[str, Any]:
    """Train a cell in a folder, or resume it there; return what is stored of it. Interrupted after a signal."""
    asked = arguments(places, cell)
    if OPTIONS[cell.method].startswith("--model auto"):
        result = _searched(asked, folder)
    else:
        config = asked.config(model_named(asked.model, **asked.given_model_options()), None)
        if (folder / CONFIG).exists() and read_config(folder / CONFIG) != config:
            shutil.rmtree(folder)  # of another version
        result = carry_out(Run.resume(folder) if (folder / CONFIG).exists() else Run(config, folder))
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
    """Return the options of a row with those of the recipe for a task."""
    return " ".join(expand([task, *OPTIONS[method].split()])[1:])


def is_current(entry: dict[str, Any]) -> bool:
    """Return whether a stored cell was trained with the options and the recipe of today."""
    task, method = entry.get("task"), entry["method"]
    return (
        isinstance(task, str)
        and task in TASKS
        and method in OPTIONS
        and entry.get("words") == recipe_words(task, method)
    )


def _searched(asked: TrainArguments[Task], folder: Path) -> RunResult:
    if (folder / STATE).exists():
        search = Search.resume(folder)
    else:
        minutes = 1.0 if asked.minutes is None else asked.minutes
        search = Search.begin(lambda model: asked.config(model, None), asked.given_model_options(), minutes, folder)
    return search.carry_out()[1]


def _processor_seconds(folder: Path) -> Iterator[float]:
    for log in folder.rglob(METRICS):
        yield max((record["cpu_seconds"] for record in read_metrics(log)), default=0.0)


class Costs:
    """Estimates of processor seconds by what is stored. plain: The entries of sets; runs: those of cells."""

    def __init__(self, plain: dict[str, dict[str, Any]], runs: Sequence[dict[str, Any]]) -> None:
        self._plain = plain
        self._update: dict[tuple[str, str], float] = {}
        for entry in runs:
            self._update[entry["set"], entry["method"]] = entry["cpu_seconds"] / max(1, entry.get("updates", 0) or 200)

    def seconds(self, cell: Cell) -> float:
        """Return what a cell takes at most: all its updates."""
        if OPTIONS[cell.method].startswith("--model auto"):
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
