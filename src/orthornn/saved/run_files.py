"""The files of a run directory by name, and those that a trained network is read from; see learn/runs/directory.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ArgumentError, CheckpointError, DataError
from .json_files import read_json

CONFIG, METRICS, RESULT, DESCRIPTION = "config.json", "metrics.jsonl", "result.json", "description.json"
ENVIRONMENT, DATA = "environment.json", "data.json"
SEARCH = "auto.json"  # of a folder that holds a search for a model


def read_description(path: str | Path) -> dict[str, Any]:
    """Return the inputs and outputs of the network of a run; see description.py. CheckpointError if the file is missing
    or wrong.
    """
    try:
        return read_json(Path(path) / DESCRIPTION, "Description")
    except DataError as error:
        raise CheckpointError(str(error)) from error


def read_result(path: str | Path) -> dict[str, Any] | None:
    """Return the content of result.json of a run, or None for a run without an end. DataError if the file is
    damaged.
    """
    file = Path(path) / RESULT
    if not file.exists():
        return None
    try:
        return read_json(file, "Result")
    except DataError as error:
        raise DataError(f"{error} Or remove it: resuming the run writes it again.") from error


def run_in(path: Path) -> Path:
    """Return the run directory of the result, for the folder of a search that has one; any other path as it is."""
    if (path / CONFIG).exists() or not (path / SEARCH).exists():
        return path
    result = read_json(path / SEARCH, "Objects").get("result")
    inside = isinstance(result, str) and (path / result).resolve().is_relative_to(path.resolve())
    return path / str(result) if inside else path


def check_is_run(path: Path) -> None:
    """Raise ArgumentError unless there is a config.json in this folder; it names the result of a search."""
    if not (path / CONFIG).exists():
        if (path / SEARCH).exists():
            result = read_json(path / SEARCH, "Objects").get("result")
            named = f"Name the run of its result: {path / result}." if isinstance(result, str) else "Resume it first."
            raise ArgumentError(f"Expected a run, but {path} holds a search by model='auto', --model auto. {named}")
        if path.is_file():
            raise ArgumentError(
                f"Expected a run directory, but {path} is a file. Name the directory; a state_dict that you saved is loaded "
                f"by load_state_dict(torch.load(...)) of a network with the same arguments."
            )
        raise ArgumentError(
            f"Expected a run, but {path} holds no run: {path / CONFIG} is missing. Name a run directory."
        )
