"""Commands and tasks that other installed packages declare, loaded or refused with how to install them."""

from __future__ import annotations

from typing import Any

from orthornn_command import entry_points
from orthornn_command.entry_points import COMMANDS, EVIDENCE, TASKS, Command, declared, is_known, loaded

from ..errors import MissingPackageError

__all__ = ["COMMANDS", "EVIDENCE", "TASKS", "Command", "declared", "is_known", "load", "loaded"]


def load(group: str, name: str) -> Any:
    """Return the imported object that a name of a group stands for.

    Raises:
        MissingPackageError: For a name of the evidence that is not installed, and for a package that cannot be
            imported.
        KeyError: For any other unknown name.
    """
    what = f"`orthornn {name}`" if group == COMMANDS else f"the task {name}"
    if name not in entry_points.declared(group) and name in EVIDENCE[group]:
        raise MissingPackageError(
            f"Expected the evidence of orthornn for {what}, but it is not installed. Install it: pip install -e evidence "
            f"in the folder of orthornn's sources."
        )
    found = entry_points.declared(group)[name]
    try:
        return found.load()
    except ImportError as error:  # a folder that was moved or removed since
        raise MissingPackageError(
            f"Expected to import {found.value} for {what}, as an installed package declares, but got: {error}. Install that "
            f"package again."
        ) from error
