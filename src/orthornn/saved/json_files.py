"""Strict reading of the JSON files of a run, which may come from a stranger.

A file is a regular one of bounded size, in UTF-8, with no key twice in an object, and fits its schema in schemas.py.
What does not is a DataError of one line that names the file. A byte-order mark, which some editors write, is skipped.

The last entry of a file that a run writes, "sha256", is the checksum of all others, so a change of one digit is an
error too. Files that a user writes lack this entry and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .._files import read_bytes, system_errors, write_bytes
from .._printable import printable
from ..errors import DataError, MissingPackageError

SUM = "sha256"
LARGEST = 1 << 26  # bytes of a file; a vocabulary or a permutation of the steps is the largest thing in one
_LONGEST = 300  # characters of a complaint

T = TypeVar("T")


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """Return the object in a JSON file, as it is there. DataError if it cannot be read or does not fit its schema."""
    with system_errors(f"to read {path}", "Restore the file."):
        content = read_bytes(path, LARGEST)
    return checked(without_sum(parse(content, str(path)), str(path)), schema, str(path))


def with_sum(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file with the sum of its entries as the last one."""
    return {**content, SUM: _sum(content)}


def as_json(content: dict[str, Any], summed: bool = False) -> bytes:
    """Return the bytes of a JSON file. summed: With the sum of its entries as the last one."""
    return (json.dumps(with_sum(content) if summed else content, indent=2) + "\n").encode()


def write_json(path: Path, content: dict[str, Any], summed: bool = False) -> None:
    """Write a JSON file atomically. summed: As of `as_json`."""
    write_bytes(path, as_json(content, summed))


def without_sum(
    value: Any,
    where: str,
    name: str = SUM,
    digest: Callable[[dict[str, Any]], str] | None = None,
    needed: bool = False,
) -> Any:
    """Return a parsed JSON value without its checksum. Raise DataError, beginning with `where`, if the checksum is
    wrong.

    name: Entry of the checksum. digest: Checksum of the other entries. Default: the checksum of `with_sum`.
    needed: Whether a missing checksum is an error.
    """
    if not isinstance(value, dict):
        return value
    if name not in value:
        if any(_differ_in_one_character(name, other) for other in value):
            raise DataError(f"{where} was changed: the name of its entry {name!r} was. Restore the file.")
        if needed:
            raise DataError(
                f"Expected {where} to have the checksum of its entries, {name!r}, but it is missing. Restore the file."
            )
        return value
    entries = {other: entry for other, entry in value.items() if other != name}
    try:
        found = (digest or _sum)(entries)
    except RecursionError:
        raise DataError(
            f"Expected {where} to be what a run holds there, but got too many levels. Restore the file."
        ) from None
    if value[name] != found:
        raise DataError(
            f"{where} was changed: its entries do not have the sum in its entry {name!r}. Restore the file; if you changed "
            f"it on purpose, remove that entry."
        )
    return entries


def parse(content: bytes, where: str) -> Any:
    """Return the JSON value in these bytes. Raise DataError, beginning with `where`, if there is none."""
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
    except RecursionError:
        raise DataError(
            f"Expected {where} to be what a run holds there, but got too many levels. Restore the file."
        ) from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError among them
        raise DataError(
            f"Expected {where} to be JSON, but got: {shortened(str(error))}. Restore or correct the file."
        ) from None


def checked(value: Any, schema: str | type, where: str) -> dict[str, Any]:
    """Return the value if it is an object that fits this schema, one of schemas.py by name, else raise DataError."""
    try:
        from . import schemas
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("a run directory", error.name or "msgspec", "cli") from error
    complaint = schemas.complaint(value, schema)
    if complaint is not None:
        raise DataError(
            f"Expected {where} to be what a run holds there, but got: {shortened(complaint)}. Restore or correct the file."
        )
    return value


def shortened(text: str) -> str:
    """Return the text, on one line and cut to a length that can be read."""
    line = printable(text[: 2 * _LONGEST], keep="")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _differ_in_one_character(name: str, other: str) -> bool:
    return len(name) == len(other) and sum(a != b for a, b in zip(name, other)) == 1


def _sum(entries: dict[str, Any]) -> str:
    """Return a sum of entries that depends neither on their order nor on the white space between them."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:40]!r} is there twice in one object")
    return found
