"""Train a network on your data: a table or a task and options in, a trained network out.

`orthornn.train`, the command `orthornn train` and all other code that trains call this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from .._files import check_new
from .._recording import recording
from ..errors import ArgumentError
from ..export.c import sizes_of
from ..saved.network import make_model
from ..saved.sizes import check_memory
from .auto import AUTO, Search
from .optimizer_options import say_unused
from .options import Options
from .own_data import options_for
from .predict import Loaded, load
from .recipes import leave_room_for_network, limit_warmup, say_recipe, with_recipe
from .runs.tensorboard import TensorBoard
from .shown import Silent
from .tasks import Task
from .training import Processes, Run, RunConfig, RunResult, Trainer, run_to_end
from .training.threads import choose_threads, set_threads

_MINUTES = 10.0
Observer = Callable[[dict[str, Any]], None]


@recording()
def train(
    data: Any,
    target: Any = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    task: str | None = None,
    shown: Silent | None = None,
) -> Loaded:
    """Train a network in a run directory, and return it with the weights of the best validation.

    Args:
        data: Name of a task, path of a file or of a folder of sounds, a DataFrame, or a task instance.
        target: Column or columns of a table to predict; it is also one of the options.
        options: Values of the options of `orthornn train` by name, as Python values or as text.
        task: "classify", "regress" or "forecast". Default: chosen by the target.
        shown: What to show the user. Default: nothing.

    Returns:
        The network with the best weights, with its ``directory`` and its ``result``.

    Raises:
        ArgumentError: If an option is unknown or has an invalid value.
        DataError: If the data cannot be read.
        NonFiniteError: If the loss becomes NaN or infinite.
        Interrupted: If Ctrl-C or SIGTERM stopped the training. Its state is saved.
    """
    processes = Processes.from_environment()
    shown = shown if shown is not None and processes.first else Silent()
    try:
        given = options if target is None else {"target": target, **options}
        asked = with_recipe(options_for(data, given, shown.say, task=task))
        say_recipe(asked, shown.say)
        if asked["model"] == AUTO:
            return searched(begun_search(asked, processes, shown), shown)
        run, folder = begun(asked, processes, shown)
        return run_and_show(run, folder, shown)
    finally:
        processes.leave()


def completed(options: Options, shown: Silent) -> tuple[Options, Task]:
    """Return the options completed from the data, and the task, which has read them.

    What is completed is the warmup of a recipe, and room for a network next to lags.
    """
    if options["threads"] is not None:
        set_threads(options["threads"])
    task = options.make_task()
    options = limit_warmup(options, task, shown.say)
    return leave_room_for_network(options, task, shown.say), task


def begun(options: Options, processes: Processes, shown: Silent) -> tuple[Run, Path]:
    """Create the run of these options and return it with its folder."""
    if options["minutes"] is not None:
        raise ArgumentError(
            f"Expected --minutes only with --model auto, but got --model {options['model']}. Use --seconds."
        )
    options, task = completed(options, shown)
    config, folder = options.config(task), options.folder(options["model"])
    check_folder(folder, shown.files(task))
    if options["for_c"]:
        for line in sizes_of(untrained(config), options["for_c"]).lines():
            shown.say(line)
    if options["threads"] is None:
        choose_threads([config])
    run = Run(config, folder, processes=processes, observers=observers(options["tensorboard"], folder, processes))
    say_unused(options.given, [run.trainer], shown.say)
    return run, folder


def untrained(config: RunConfig) -> Loaded:
    """Return the network of a run before its training, for its shapes, without parameters that are all zeros, such as
    initial biases, which C leaves out.
    """
    description = config.task.problem().schema
    check_memory(config.model, description)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = make_model(config.model, description).eval()
        for parameter in model.parameters():
            if not parameter.any():
                parameter.uniform_(-0.1, 0.1)
    return Loaded(config, model, description)


def begun_search(options: Options, processes: Processes, shown: Silent) -> Search:
    """Create the search for a model that these options request."""
    if processes.count > 1:
        raise ArgumentError(
            f"Expected one process for --model auto, but got {processes.count}. Run it without torchrun."
        )
    options, task = completed(options, shown)
    for name in ("tensorboard", "for_c"):
        if options[name]:
            raise ArgumentError(
                f"Expected --{name.replace('_', '-')} only with one model, but got it with --model auto. Leave it out, or "
                f"name a model."
            )
    minutes = _MINUTES if options["minutes"] is None else options["minutes"]
    of_model = options.of_model(task)
    for line in task.summary_lines():
        shown.say(line)
    folder = options.folder(AUTO)
    check_folder(folder, shown.files(task))
    search = Search.begin(partial(options.config, task), of_model, minutes, folder)
    say_unused(options.given, map(Trainer, search.configs.values()), shown.say)
    return search


def run_and_show(run: Run, folder: Path, shown: Silent) -> Loaded:
    """Execute a run, new or resumed; show it, and return the network."""
    processes, name = run.trainer.processes, run.config.model.name
    for line in run.config.task.summary_lines():
        shown.say(line)
    with shown.display(run.config.task.objective().trivial_loss, run.config.max_seconds) as display:
        result = run_to_end(run, lambda progress: display({name: progress}))
    processes.leave()
    if not processes.first:  # whose files another process writes
        return Loaded(result.config, result.model, result.config.task.problem().schema, folder)
    return _shown(result, folder if run.directory is None else run.directory.path, shown)


def searched(search: Search, shown: Silent) -> Loaded:
    """Execute a search, new or resumed; show it, and return the network."""
    shown.say(f"candidates: {', '.join(search.configs)}; {search.seconds / 60:g} minutes in all")
    name, result, folder = search.run_to_end(shown.say)
    shown.searched(name, search)
    return _shown(result, folder, shown)


def _shown(result: RunResult, folder: Path, shown: Silent) -> Loaded:
    shown.ended(result, folder)
    loaded = load(folder)
    loaded.result = result.of_best(loaded.model)
    return loaded


def check_folder(folder: Path, names: list[str]) -> None:
    """Raise ArgumentError if the folder already contains a file that a new run writes, such as recordings."""
    check_new((folder / name for name in names), "Name another folder with out, --out.")


def observers(tensorboard: bool, folder: Path, processes: Processes) -> list[Observer]:
    """Return the observers of every record of a run: TensorBoard, if requested."""
    return [TensorBoard(folder / "tensorboard")] if tensorboard and processes.first else []
