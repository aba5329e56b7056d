"""Tasks and commands that other installed packages add to the command, by the entry points that they declare.

orthornn.tasks      a task: a subclass of Task, under its name
orthornn.commands   a command: a `Command`, under its name

The evidence of this project declares both. It is the folder `evidence` of the sources and in no wheel, so its names are
known here: one that is asked for without it is an error that says how to install it (orthornn/learn/entry_points.py).
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from importlib import metadata
from typing import Any

TASKS, COMMANDS = "orthornn.tasks", "orthornn.commands"
EVIDENCE = {
    TASKS: ("pixel-mnist", "noisy-digits", "groups", "parity", "modular-sums", "speech", "music", "piano-rolls"),
    COMMANDS: ("reproduce", "bench", "leaderboard", "group-words", "exact-machines", "swap"),
}
"""The names that the evidence declares, by group."""


@dataclass(frozen=True)
class Command:
    """A command of another package.

    Attributes:
        summary: What it does, in a line of the manual.
        module: The name of the module whose ``main(words)`` runs it and returns the exit status; it is imported only then.
        example: How it is used, for the manual, or "".
    """

    summary: str
    module: str
    example: str = ""


@functools.cache
def declared(group: str) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of installed packages in a group, by name."""
    return {found.name: found for found in metadata.entry_points(group=group)}


def loaded(group: str) -> dict[str, Any]:
    """Return what the declared names of a group stand for, by name, but for those that cannot be imported."""
    known = {}
    for name, found in declared(group).items():
        with contextlib.suppress(ImportError):
            known[name] = found.load()
    return known


def is_known(group: str, name: str) -> bool:
    """Return whether a name is declared, or would be if the evidence were installed."""
    return name in declared(group) or name in EVIDENCE[group]
