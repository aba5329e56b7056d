"""Groups of runs that differ in their seed only, compared by the metric of their task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..tasks import Task
from .ranking import best_first
from .significance import verdicts

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Standings:
    """The results of groups of runs that differ in their seed only.

    task: By whose metric they are compared. runs: (validation metrics, test metrics) of every finished run by group, as
    `runs.chosen` returns them.
    """

    task: Task
    runs: Mapping[str, Sequence[tuple[Metrics, Metrics]]]

    def validation(self, metric: str = "") -> dict[str, list[float]]:
        """Return a metric of the validation by group, or the task's, of all runs that have it."""
        return self._part(0, metric)

    def test(self, metric: str = "") -> dict[str, list[float]]:
        """Return a metric of the test by group, or the task's, of all runs that have it."""
        return self._part(1, metric)

    def _part(self, part: int, metric: str) -> dict[str, list[float]]:
        metric = metric or self.task.metric
        return {name: [one[part][metric] for one in own if metric in one[part]] for name, own in self.runs.items()}

    def best_first(self) -> list[str]:
        """Return the groups by their mean validation, or their mean test if there is a group without validation data."""
        numbers = self.test() if self._choosing is None else self._choosing
        scores = {name: statistics.fmean(own or [math.nan]) for name, own in numbers.items()}
        return best_first(scores, self.task.higher_is_better)

    def verdicts(self) -> list[str]:
        """Return sentences that compare the test of the best group with that of every other one."""
        return verdicts(self.test(), self.task.higher_is_better, f"test {self.task.metric}", self._choosing)

    @property
    def _choosing(self) -> dict[str, list[float]] | None:
        """The validation by group; None unless every group with a test has one, since only like can be compared."""
        validation = self.validation()
        return validation if all(validation[name] for name, own in self.test().items() if own) else None
