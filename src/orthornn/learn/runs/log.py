"""metrics.jsonl: one JSON object a line, only ever appended to.

Every record has "kind" ("train", "validation", "test", "warning"; "gradients", "spectrum": see recording.py) and "step"
(updates done); the numbers follow.

The last entry of a line, "crc32", is the sum of the others as JSON; `read_metrics` compares it and leaves it out. A
line without it is an error.

A run that resumes from a checkpoint appends {"kind": "resume", "step": s, "keep": n}: the first n records before it
hold, those after them were made by updates that were lost and are repeated. `read_metrics` leaves both out.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ..._files import READ, open_to_read, system_errors
from ..._folder import Folder
from ...errors import CheckpointError, DataError
from ...saved.checkpoint import MAKE_ROOM
from ...saved.json_files import checked, parse, without_sum

SUM = "crc32"
_TAIL = 1 << 16  # bytes
_LARGEST = 1 << 36  # bytes of a whole log
_LONGEST = 1 << 28  # bytes of a line


class MetricsLog:
    """A log to which records are appended, one write of one line each. A line that a killed writer left unfinished is
    cut off.

    folder: The open folder that the file `name` is in.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name = folder, name
        self._file = open(self._folder.open_to_append(self._name), "ab", buffering=0)  # noqa: SIM115
        _cut_torn_line(self._file.fileno())

    @property
    def path(self) -> Path:
        """The path of the log."""
        return self._folder.path / self._name

    def append(self, record: dict[str, Any]) -> None:
        """Write one record. CheckpointError if the disk does not take it."""
        line = (json.dumps({**record, SUM: _sum(record)}) + "\n").encode()
        with self._naming():
            if self._file.write(line) != len(line):
                raise OSError(0, "the disk took a part of the line")

    def sync(self) -> None:
        """Bring everything so far to the disk. CheckpointError if it does not take it."""
        with self._naming():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _naming(self) -> AbstractContextManager[None]:
        return system_errors(f"to write {self.path}", MAKE_ROOM, CheckpointError)


class _Unreadable(NamedTuple):
    """A placeholder for a record that cannot be read, until a resume discards it."""

    reason: str


def read_metrics(path: str | Path, first: int | None = None) -> list[dict[str, Any]]:
    """Return the records of a metrics.jsonl, without a last line that a crash cut short and without lost updates.

    Args:
        path: The file.
        first: How many records are asked for; lines that only later ones are made of need not be readable. Default:
            all.

    Raises:
        DataError: If the file cannot be read, or a line of these records is not a record.
    """
    path = Path(path)
    records: list[dict[str, Any] | _Unreadable] = []
    number = 0
    with system_errors(f"to read {path}", READ), open_to_read(path, _LARGEST) as file:
        while line := file.readline(_LONGEST):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) == _LONGEST:
                    raise DataError(
                        f"Expected lines of at most {_LONGEST} bytes, but line {number} of {path} has more. "
                        f"Restore the file."
                    )
                if _goes_on_after_a_record(line):
                    records.append(_Unreadable(f"{path}, line {number}, was changed: it ends after its record."))
                break
            _take(line, f"{path}, line {number},", records)
    found: list[dict[str, Any]] = []
    for record in records if first is None else records[:first]:
        if isinstance(record, _Unreadable):
            raise DataError(record.reason)
        found.append(record)
    return found


def _take(line: bytes, where: str, records: list[dict[str, Any] | _Unreadable]) -> None:
    """Add the record of a line, or take those away that a resume left behind."""
    try:
        record = checked(without_sum(parse(line, where), where, SUM, _sum, needed=True), "Record", where)
    except DataError as error:
        records.append(_Unreadable(str(error)))
        return
    if record["kind"] != "resume":
        records.append(record)
    elif record["keep"] > len(records):
        records.append(_Unreadable(f"{where} keeps {record['keep']} records, but there are {len(records)} before it."))
    else:
        del records[record["keep"] :]


def _sum(record: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _goes_on_after_a_record(line: bytes) -> bool:
    """Return whether a line without an end has more than a whole record: no crash leaves that."""
    text = line.decode("utf-8", "replace")
    try:
        return json.JSONDecoder().raw_decode(text)[1] < len(text)
    except (ValueError, RecursionError):
        return False


def _cut_torn_line(file: int) -> None:
    """Remove the end of a line whose writer was killed, or the next record would be glued to it."""
    end = start = os.fstat(file).st_size
    whole = 0
    while start:
        before, start = start, max(0, start - _TAIL)
        os.lseek(file, start, os.SEEK_SET)  # not pread, which Windows lacks; records are appended wherever this points
        newline = os.read(file, before - start).rfind(b"\n")
        if newline >= 0:
            whole = start + newline + 1
            break
    if whole < end:
        os.ftruncate(file, whole)
