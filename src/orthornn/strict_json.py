"""JSON from files that a stranger may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import DataError


def loads(text: str | bytes) -> Any:
    """Return the content of a JSON text, as json.loads does.

    Raises:
        ValueError: If it is not JSON in UTF-8, if an object has a key twice (json.loads takes the last without a word), or
            if it is nested more deeply than Python's stack.

    Example::

        >>> loads('{"steps": 3}')
        {'steps': 3}
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: If it cannot be read, or for anything that `loads` refuses.
    """
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:
        raise DataError(f"Expected JSON in {path}, but got something else: {error}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return made
