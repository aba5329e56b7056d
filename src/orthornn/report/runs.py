"""Runs read back from their directories, and what their configurations have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, DataError
from ..training import RunConfig, read_config, read_metrics


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
    """The runs in these folders and in all folders below them. ArgumentError if there are none in one of them."""
    found: dict[Path, SavedRun] = {}
    for path in paths:
        places = sorted(file.parent for file in path.rglob("config.json") if (file.parent / "metrics.jsonl").exists())
        if not places:
            raise ArgumentError(f"{path} holds no run, nor does any folder below it; needed a config.json of a run.")
        for place in places:
            found[place] = read_run(place)
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

    def optional(name: str) -> Any:
        file = path / name
        try:
            return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        except ValueError as error:
            raise DataError(f"{file} is not JSON: {error}. Remove it; going on with the run writes it anew.") from error

    config = read_config(path / "config.json")
    return SavedRun(
        path, config, optional("environment.json") or {}, read_metrics(path / "metrics.jsonl"), optional("result.json")
    )
