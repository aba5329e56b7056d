"""Differences between the beginning of a run and its continuation: of settings, which are refused, or of the
machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...environment import environment
from ...errors import ArgumentError, ConfigError, DataError
from ...saved.json_files import read_json
from ...saved.run_files import ENVIRONMENT
from ..training.config import RunConfig

MAY_CHANGE = ("steps", "max_seconds", "device")  # of a config, when a run is resumed
# Entries of environment.json on which the last bits of a run depend, in words.
_BITS = {
    "torch": "torch",
    "instruction_set": "the instruction set of orthornn's kernels",
    "torch_instruction_set": "the instruction set of torch's kernels",
    "threads": "the number of threads",
    "gpu": "the GPU",
}


def check_same_run(before: RunConfig, now: RunConfig, file: Path, checkpoint: Path) -> None:
    """Raise ConfigError if a checkpoint was made with another configuration than the one in `file`."""
    old, new = before.flat(), now.flat()
    changed = [
        f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
        for name in dict.fromkeys((*old, *new))
        if name not in MAY_CHANGE and old.get(name) != new.get(name)
    ]
    if changed:
        raise ConfigError(
            f"{file} is not the configuration with which {checkpoint} was made: "
            f"{'; '.join(changed)}. Only {', '.join(MAY_CHANGE[:-1])} and {MAY_CHANGE[-1]} may change: restore "
            f"it, or begin a new run."
        )


def check_same_runs(configs: Mapping[str, RunConfig], file: Path, what: str) -> None:
    """Raise ArgumentError if a file of configurations by name holds other runs than these.

    Options that are newer than the file have their defaults. what: What the runs are, such as a sweep.
    """
    before, now = read_json(file, "Objects"), json.loads(json.dumps(described(configs)))
    for name in before.keys() & now.keys():
        with suppress(ConfigError):
            before[name] = json.loads(json.dumps(RunConfig.read(before[name]).to_dict()))
    names = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
    if names:
        raise ArgumentError(
            f"Expected the {what} that {file.parent} holds, but got other runs: {', '.join(names)} "
            f"{'differs' if len(names) == 1 else 'differ'}. Pass the options with which it was begun, or choose another "
            f"folder."
        )


def described(configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """Return the content of a file of configurations by name."""
    return {name: config.to_dict() for name, config in configs.items()}


def environment_changes(path: Path, device: str) -> list[str]:
    """Return, in words, how the platform of this process differs from the one on which the run in `path` began.

    Nothing is compared if environment.json is missing. device: Current device of the run.
    """
    before, now = read_environment(path), environment(device)
    return [
        f"{words} is {now.get(name) or 'none'} (it began with {before.get(name) or 'none'})"
        for name, words in _BITS.items()
        if before and before.get(name) != now.get(name)
    ]


def read_environment(path: Path) -> dict[str, Any]:
    """Return the content of environment.json of a run, or nothing if it is missing. Raise DataError if it is
    damaged.
    """
    file = path / ENVIRONMENT
    try:
        return read_json(file, "Environment") if file.exists() else {}
    except DataError as error:
        raise DataError(
            f"{error} Without {file.name}, what has changed since the run began is not compared."
        ) from error
