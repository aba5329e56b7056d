"""The order of results: the best first, what has no score last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

Name = TypeVar("Name")


def metric_text(value: float, higher_is_better: bool) -> str:
    """Return a metric as text; shares, for which more is better, are percentages."""
    return f"{value:.1%}" if higher_is_better else f"{value:.4g}"


def best_first(scores: Mapping[Name, float], higher_is_better: bool) -> list[Name]:
    """Return the names by their scores, the best first. Equal scores keep their order, and NaN comes last."""
    sign = -1 if higher_is_better else 1
    return sorted(scores, key=lambda name: (math.isnan(scores[name]), sign * scores[name]))
