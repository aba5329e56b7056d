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
            f"the network holds its state at steps without a value of {', '.join(map(repr, columns[:5]))}"
            f"{', ...' if len(columns) > 5 else ''} (missing='hold'), but an exported network does not: its state stays NaN, "
            f"or in integers NaN is the lowest number. Do not call it for such steps. To silence this, train with another "
            f"--missing."
        )
