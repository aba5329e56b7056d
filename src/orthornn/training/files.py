"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file beside `path`, bring it to the disk, and rename it to `path`.

    Whoever reads `path`, at any moment and after a crash, finds what was there before or all of what is new.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_synced(beside, write)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_synced(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file and bring it to the disk."""
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: a rename is not safe from a crash before that."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
