"""Packages that integrations require, with an error that names them if they are missing."""

from __future__ import annotations

import importlib

from ..errors import MissingPackageError

EXTRA = "rl"


def require(package: str, what: str) -> None:
    """Raise MissingPackageError, which names the extra to install, unless a package can be imported.

    Args:
        package: Name of the package.
        what: The part of orthornn that needs it.
    """
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingPackageError.named(what, package, EXTRA) from error
