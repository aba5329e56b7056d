"""metrics.jsonl: one JSON object a line, only ever appended to.

Every record has "kind" ("train", "validation", "test"; "gradients", "spectrum": see recording.py) and "step" (updates
done); the numbers follow.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from ..errors import DataError


class MetricsLog:
    """Appends records; each is one write of one line."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def append(self, record: dict[str, Any]) -> None:
        """Write one record."""
        self._file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, without a last line that a crash cut short.

    Raises DataError if the file cannot be read, or if a line other than the last is not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from error
    records = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}, is not JSON: {error}.") from error
    return records
