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
        """Return the groups by their mean validation, or their mean test if a task has no validation data."""
        validation, test = self.validation(), self.test()
        scores = {name: statistics.fmean(validation[name] or test[name] or [math.nan]) for name in self.runs}
        return best_first(scores, self.task.higher_is_better)

    def verdicts(self) -> list[str]:
        """Return sentences that compare the test of the best group by validation with every other one."""
        return verdicts(self.test(), self.task.higher_is_better, f"test {self.task.metric}", self.validation())
