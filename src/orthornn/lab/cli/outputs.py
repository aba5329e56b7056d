"""The files that a command writes: none takes the place of another unless that is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..._files import check_new


def check_new_file(paths: Iterable[Path], force: bool) -> None:
    """Raise ArgumentError if a file that a command is to write is there already, unless `force` is True.

    This comes before anything is computed.
    """
    if not force:
        check_new(paths, "Name another with --out, or replace it with --force.")


def check_new_files(paths: Iterable[Path]) -> None:
    """Raise the same for a command whose --out is a folder for runs, which are not replaced either."""
    check_new(paths, "Name another folder with --out.")
