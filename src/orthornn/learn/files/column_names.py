"""The names of a table's columns."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import DataError
from .cells import listed


def column_names(names: Sequence[str], where: object) -> list[str]:
    """Return names of columns without spaces around them. DataError if one is empty, or if two are the same then."""
    found = [name.strip() for name in names]
    if len(set(found)) != len(found) or not all(found):
        raise DataError(
            f"Expected columns with names, all different, in {where}, but got {listed(found)[:200]!r}. {NAME_EACH}"
        )
    return found


NAME_EACH = "Name each column, and no two alike."
