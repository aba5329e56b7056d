"""The data of a run, as data.json remembers them: the sha256 of every file that its task reads.

A resumed run compares them, and what the task makes of them (description.json), with what it began with: other
labels, another scale or other rows would be learned without a sign that anything changed.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

from ..._files import READ, open_to_read, system_errors
from ...errors import DataError
from ...saved.json_files import read_json
from ...saved.run_files import DATA, read_description
from ..tasks import Task

_BLOCK = 1 << 20
_LARGEST = 1 << 44  # bytes of a file
_LISTED = 3
_LATER = ("quantiles", "commas", "holds", "sample_rate", "sound")  # entries that old runs do not have
# Numbers that follow from the data by a sum: another version of numpy may add in another order.
_TOLERANCE = 1e-9


def fingerprint(task: Task) -> dict[str, Any] | None:
    """Return the content of data.json; None for a task without files."""
    files = task.files()
    if not files:
        return None
    return {"files": [_of_file(name, path) for name, path in sorted(files.items())]}


def check_data(run: Path, task: Task) -> None:
    """Raise DataError if the files of a task are not those with which the run in a folder began.

    For whoever computes with the data of a run: their numbers would be put down to the run. The kind and the sizes of
    what the task makes of them are compared too, or of the data of a task without files.
    """
    check_same_files(fingerprint(task), run)
    description = read_description(run)
    schema = task.problem().schema
    made = {name: schema[name] for name in ("input_size", "output_size", "input", "output")}
    check_same_description({name: description[name] for name in made}, made, run)


def check_same_files(now: dict[str, Any] | None, run: Path) -> None:
    """Raise DataError, naming the files, if they are not those that the run began with.

    now: What `fingerprint` returns of the task. A task without files has no data.json.
    """
    before = {"files": []} if now is None and not (run / DATA).exists() else read_json(run / DATA, "Data")
    old = {entry["name"]: entry["sha256"] for entry in before["files"]}
    new = {entry["name"]: entry["sha256"] for entry in (now or {"files": []})["files"]}
    changed = [
        f"{name} {'is missing' if name not in new else 'is new' if name not in old else 'was changed'}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if changed:
        more = f", and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
        raise DataError(
            f"Expected the data with which {run} began, but got others: {', '.join(changed[:_LISTED])}{more}. Restore "
            f"them, or begin a new run."
        )


def check_same_description(before: dict[str, Any], now: dict[str, Any], run: Path) -> None:
    """Raise DataError, naming the entry, if the task makes something else of its data than when the run began."""
    for name in dict.fromkeys((*before, *now)):
        if name in _LATER and name not in before:
            continue
        if not _same(before.get(name), now.get(name)):
            raise DataError(
                f"Expected the data with which {run} began, but got others: {name} was {_shown(before.get(name))} and is "
                f"{_shown(now.get(name))}. Restore them, or begin a new run."
            )


def _of_file(name: str, path: Path) -> dict[str, Any]:
    sums, size = hashlib.sha256(), 0
    with system_errors(f"to read {path}", READ), open_to_read(path, _LARGEST) as file:
        while block := file.read(_BLOCK):
            sums.update(block)
            size += len(block)
    return {"name": name, "bytes": size, "sha256": sums.hexdigest()}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return one == other


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
