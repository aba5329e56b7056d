"""Regression on the user's own sequences: numbers after the last step of a sequence, or at every step.

The loss is the mean squared error of the standardized targets, over all that are there; `mse` is the same in the
targets' own units. The trivial baseline is the mean of the training targets. With a transform (target_transform.py), all
are those of transformed targets, but for the metrics in the targets' own units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice
from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Columns
from .plain_baselines import regressors
from .regression_metrics import own_scores, sums, with_r2
from .sequences import flat
from .table_rows import INFINITE
from .table_task import TableTask
from .target_transform import TRANSFORMS, in_units, transformed
from .task import Batch


@dataclass(frozen=True)
class Numbers(TableTask):
    """A task whose targets are numbers: the common base of regression and forecasting."""

    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    trivial_formula: ClassVar[str] = "the variance of the standardized training targets"
    without_effect: ClassVar[tuple[str, ...]] = ("stratified",)  # there are no classes

    target_transform: Literal["log", "log1p"] | None = None  # type: ignore[misc]
    """Learn the logarithm of targets that change in proportion to their level: log for targets above 0, log1p, of
    1 + target, from 0 on. Predictions are in the units of the file. Default: the targets as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_transform is not None:
            check_choice("target_transform", self.target_transform, TRANSFORMS)

    @property
    def output_size(self) -> int:
        """The target columns."""
        return len(self.target_columns)

    @property
    def trivial_loss(self) -> float:
        """The squared error of the training targets' mean, on the training targets, standardized."""
        targets = self._known("train")
        return float((targets - targets.nanmean(0)).square().nanmean())

    def baselines(self) -> dict[str, float]:
        """Return the test loss of the mean of the training targets."""
        return {"mean of the training targets": self._test_loss(self._known("train").nanmean(0))}

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the mean squared error of the standardized targets."""
        rows, wanted = self._rows(prediction, targets)
        there = ~wanted.isnan()
        return (rows[there] - wanted[there]).square().mean()

    def mass(self, batch: Batch) -> float:
        """Return how many targets there are."""
        targets = batch.targets.data if isinstance(batch.targets, PackedSequence) else batch.targets
        return int((~targets.isnan()).sum())

    def metrics(self, prediction: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss, and in the targets' own units mse, mae and what r2 needs, the means over the targets if there are
        several; see regression_metrics.py.
        """
        rows, wanted = self._rows(prediction, targets)
        squares = (rows - wanted).square().detach().double()
        mean, deviation = (torch.from_numpy(scale).to(squares.device) for scale in self._target_scale)
        if self.target_transform is None:
            own = squares * deviation.square()
            errors, targets = (values.detach().double() * deviation for values in (rows - wanted, wanted))
        else:
            said, true = (self.in_units(values.detach().double()) for values in (rows, wanted))
            errors, targets = said - true, true - in_units(mean, self.target_transform)
            own = errors.square()
        there = ~wanted.isnan()  # a prediction that is NaN, unlike a target, is no missing value
        count = int(there.sum())
        return {
            "loss": (float(squares[there].sum()), count),
            "mse": (float(own[there].sum()), count),
            **sums(errors, targets),
        }

    def summarized(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics with r2, where it is defined."""
        return with_r2(means)

    def in_units(self, prediction: Tensor) -> Tensor:
        """Return a prediction (..., O) of a model in the targets' own units."""
        mean, deviation = (torch.from_numpy(scale).to(prediction) for scale in self._target_scale)
        return in_units(prediction * deviation + mean, self.target_transform)

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing with the targets' names, means and deviations, since the network predicts
        standardized values, and their transform, if there is one.
        """
        mean, deviation = self._target_scale
        targets = {"target_scale": deviation.tolist(), "target_offset": mean.tolist(), "labels": self.target_columns}
        done = {} if self.target_transform is None else {"target_transform": self.target_transform}
        return {**super().preprocessing(), **targets, **done}

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        return regressors()

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        return self._errors(np.asarray(method.predict(features)).reshape(targets.shape), targets)

    def _errors(self, found: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of standardized values (rows, O)."""
        squares = np.square(found.astype(np.float64) - targets)
        said, true = (self.in_units(torch.from_numpy(values).double()).numpy() for values in (found, targets))
        own = squares * self._target_scale[1] ** 2 if self.target_transform is None else np.square(said - true)
        return {"loss": float(squares.mean()), "mse": float(own.mean()), **own_scores(said, true)}

    def _counted_targets(self, targets: np.ndarray) -> np.ndarray:
        return ~np.isnan(targets[:, 0])

    def _rows(self, prediction: Tensor, targets: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
        """Return prediction and targets row by row, (rows, O) each; a target that is not there is NaN."""
        rows, wanted = flat(prediction, targets) if self.output == "all" else (prediction, targets)
        assert isinstance(wanted, Tensor)
        return rows, wanted

    def _known(self, part: str) -> Tensor:
        """Return the standardized targets that enter the loss: (rows, O) float64."""
        targets = self._parts[part].targets.double()
        return targets[~targets.isnan().all(1)]

    def _test_loss(self, answer: Tensor) -> float:
        return float((self._known("test") - answer).square().nanmean())

    def _told_of_targets(self) -> list[str]:
        mean, deviation = self._target_scale
        how = self.target_transform
        names = [name if how is None else f"{how}({name})" for name in self.target_columns]
        said = [f"{name} {m:.4g} ± {d:.3g}" for name, m, d in zip(names, mean, deviation)]
        known = np.isfinite(self._table.targets)
        partly = int((known.any(1) & ~known.all(1)).sum())
        left_out = (
            [f"{partly} row(s) have some of the targets only, and none of theirs enters the loss"] if partly else []
        )
        return [f"targets, mean and standard deviation in training: {listed(said)}", *left_out]

    def _raw_targets(self, file: Columns) -> np.ndarray:
        return np.stack([self._check_domain(file, name, "target") for name in self.target_columns], 1)

    def _read_targets(self, file: Columns) -> np.ndarray:
        targets = self._raw_targets(file)
        wrong = (np.isnan(targets) & self._strict_targets | np.isinf(targets)).any(1)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            infinite = bool(np.isinf(targets[row]).any())
            advice = "Fill them in, or leave them out of the loss: missing='hold', --missing hold."
            raise DataError(
                f"Expected finite numbers in {file.path}, column(s) {self.target}, but got {targets[row].tolist()} in "
                f"{file.row(row)}, as in {int(wrong.sum())} row(s) in all. "
                f"{INFINITE if infinite else advice}"
            )
        return transformed(targets, self.target_transform)

    def _target_there(self, targets: np.ndarray) -> np.ndarray:
        return np.isfinite(targets).all(1)

    def _target_tensor(self, targets: np.ndarray, there: np.ndarray) -> Tensor:
        mean, deviation = (np.tile(scale, targets.shape[1] // len(scale)) for scale in self._target_scale)
        standard = (targets - mean) / deviation
        standard[~there] = np.nan
        return torch.from_numpy(standard.astype(np.float32))

    @cached_property
    def _target_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (O,) of the targets of the training part."""
        pieces, targets = self._pieces["train"], self._table.targets
        if self.output == "all":
            rows = np.unique(np.concatenate([np.arange(at + self.leads[0], at + steps) for at, steps in pieces]))
        else:
            rows = np.array([at + steps - 1 for at, steps in pieces])
        known = targets[rows]
        known = known[np.isfinite(known).all(1)]
        if not len(known):
            raise DataError(
                f"Expected targets in the training part of {self.data}, but got none. Choose another split_seed, or add data."
            )
        mean, deviation = self._moments(known, self.target_columns)
        if not deviation.all():
            raise DataError(
                f"Expected targets that differ in the training part of {self.data}, but "
                f"{listed([name for name, spread in zip(self.target_columns, deviation) if not spread])} is the "
                f"same in all of "
                f"it. Choose another split_seed, or leave it out of target, --target."
            )
        return mean, deviation


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
