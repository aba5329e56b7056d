"""Steps that hold the state in `predict` and in a stream, and which an exported network has to be spared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._warnings import warn


def warn_of_held_steps(description: Mapping[str, Any] | None) -> None:
    """Warn of inputs whose missing values hold the state: an exported network takes NaN for a number like any other.

    Args:
        description: Of the run, description.json; None for a network without units.
    """
    columns = (description or {}).get("holds") or []
    if columns:
        warn(
            f"the network holds its state where {', '.join(map(repr, columns[:5]))}{', ...' if len(columns) > 5 else ''} "
            f"is missing (missing='hold'), and an exported one does not: its state becomes NaN for good, or, of integers, a "
            f"NaN is the lowest number. Call it for no such step. To silence this, train with another missing, --missing."
        )
