"""Regression on the user's own sequences: numbers after the last step of a sequence, or at every step; see
number_objective.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from ..._checks import check_choice
from ..files.cells import listed
from ..files.columns import Table
from .abilities import baselines
from .number_objective import NumberObjective
from .number_targets import number_targets, read_numbers
from .plain_baselines import regressors
from .table_data import ReadTable, TableData, TargetCells, Targets
from .table_options import names_in
from .table_sequences import Sequences
from .table_splits import Split
from .table_task import TableTask
from .target_transform import TRANSFORMS
from .task import judged


@dataclass(frozen=True)
class Numbers(TableTask):
    """A task whose targets are numbers: the common base of regression and forecasting."""

    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    stratified: bool = field(default=True, metadata={"without_effect": True})  # there are no classes
    target_transform: Literal["log", "log1p"] | None = None  # type: ignore[misc]
    """Learn the logarithm of targets that change in proportion to their level: log for targets above 0, log1p, of
    1 + target, from 0 on. Predictions are in the units of the file. Default: the targets as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_transform is not None:
            check_choice("target_transform", self.target_transform, TRANSFORMS)

    def _objective(self, read: ReadTable) -> NumberObjective:
        """Return the squared error, in the scale of the training part."""
        own, known = read.data.targets, known_targets(read.data, "train")
        return NumberObjective(own.mean, own.deviation, known, self.target_transform, **judged(self))

    def _outputs(self, read: ReadTable) -> dict[str, Any]:
        """Return the targets' names, means and deviations, since the network predicts standardized values, and their
        transform, if there is one.
        """
        own, names = read.data.targets, names_in(self.target)
        scale = {"target_scale": own.deviation.tolist(), "target_offset": own.mean.tolist()}
        done = {} if self.target_transform is None else {"target_transform": self.target_transform}
        return {"output_size": len(names), "says": "values", **scale, "labels": names, **done}

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        return regressors()

    def _summary_of_targets(self) -> list[str]:
        how, own = self.target_transform, self.table().data.targets
        names = [name if how is None else f"{how}({name})" for name in names_in(self.target)]
        said = [f"{name} {m:.4g} ± {d:.3g}" for name, m, d in zip(names, own.mean, own.deviation)]
        known = np.isfinite(own.values)
        partly = int((known.any(1) & ~known.all(1)).sum())
        left_out = (
            [f"{partly} row(s) have some of the targets only, and none of theirs enters the loss"] if partly else []
        )
        return [f"targets, mean and standard deviation in training: {listed(said)}", *left_out]

    def _target_cells(self, table: Table) -> TargetCells:
        return read_numbers(self, table)

    def _targets(self, cells: TargetCells, sequences: Sequences, split: Split) -> Targets:
        return number_targets(self, cells.values[sequences.order], split)


@dataclass(frozen=True)
class Regress(Numbers):
    """Predict numbers from your own sequences, after the last step or at each."""

    name: ClassVar[str] = "regress"

    every_step: bool = False
    """Numbers at every step, instead of after the last one (then the last row's)."""

    @property
    def output(self) -> Literal["all", "last"]:  # type: ignore[override]
        """Either "all", with every_step, or "last"."""
        return "all" if self.every_step else "last"


@baselines.register
def _(task: Numbers) -> dict[str, float]:
    """Return the test loss of the mean of the training targets."""
    data = task.table().data
    return {"mean of the training targets": loss_of(data, known_targets(data, "train").nanmean(0))}


def loss_of(data: TableData, answer: Tensor) -> float:
    """Return the test loss of standardized answers, (O,) or (rows, O)."""
    return float((known_targets(data, "test") - answer).square().nanmean())


def known_targets(data: TableData, part: str) -> Tensor:
    """Return the standardized targets that enter the loss: (rows, O) float64."""
    targets = data.parts[part].targets.double()
    return targets[~targets.isnan().all(1)]
