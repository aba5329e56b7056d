"""Options of a training: values by name, which determine the configuration of its run.

Every option is a field with a docstring: of a task, of the models, of RunConfig and its parts, or of a command
(fields.py). Values are Python values or text, so the command and the keywords of `orthornn.train` accept the same.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from .._checks import check_integer, check_number
from ..errors import ArgumentError
from ..export.c import Numbers
from .fields import Option, hints_of, options_of
from .files.columns import Table
from .systems import Model, model_named
from .systems import options as model_options
from .tasks import Task
from .tasks.table_task import TableTask
from .training import RunConfig

DATA = ("data", "validation_data", "test_data")
"""Options that accept tables in memory."""
_TABLE_STEPS = 600
_MOST_EPOCHS = 1e9
_OFTEN = 50  # updates between two validations at least, in a long run with short epochs


@dataclass(frozen=True)
class RunOptions:
    """Options of every command that trains, in addition to those of the task, the model and the run configuration."""

    epochs: float | None = None
    """Number of epochs, instead of --steps; for tasks with a fixed training set."""
    threads: int | None = None
    """Threads of torch. Default: one per core that this process may use, or one for a small network that is computed
    step by step, such as an LSTM."""
    out: Path | None = None
    """Folder for the results. Default: a new one in runs/."""


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """The options of one training."""

    model: str = "ornn-rotations"
    """Name of the model; `orthornn train --help` lists them. auto tries several and trains the best by validation."""
    minutes: float | None = None
    """With --model auto: minutes for the whole search. Default: 10."""
    tensorboard: bool = False
    """Also write the records for TensorBoard, to the folder tensorboard of the run directory."""
    for_c: Numbers | None = field(default=None, metadata={"alone": "float32"})
    """Before the training, print what the network costs in C (`orthornn export RUN --c`) with these numbers, float32 if none
    are named, or refuse one without a C form."""
    recipe: str | None = None
    """Named preset of options: linear, linear-deep, blocks, blocks-decay, blocks-first (docs/how_to/stacked_layers.md);
    table, numbers, forecast for your own data; or none. Options that you give override it. Default: the preset of the
    task for your own data, otherwise none."""


def groups(task: type[Task] | None, command: type | None = TrainOptions) -> dict[str, list[Option]]:
    """Return the options by owner: the task, the model, the parts of a run, the run itself.

    Args:
        task: None for no options of a task.
        command: Dataclass with the additional options of the command; None for the options of the task only.
    """
    found: dict[str, list[Option]] = {}
    if task is not None:
        found["task"] = list(options_of(task))
    if command is None:
        return found
    own = list(options_of(command))
    found["model"] = list(model_options().values())
    for option in _of_config(RunConfig):
        if option.name not in {one.name for one in own}:
            found.setdefault(option.place[0] if len(option.place) > 1 else "run", []).append(option)
    found["run"] += own
    return found


def named(task: type[Task] | None, command: type | None = TrainOptions) -> dict[str, Option]:
    """Return the same options by name."""
    return {option.name: option for options in groups(task, command).values() for option in options}


@functools.cache  # reading source takes milliseconds
def _of_config(kind: type[RunConfig]) -> tuple[Option, ...]:
    return tuple(option for option in options_of(kind) if option.place[0] not in ("task", "model"))


@dataclass(frozen=True)
class Options:
    """The options of a training.

    Args:
        task: What to train on: a task class, whose fields are also options, or a task instance.
        given: Values given by the user, by name.
        chosen: Values for options that are not given, such as those of a recipe.
        command: Dataclass with the additional options of the command.
        prog: Name of the command in errors.
        file: What is in the file of a table, if that was read before by these options.

    Attributes:
        known: Every option by name.
        values: Values that were given or chosen, converted to the types of their options.

    Raises:
        ArgumentError: If a name is not an option, or a value is invalid for its option.
    """

    task: type[Task] | Task
    given: Mapping[str, Any]
    chosen: Mapping[str, Any] = field(default_factory=dict)
    command: type | None = TrainOptions
    prog: str = "orthornn train"
    file: Table | None = None
    known: dict[str, Option] = field(init=False, repr=False, compare=False)
    values: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.given.items() if value is not None}
        known = named(None if isinstance(self.task, Task) else self.task, self.command)
        prog = f"{self.prog} {self.task.name}"
        check_names(given, known, prog)
        vars(self).update(given=given, known=known, values=read_values({**self.chosen, **given}, known, prog))

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option, or its default."""
        return self.values.get(name, self.known[name].default)

    def choosing(self, **values: Any) -> Options:
        """Return the same options with these chosen values instead of the previous ones."""
        return dataclasses.replace(self, chosen={**self.chosen, **values})

    def make_task(self) -> Task:
        """Return the task, built with its options."""
        if isinstance(self.task, Task):
            return self.task
        names = {entry.name for entry in dataclasses.fields(self.task)}  # type: ignore[arg-type]
        made = self.task(**{name: value for name, value in self.values.items() if name in names})
        if isinstance(made, TableTask) and self.file is not None:
            made.table(self.file)
        return made

    def of_model(self, task: Task) -> dict[str, Any]:
        """Return given or chosen size and options of the networks. Raise ArgumentError for a pool without effect."""
        found = {name: self.values[name] for name in model_options() if self.values.get(name) is not None}
        if found.get("pool", "last") != "last" and task.output == "all":
            raise ArgumentError(
                f"Expected --pool only for one prediction per sequence, but got --pool {found['pool']} for {task.name}, "
                f"which predicts at every step. Leave it out."
            )
        return found

    def config(self, task: Task, model: Model | None = None) -> RunConfig:
        """Return the run that these options describe.

        Args:
            task: The task that they make.
            model: Replaces the model named by the options.
        """
        steps, batch_size = self.steps(task), self.batch_size(task)
        computed = {"steps": steps, "batch_size": batch_size}
        computed["validate_every"] = self._validate_every(steps, task.steps_per_epoch(batch_size))
        values, parts = self.values | computed, hints_of(RunConfig)
        found: dict[str, dict[str, Any]] = {}
        for option in _of_config(RunConfig):
            if option.name in values and self.known[option.name].place == option.place:
                *group, name = option.place
                found.setdefault("".join(group), {})[name] = values[option.name]
        own = found.pop("", {})
        if model is None:
            model = model_named(self["model"], **self.of_model(task))
        return RunConfig(task, model, **own, **{name: parts[name](**part) for name, part in found.items()})

    def batch_size(self, task: Task) -> int:
        """Return the sequences per update."""
        own = task.batch_size
        advice = f"Pass another, or leave it out for the {own} of {task.name}."
        return check_integer("batch_size, --batch-size,", self.values.get("batch_size", own), 1, advice=advice)

    def steps(self, task: Task) -> int:
        """Return the number of updates."""
        steps, epochs = self.values.get("steps"), self["epochs"]
        if steps is not None and epochs is not None:
            raise ArgumentError(f"Expected --steps or --epochs, but got both, {steps} and {epochs:g}. Pass one.")
        if steps is not None:
            return steps
        if epochs is not None:
            return updates_of_epochs(task, self.batch_size(task), epochs)
        epoch = task.steps_per_epoch(self.batch_size(task))
        return max(epoch or 0, _TABLE_STEPS if isinstance(task, TableTask) else RunConfig.steps)

    def _validate_every(self, steps: int, epoch: int | None) -> int:
        """Return the updates between two validations."""
        given = self.values.get("validate_every")
        if given is not None:
            return given
        return RunConfig.validate_every if epoch is None else max(epoch, min(_OFTEN, steps // 20), 1)

    def folder(self, what: str) -> Path:
        """Return the folder of the results."""
        return self["out"] or results_folder(f"{self.task.name}-{what}")


def read_values(given: Mapping[str, Any], known: Mapping[str, Option], prog: str) -> dict[str, Any]:
    """Return values by name, converted to the types of their options, omitting unknown names.

    Raises:
        ArgumentError: If a value is invalid for its option.
    """
    return {
        name: value if name in DATA else known[name].value(value, prog)
        for name, value in given.items()
        if name in known
    }


def check_names(names: Iterable[str], known: Iterable[str], prog: str) -> None:
    """Raise ArgumentError if a name is not an option of a command."""
    known = {*known}
    unknown = sorted({*names} - known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(known), 1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise ArgumentError(f"Expected options of `{prog}`, but got {unknown[0]!r}. {meant}`{prog} --help` lists them.")


def updates_of_epochs(task: Task, batch_size: int, epochs: float) -> int:
    """Return the number of updates of these epochs. Raise ArgumentError for a task without epochs."""
    epoch = task.steps_per_epoch(batch_size)
    if epoch is None:
        raise ArgumentError(
            f"Expected --steps, as {task.name} has no epochs, but got --epochs {epochs:g}. Pass --steps."
        )
    if check_number("epochs", epochs, 0, _MOST_EPOCHS) == 0:
        raise ArgumentError(
            "Expected epochs to be above 0, but got 0. Pass a part of one, such as 0.5, for a short training."
        )
    return max(1, round(epochs * epoch))


def results_folder(name: str) -> Path:
    """Return a folder in runs/ named by the time, to the microsecond: several commands may start in one second."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
