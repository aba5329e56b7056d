"""metrics.jsonl: one JSON object a line, only ever appended to.

Every record has "kind" ("train", "validation", "test", "warning"; "gradients", "spectrum": see recording.py) and "step"
(updates done); the numbers follow.

A run that goes on from a checkpoint appends {"kind": "resume", "step": s, "keep": n}: the first n records before it
hold, those after them were made by updates that were lost and are made again. `read_metrics` leaves both out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, DataError

_TAIL = 1 << 16  # bytes


class MetricsLog:
    """Appends records; each is one write of one line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        _cut_torn_line(path)

    def append(self, record: dict[str, Any]) -> None:
        """Write one record. CheckpointError if the disk does not take it."""
        line = (json.dumps(record) + "\n").encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(0, "the disk took a part of the line")
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def sync(self) -> None:
        """Bring everything so far to the disk. CheckpointError if it does not take it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, without a last line that a crash cut short and without updates that were lost.

    Raises DataError if the file cannot be read, or if a line other than the last is not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from error
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}, is not JSON: {error}.") from error
        if record.get("kind") == "resume":
            del records[record["keep"] :]
        else:
            records.append(record)
    return records


def _cut_torn_line(path: Path) -> None:
    """Remove the end of a line whose writer was killed, or the next record would be glued to it."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        tail = b""
        while start and b"\n" not in tail:
            start = max(0, start - _TAIL)
            file.seek(start)
            tail = file.read(end - start)
    whole = start + tail.rfind(b"\n") + 1
    if whole < end:
        os.truncate(path, whole)
