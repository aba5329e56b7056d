"""`orthornn train` from Python: `orthornn.train(frame, "label")`."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.util
import os
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._checks import check_choice
from .._recording import recording
from ..cli.arguments import own_data
from ..cli.train import TrainArguments, train_as_asked
from ..cores import limited_threads
from ..errors import ArgumentError, MissingPackageError
from .files.columns import SUFFIXES
from .files.frames import Frame, source
from .predict import Loaded, load
from .systems import options as model_options
from .tasks import TASKS
from .tasks.table_options import entry_of


@recording()
def train(data: Any, target: str | Iterable[str] | None = None, *, task: str | None = None, **options: Any) -> Loaded:
    """Train a network on a table of your own, and show what the command `orthornn train` shows.

    Args:
        data: A DataFrame (pandas, polars, pyarrow, ...) with one row per step, the path of a file or of a folder of sounds,
            or the name of a task such as ``"copying"``.
        target: The column to predict, or several.
        task: ``"classify"``, ``"regress"`` or ``"forecast"``. Default: chosen by the target, as on the command line.
        **options: The options of ``orthornn train``, with underscores: ``sequence="id"``, ``model="lstm"``, ``steps=500``,
            ``out="runs/first"``. ``True`` and ``False`` switch, a list is joined by commas, a dict becomes
            ``name=value``, ``None`` is the default.

    Returns:
        The trained network with the weights of the best validation, as ``orthornn.load`` returns it, with its ``directory``
        and its ``result``, whose ``test`` has the metrics of these weights; ``result.last_test`` has those of the last ones.

    Raises:
        ArgumentError: For an unknown option or value.
        DataError: If the data cannot be read.
        MissingPackageError: Without the extra ``tables``.

    Example::

        >>> import contextlib, io, pathlib, tempfile
        >>> out = pathlib.Path(tempfile.mkdtemp(), "run")
        >>> with contextlib.redirect_stdout(io.StringIO()):  # what the command shows
        ...     trained = train("copying", steps=2, T=5, hidden_size=8, out=out)
        >>> trained.directory == out
        True
    """
    for package in ("tyro", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError.named("orthornn.train", package, "tables")
    made_of = {
        name: source(options[name]) for name in ("test_data", "validation_data") if options.get(name) is not None
    }
    name = source(data)
    kept = [name, *made_of.values()]  # a table in memory is known as long as its name lives
    words = _words({"target": target, **options, **made_of})
    if task is not None:
        words = [check_choice("task", task, ("classify", "regress", "forecast")), "--data", name, *words]
    elif name in TASKS:
        words = [name, *words]
    else:
        words = list(own_data([name, *words]))
        if words[0] not in TASKS:
            raise ArgumentError(
                f"Expected a DataFrame, a file that ends in {', '.join(SUFFIXES)}, a folder of sounds or the name of a task, "
                f"but got {os.fspath(name)!r}. Tasks: {', '.join(TASKS)}."
            )
    _check_names(words[0], {key for key, value in options.items() if value is not None})
    with limited_threads():
        result, folder = train_as_asked(words)
    del kept
    loaded = load(folder)
    loaded.result = result.of_best(loaded.model)
    return loaded


def _words(options: dict[str, Any]) -> list[str]:
    """The options as words of the command line."""
    found = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, (bool, np.bool_)) and name not in _with_truth_values():
            found.append(f"--{option}" if value else f"--no-{option}")
            continue
        if isinstance(value, Mapping):
            value = [f"{_name(key)}={part}" for key, part in value.items()]
        if isinstance(value, Iterable) and not isinstance(value, str):
            value = ",".join(entry_of(str(part)) for part in value)
        if isinstance(value, str) and value.startswith("-"):  # a column of this name is no option
            found.append(f"--{option}={value}")
        else:
            found += [f"--{option}", value if isinstance(value, Frame) else str(value)]
    return found


@functools.cache
def _with_truth_values() -> frozenset[str]:
    """Return the options that are followed by True or False, because they may be None too: those of models, and some."""
    of_models = {name for name, option in model_options().items() if bool in typing.get_args(option.kind)}
    kinds: list[Any] = list(TASKS.values())
    of_tasks = {entry.name for kind in kinds for entry in dataclasses.fields(kind) if "bool | None" in str(entry.type)}
    return frozenset(of_models | of_tasks)


def _name(key: Any) -> str:
    """The name of a class or a column: 1.0 is 1, as in a table."""
    return str(int(key) if isinstance(key, (float, np.floating)) and float(key).is_integer() else key)


def _check_names(task: str, given: Iterable[str]) -> None:
    kinds: tuple[Any, ...] = (TASKS[task], TrainArguments)
    known = {entry.name for kind in kinds for entry in dataclasses.fields(kind)} | set(model_options())
    known -= {"task", "model_options", "data", *TASKS[task].without_effect}
    unknown = sorted(set(given) - known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(known), 1)
        raise ArgumentError(
            f"Expected options of `orthornn train {task}`, but got {unknown[0]!r}. "
            + (f"Did you mean {near[0]!r}? " if near else "")
            + f"`orthornn train {task} --help` lists them."
        )
