"""Files that are written atomically, and files that are read with care."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from ._folder import Folder
from .errors import ArgumentError, DataError, OrthornnError


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


def write_together(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files below a folder, which is made if it is missing; return their paths.

    All are on disk before the first is renamed, so a full disk leaves the old files intact.

    Args:
        folder: Output folder.
        contents: Contents by name, including inner folders: ``"zephyr/module.yml"``.

    Raises:
        ArgumentError: If a folder is in the place of a file, or a file or a symbolic link in the place of a folder.
    """
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"Expected {folder} to be a folder, but got a file. Name another one.")
    paths = {folder / name: content for name, content in contents.items()}
    for inner in {folder / part for name in contents for part in Path(name).parents} - {folder}:
        if inner.is_symlink() or (inner.exists() and not inner.is_dir()):
            what = "a symbolic link. Replace it by the folder that it points to" if inner.is_symlink() else "a file"
            raise ArgumentError(f"Expected {inner} to be a folder, but got {what}.")
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            raise ArgumentError(f"Expected {path} to be a file, but got a folder. Move it away.")
    staged: dict[Path, Path] = {}
    try:
        for path, content in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}.new")
            staged[new] = path
            write_bytes(new, content)
        for new, path in staged.items():
            if path.is_file() and not path.is_symlink():
                new.chmod(stat.S_IMODE(path.stat().st_mode))  # who may read the old file may read the new one
            os.replace(new, path)
    finally:
        for new in staged:
            new.unlink(missing_ok=True)
    return list(paths)


def check_new(paths: Iterable[Path], advice: str) -> None:
    """Raise ArgumentError if a file, a folder or a link already exists at a path to be written. advice: What to do."""
    there = next((path for path in paths if os.path.lexists(path)), None)
    if there is not None:
        raise ArgumentError(f"Expected a new file, but got {there}, which exists. {advice}")


READ = "Correct its name, or allow reading it."
"""What to do about a file that cannot be read."""


@contextlib.contextmanager
def system_errors(expected: str, advice: str, kind: type[OrthornnError] = DataError) -> Iterator[None]:
    """Inside, an error of the system becomes one of this package; this package's own errors stay as they are.

    Args:
        expected: What was to be done, such as ``f"to read {path}"``.
        advice: What to do about it, a sentence.
        kind: Class of the error.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, OrthornnError):
            raise
        raise kind(f"Expected {expected}, but got: {error.strerror or error}. {advice}") from error


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
            f"Expected {path} to have at most {limit} bytes, but got {found.st_size}. It does not belong to a run."
        )
    return file


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file; see `open_to_read`."""
    with open_to_read(path, limit) as file:
        content = file.read(limit + 1)  # it may grow while it is read
    if len(content) > limit:
        raise DataError(f"Expected {path} to have at most {limit} bytes, but it grew. It does not belong to a run.")
    return content
