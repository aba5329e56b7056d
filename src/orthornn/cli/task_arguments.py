"""The words behind `orthornn train`, compare and sweep: a task or data of one's own, and options of all that they have."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn import entry_points
from ..learn.files.columns import SUFFIXES, is_data
from ..learn.options import groups, named
from ..learn.own_data import table_options
from ..learn.recipes import defaults_of
from ..learn.systems import MODELS
from ..learn.tasks import TASKS, Classify
from .arguments import HELP, exit_with, help_text, parse


def data_and_options(command: str, summary: str, kind: type, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the task or the data of `orthornn COMMAND TASK ...`, and the given options by name.

    kind: Dataclass with the options of the command, in addition to those of tasks, models and runs.
    """
    if not words or words[0] in HELP:
        exit_with(task_manual(command, summary))
    data = words[0]
    if data.startswith("-"):
        raise ArgumentError(
            f"Expected the task first, but got {data}. Write: orthornn {command} TASK {shlex.join(words)}. TASK is one "
            f"of {', '.join(TASKS)}."
        )
    if not data:
        raise ArgumentError(
            "Expected a task or your own data, but got an empty name. Name one; . is the folder in which the command runs."
        )
    own = data not in TASKS and is_data(Path(data).expanduser())
    if not own:
        _check_task(command, data)
    task = Classify if own else TASKS[data]
    prog = f"orthornn {command} {task.name}"
    if HELP & {*words}:
        first = (task.__doc__ or "").strip().splitlines()[0]
        chosen = defaults_of(task) if "recipe" in named(task, kind) else {}
        exit_with(help_text(prog, f"{first} {summary}", groups(task, kind), chosen))
    return data, parse(words[1:], table_options(kind) if own else named(task, kind), prog)


def _check_task(command: str, data: str) -> None:
    """Raise ArgumentError for a word that is neither a task nor data."""
    path, wanted = Path(data), f"Expected a task, a file that ends in {', '.join(SUFFIXES)}, or a folder of sounds"
    if data not in TASKS and path.expanduser().exists():
        raise ArgumentError(
            f"{wanted}, but got {data!r}, which is none of them. `orthornn {command} --help` lists the tasks."
        )
    if data not in TASKS and (path.suffix or len(path.parts) > 1):
        raise ArgumentError(
            f"{wanted}, but {data!r} does not exist. Correct its name; `orthornn {command} --help` lists the tasks."
        )
    check_choice("task", data, TASKS)


def task_manual(command: str, summary: str) -> str:
    """Return the output of `orthornn COMMAND --help`."""
    tasks = "\n".join(f"  {name:<18}{(task.__doc__ or '').strip().splitlines()[0]}" for name, task in TASKS.items())
    absent = [name for name in entry_points.EVIDENCE[entry_points.TASKS] if name not in set(TASKS)]
    if absent:
        tasks += f"\n\nnot installed: {', '.join(absent)}; each says how to get it"
    models = "\n".join(f"  {name:<18}{kind.summary}" for name, kind in MODELS.items())
    return (
        f"orthornn {command} - {summary}\n\nusage: orthornn {command} TASK [options]\n"
        f"       orthornn {command} FILE --target COLUMN [options]   (your own: {', '.join(SUFFIXES)};\n"
        f"{' ' * len(f'       orthornn {command} FILE --target COLUMN [options]   ')}or a folder of sounds)\n\n"
        f"tasks:\n{tasks}\n\n"
        f"models:\n{models}\n\n`orthornn {command} TASK --help` lists the options, with units and defaults.\n"
    )
