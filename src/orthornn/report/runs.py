"""Runs read back from their directories, and what their configurations have in common."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, DataError, OrthornnError, OrthornnWarning
from ..training import RunConfig, read_config, read_metrics
from ..training.changes import read_environment
from ..training.weights import read_result


@dataclass(frozen=True)
class SavedRun:
    """A run directory. result: what result.json holds; None if the run has not come to its end."""

    path: Path
    config: RunConfig
    environment: dict[str, Any]
    records: list[dict[str, Any]]
    result: dict[str, Any] | None

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind."""
        return [record for record in self.records if record["kind"] == kind]


def read_runs(paths: Iterable[Path]) -> list[SavedRun]:
    """The runs in these folders and in all folders below them; a run that cannot be read is left out, with a warning.

    ArgumentError if there are none in one of them, DataError if none can be read.
    """
    found: dict[Path, SavedRun] = {}
    unreadable: list[str] = []
    for path in paths:
        places = sorted(file.parent for file in path.rglob("config.json") if (file.parent / "metrics.jsonl").exists())
        if not places:
            raise ArgumentError(f"{path} holds no run, nor does any folder below it; needed a config.json of a run.")
        for place in places:
            try:
                found[place] = read_run(place)
            except OrthornnError as error:  # of one, which says nothing about the others
                unreadable.append(str(error))
    if not found and unreadable:
        raise DataError(f"none of {len(unreadable)} runs can be read. {unreadable[0]}")
    for reason in unreadable:
        warnings.warn(f"a run is left out: {reason}", OrthornnWarning, stacklevel=2)
    return list(found.values())


def differing(runs: Sequence[SavedRun]) -> dict[str, list[Any]]:
    """Dotted names whose values differ between the runs, and the value of each run (None where it has no such)."""
    configs = [run.config.flat() for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [config.get(name) for config in configs] for name in names}
    return {name: values for name, values in columns.items() if any(value != values[0] for value in values)}


def groups(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """Runs that differ in nothing but their seed, under a label that says what is theirs alone."""
    differences = {name: values for name, values in differing(runs).items() if name != "seed"}
    made: dict[str, list[SavedRun]] = {}
    for index, run in enumerate(runs):
        words = [run.config.model.name]
        words += [
            f"{name.split('.')[-1]}={values[index]}" for name, values in differences.items() if name != "model.name"
        ]
        made.setdefault(" ".join(words), []).append(run)
    return made


def read_run(path: Path) -> SavedRun:
    """The run in this folder, finished or not."""
    config = read_config(path / "config.json")
    return SavedRun(path, config, read_environment(path), read_metrics(path / "metrics.jsonl"), read_result(path))
