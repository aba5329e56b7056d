"""Files that are written atomically, and files that are read with care."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from ._folder import Folder
from .errors import ArgumentError, DataError


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file next to `path`, flush it to the disk, and rename it to `path`.

    Whoever reads `path`, at any moment and after a crash, finds the old file or the whole new one. A link of that name
    is replaced, not followed.
    """
    folder = Folder.open(path.parent)
    try:
        folder.write_atomically(path.name, write)
    finally:
        folder.close()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; see `write_atomically`."""
    write_atomically(path, lambda file: file.write(content))


def check_new(paths: Iterable[Path], advice: str) -> None:
    """Raise ArgumentError if a file, a folder or a link is where a file is to be written. advice: What to do then."""
    there = next((path for path in paths if os.path.lexists(path)), None)
    if there is not None:
        raise ArgumentError(f"Expected a new file, but got {there}, which exists. {advice}")


def open_to_read(path: Path, limit: int) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes, with links followed: they are the reader's own, as in a cache.

    Raises:
        DataError: If it is a pipe, a device or a folder, or larger.
        OSError: If it cannot be opened.
    """
    # O_NONBLOCK: a pipe would wait for its writer for ever
    flags = [getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY")]  # not all on every system
    descriptor = os.open(path, os.O_RDONLY | sum(flags))
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise DataError(f"Expected {path} to be a regular file, but got a pipe, a device or a folder.")
    file = open(descriptor, "rb")  # noqa: SIM115
    if found.st_size > limit:
        file.close()
        raise DataError(
            f"Expected {path} to have at most {limit} bytes, but got {found.st_size}. It is no file of a run."
        )
    return file


def read_bytes(path: Path, limit: int) -> bytes:
    """Return what a file holds; see `open_to_read`."""
    with open_to_read(path, limit) as file:
        content = file.read(limit + 1)  # it may grow while it is read
    if len(content) > limit:
        raise DataError(f"Expected {path} to have at most {limit} bytes, but it grew. It is no file of a run.")
    return content
