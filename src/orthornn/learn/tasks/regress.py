"""Regression on the user's own sequences: numbers after the last step of a sequence, or at every step; see
number_objective.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Table
from .abilities import baselines
from .number_objective import NumberObjective
from .plain_baselines import regressors
from .table_data import ReadTable, TableData, TargetCells, Targets, moments
from .table_options import TableOptions, names_in
from .table_sequences import Sequences
from .table_series import numbers_to_transform
from .table_splits import Split
from .table_task import TableTask
from .table_values import INFINITE, strict_targets
from .target_transform import transformed
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


def raw_numbers(options: TableOptions, table: Table) -> np.ndarray:
    """Return the targets of every row as the file has them, (R, O)."""
    return np.stack([numbers_to_transform(options, table, name, "target") for name in names_in(options.target)], 1)


def read_numbers(options: TableOptions, table: Table) -> TargetCells:
    """Return the same as the network learns them. DataError for a missing one that nobody spoke of, or an infinite one."""
    targets = raw_numbers(options, table)
    wrong = (np.isnan(targets) & strict_targets(options) | np.isinf(targets)).any(1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        infinite = bool(np.isinf(targets[row]).any())
        advice = "Fill them in, or leave them out of the loss: missing='hold', --missing hold."
        raise DataError(
            f"Expected finite numbers in {table.path}, column(s) {options.target}, but got {targets[row].tolist()} in "
            f"{table.row(row)}, as in {int(wrong.sum())} row(s) in all. "
            f"{INFINITE if infinite else advice}"
        )
    return TargetCells(transformed(targets, options.target_transform))


def number_targets(options: TableOptions, targets: np.ndarray, split: Split) -> Targets:
    """Return targets (R, O), in the order of the sequences, with their scale in the training part.

    DataError if there are none in it, or if one is the same in all of it.
    """
    pieces = split.pieces["train"]
    if options.output == "all":
        rows = np.unique(
            np.concatenate([np.arange(at + options.forecasting.leads[0], at + steps) for at, steps in pieces])
        )
    else:
        rows = np.array([at + steps - 1 for at, steps in pieces])
    known = targets[rows]
    known = known[np.isfinite(known).all(1)]
    if not len(known):
        raise DataError(
            f"Expected targets in the training part of {options.data}, but got none. Choose another split_seed, or add data."
        )
    mean, deviation = moments(options, known, names_in(options.target))
    if not deviation.all():
        same = [name for name, spread in zip(names_in(options.target), deviation) if not spread]
        raise DataError(
            f"Expected targets that differ in the training part of {options.data}, but {listed(same)} is the "
            f"same in all of it. Choose another split_seed, or leave it out of target, --target."
        )
    return Targets(targets, np.isfinite(targets).all(1), mean, deviation)
