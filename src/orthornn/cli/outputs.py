"""The files that a command writes: they replace existing files only if requested."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .._files import check_new
from ..errors import ArgumentError


def check_new_file(paths: Iterable[Path], force: bool) -> None:
    """Raise ArgumentError if a file that a command is about to write already exists, unless `force` is True.

    This check comes before any computation. Devices, pipes and folders, and links to them, are never replaced.
    """
    if not force:
        check_new(paths, "Name another with --out, or replace it with --force.")
        return
    for path in paths:
        if path.exists() and not path.is_file():
            raise ArgumentError(f"Expected a file to replace, but got {path}, which is none. Name another with --out.")


def check_new_files(paths: Iterable[Path]) -> None:
    """Raise the same error for a command whose --out is a folder for runs, which are not replaced either."""
    check_new(paths, "Name another folder with --out.")


def check_folder(path: Path) -> None:
    """Raise ArgumentError if a folder cannot be created because a file is in its way."""
    there = next((above for above in (path, *path.parents) if above.exists()), None)
    if there is not None and not there.is_dir():
        raise ArgumentError(f"Expected a folder, but got {there}, which is a file. Name a folder with --out.")


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Raise ArgumentError if the suffix of a file belongs to another format than the one that is written.

    suffixes: Suffixes of the format; a name without a suffix is always accepted.
    """
    if path.suffix and path.suffix.lower() not in suffixes:
        raise ArgumentError(
            f"Expected a file that ends in {' or '.join(suffixes)}, but got {path}. Name such a file with --out."
        )
