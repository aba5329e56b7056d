"""The task of in-memory sequences, as the trainer needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..learn.tasks import Batch, Objective, Problem, Task
from ..learn.tasks.abilities import warm_start
from ..learn.tasks.linear_start import start_linear
from ..learn.tasks.problem import in_batches
from ..learn.tasks.sequences import Ragged
from ..learn.tasks.task import batch_rows, judged


class Weighted(NamedTuple):
    """Targets, (B, O) or (B,), with the weight of each, (B,)."""

    data: Tensor
    weights: Tensor


@dataclass(frozen=True)
class ArraysTask(Task):
    """Sequences in memory, standardized, in training and validation parts; `kind` is the kind of the targets."""

    name: ClassVar[str] = "arrays"
    output: ClassVar[Literal["all", "last"]] = "last"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    rows: Any
    lengths: Any
    targets: Any
    parts: Any
    outputs: int
    weights: Any = None  # of the sequences in the loss, with the mean 1 over each part; None: all are 1
    known: int = 0  # how many of the channels, the last ones, are values of later steps
    past: Any = ()  # for each output the channel that is its own past, and the factor between their standardized values

    @property
    def steps(self) -> int:
        """Length of the longest sequence."""
        return int(self.lengths.max())

    def problem(self) -> Problem:
        """Return the sequences in order; the test is the validation part."""
        sizes = {"input_size": self.rows.shape[1], "output_size": self.outputs}
        says = "values" if self.targets.is_floating_point() else "classes"
        own = sizes["input_size"] - self.known
        leads = {"leads": [0] * own + [1] * self.known} if self.known else {}
        schema = {**sizes, "input": "real", "output": "last", "says": says, **leads}
        return Problem(schema, self._train_batch, self._validation, self._validation)

    def objective(self) -> Objective:
        """Return the squared error; that of predicting standardized targets by their mean is 1."""
        return NumbersObjective(trivial=1.0, **judged(self))

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        which = self.parts["train"]
        return self._batch(which[batch_rows(step, batch_size, len(which), seed).numpy()])

    def _validation(self, batch_size: int) -> Iterator[Batch]:
        which = self.parts["validation"]
        return in_batches(len(which), batch_size, lambda own: self._batch(which[own]))

    def _batch(self, which: np.ndarray) -> Batch:
        inputs, own = Ragged(self.lengths).steps(which).take(self.rows), torch.from_numpy(which)
        return Batch(
            inputs, self.targets[own] if self.weights is None else Weighted(self.targets[own], self.weights[own])
        )


@dataclass(frozen=True)
class ClassesTask(ArraysTask):
    """Sequences in memory and their classes, (n,)."""

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def objective(self) -> Objective:
        """Return the cross-entropy, with the weighted shares of the classes in the training part."""
        own = torch.from_numpy(self.parts["train"])
        weights = None if self.weights is None else self.weights[own].double()
        counts = torch.bincount(self.targets[own], weights, self.outputs).double()
        return ClassesObjective(counts / counts.sum(), trivial=1.0, **judged(self))


@warm_start.register
def _(task: ArraysTask, model: Any) -> bool:
    """Start from linear regression if the model reads the last steps."""
    if model.recent is None:
        return False
    rows, ends = task.rows.double().numpy(), np.cumsum(task.lengths) - 1
    places = np.maximum(ends[:, None] - np.arange(model.recent.lags), ends[:, None] + 1 - task.lengths[:, None])
    own = rows[places[:, 1:], : rows.shape[1] - task.known].reshape(len(ends), -1)
    lagged, targets = np.concatenate([rows[ends], own], 1), task.targets.double().numpy()
    both = (task.parts["train"], task.parts["validation"])
    train, validation = ((lagged[own], targets[own]) for own in both)
    weights = None if task.weights is None else tuple(task.weights.double().numpy()[own] for own in both)
    start_linear(model, train, validation, task.past, weights=weights)
    return True


@dataclass(frozen=True)
class NumbersObjective(Objective):
    """The mean squared error, with each sequence weighted. targets: (B, O), or these with their weights."""

    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the mean of the weighted losses."""
        if isinstance(targets, Weighted):
            return (self._losses(prediction, targets.data) * targets.weights).mean()
        return self._mean_loss(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Any) -> dict[str, tuple[float, float]]:
        """Return the sum of the weighted losses, and the sum of the weights."""
        loss = float(self.loss(prediction, targets)) * len(prediction)
        return {"loss": (loss, float(targets.weights.sum()) if isinstance(targets, Weighted) else len(targets))}

    def _losses(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sequence, (B,)."""
        return (prediction - targets).square().mean(1)

    def _mean_loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction - targets).square().mean()


@dataclass(frozen=True)
class ClassesObjective(NumbersObjective):
    """The cross-entropy, with each sequence weighted. frequencies: Of the classes, (K,). targets: (B,), or with weights."""

    frequencies: Tensor

    def has_classes(self, targets: Any) -> bool:
        """Return True."""
        return True

    def spread_loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the weighted cross-entropy to the class frequencies of the training part."""
        losses = -prediction.log_softmax(-1) @ self.frequencies.to(prediction.dtype)
        return (losses * targets.weights if isinstance(targets, Weighted) else losses).mean()

    def metrics(self, prediction: Tensor, targets: Any) -> dict[str, tuple[float, float]]:
        """Return the sums of the weighted losses, of the weighted hits, and of the weights."""
        classes, weights = targets if isinstance(targets, Weighted) else (targets, torch.ones(len(targets)))
        hits = (prediction.argmax(1) == classes) * weights
        return {**super().metrics(prediction, targets), "accuracy": (float(hits.sum()), float(weights.sum()))}

    def _losses(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets, reduction="none")

    def _mean_loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)
