"""Packages that only parts of orthornn need: imported when one of them is used, named when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import MissingPackageError


def import_optional(package: str, extra: str, use: str) -> Any:
    """Return the module of this name; MissingPackageError names the extra of orthornn that provides it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise
        raise MissingPackageError.named(use, package.partition(".")[0], extra) from error
