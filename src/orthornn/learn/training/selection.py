"""Which validation has the best weights, and whether the network still learns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


class Selection:
    """The best validation so far, and the validations since the network last became better.

    The best one is that of the best metric, and of equal metrics the latest: where few sequences are held back, many
    validations have the same accuracy, and later weights have seen more data, at lower rates. The loss would choose badly
    among them, because one sequence that is wrong with certainty raises it more than many others lower it. It counts for
    `stale`: a network becomes better with a better metric, or with the same metric and a lower loss.

    Args:
        metric: Name of the metric. higher_is_better: Which of two is better.

    Attributes:
        best: What was seen of the best validation; None before the first. stale: Validations since a better one.

    Example::

        >>> selection = Selection("accuracy", higher_is_better=True)
        >>> selection.see({"accuracy": 0.9, "loss": 0.4, "step": 1}), selection.see({"accuracy": 0.8, "loss": 0.5, "step": 2})
        (True, False)
        >>> selection.see({"accuracy": 0.9, "loss": 0.6, "step": 3})
        True
        >>> selection.best["step"], selection.stale
        (3, 2)
    """

    def __init__(self, metric: str, *, higher_is_better: bool) -> None:
        self.metric = metric
        self.sign = 1 if higher_is_better else -1
        self.best: dict[str, Any] | None = None
        self.stale = 0
        self._lead: tuple[float, float] | None = None

    def see(self, validation: Mapping[str, Any]) -> bool:
        """Count a validation; return whether it is the best now. One whose loss is not finite never is."""
        rank = self._rank(validation)
        if not math.isfinite(validation["loss"]):
            self.stale += 1
            return False
        if self._lead is None or rank > self._lead:
            self._lead, self.stale = rank, 0
        else:
            self.stale += 1
        if self.best is not None and rank[0] < self._rank(self.best)[0]:
            return False
        self.best = dict(validation)
        return True

    def go_on(self, best: dict[str, Any] | None, stale: int, validations: Iterable[Mapping[str, Any]]) -> None:
        """Go on from what a checkpoint holds. validations: All that were seen."""
        self.best, self.stale = best, stale
        self._lead = max((self._rank(one) for one in validations), default=None)

    def _rank(self, validation: Mapping[str, Any]) -> tuple[float, float]:
        return self.sign * validation[self.metric], -validation["loss"]
