"""Steps that hold the state in `predict` and in a stream, but must not be passed to an exported network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._warnings import warn


def warn_of_held_steps(description: Mapping[str, Any] | None) -> None:
    """Warn about inputs whose missing values hold the state: an exported network treats NaN like any other number.

    Args:
        description: Description of the run, description.json; None for a network without units.
    """
    columns = (description or {}).get("holds") or []
    if columns:
        warn(
            f"the network holds its state where {', '.join(map(repr, columns[:5]))}{', ...' if len(columns) > 5 else ''} "
            f"is missing (missing='hold'), but an exported network does not: its state stays NaN, or in integers "
            f"NaN is the lowest number. Do not call it for such steps. To silence this, train with another --missing."
        )
