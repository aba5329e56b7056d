"""The task of in-memory sequences, as the trainer needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..learn.tasks import Batch, Task
from ..learn.tasks.linear_start import start_linear
from ..learn.tasks.sequences import Ragged
from ..learn.tasks.task import batch_rows


class Weighted(NamedTuple):
    """Targets, (B, O) or (B,), with the weight of each, (B,)."""

    data: Tensor
    weights: Tensor


@dataclass(frozen=True)
class ArraysTask(Task):
    """Sequences in memory, standardized, in training and validation parts; `kind` is the kind of the targets."""

    name: ClassVar[str] = "arrays"
    input: ClassVar[Literal["tokens", "real"]] = "real"
    output: ClassVar[Literal["all", "last"]] = "last"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    trivial_formula: ClassVar[str] = ""

    rows: Any
    lengths: Any
    targets: Any
    parts: Any
    outputs: int
    weights: Any = None  # of the sequences in the loss, with the mean 1 over each part; None: all are 1
    known: int = 0  # how many of the channels, the last ones, are values of later steps
    past: Any = ()  # for each output the channel that is its own past, and the factor between their standardized values

    @property
    def input_size(self) -> int:
        """Number of channels."""
        return self.rows.shape[1]

    @property
    def output_size(self) -> int:
        """Number of the network's outputs."""
        return self.outputs

    @property
    def steps(self) -> int:
        """Length of the longest sequence."""
        return int(self.lengths.max())

    @property
    def trivial_loss(self) -> float:
        """Loss of predicting standardized targets by their mean."""
        return 1.0

    def preprocessing(self) -> dict[str, Any]:
        """Return the channels that hold values of later steps."""
        own = self.input_size - self.known
        return {"leads": [0] * own + [1] * self.known} if self.known else {}

    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return the batch of an update, drawn from the training part."""
        which = self.parts["train"]
        return self._batch(which[batch_rows(step, batch_size, len(which), seed).numpy()])

    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Yield the validation part in order."""
        which = self.parts["validation"]
        for start in range(0, len(which), batch_size):
            yield self._batch(which[start : start + batch_size])

    test = validation

    def warm_start(self, model: Any) -> bool:
        """Start from linear regression if the model reads the last steps."""
        if model.recent is None:
            return False
        rows, ends = self.rows.double().numpy(), np.cumsum(self.lengths) - 1
        places = np.maximum(ends[:, None] - np.arange(model.recent.lags), ends[:, None] + 1 - self.lengths[:, None])
        own = rows[places[:, 1:], : rows.shape[1] - self.known].reshape(len(ends), -1)
        lagged, targets = np.concatenate([rows[ends], own], 1), self.targets.double().numpy()
        both = (self.parts["train"], self.parts["validation"])
        train, validation = ((lagged[own], targets[own]) for own in both)
        weights = None if self.weights is None else tuple(self.weights.double().numpy()[own] for own in both)
        start_linear(model, train, validation, self.past, weights=weights)
        return True

    def _batch(self, which: np.ndarray) -> Batch:
        inputs, own = Ragged(self.lengths).steps(which).take(self.rows), torch.from_numpy(which)
        return Batch(
            inputs, self.targets[own] if self.weights is None else Weighted(self.targets[own], self.weights[own])
        )

    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the mean squared error of numbers, or the cross-entropy of classes, with each sequence weighted.

        targets: (B, O) or (B,), or these with their weights.
        """
        if isinstance(targets, Weighted):
            return (self._losses(prediction, targets.data) * targets.weights).mean()
        if targets.is_floating_point():
            return (prediction - targets).square().mean()
        return F.cross_entropy(prediction, targets)

    def _losses(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sequence, (B,)."""
        if targets.is_floating_point():
            return (prediction - targets).square().mean(1)
        return F.cross_entropy(prediction, targets, reduction="none")

    def metrics(self, prediction: Tensor, targets: Any) -> dict[str, tuple[float, float]]:
        """Return the sum of the weighted losses, and the sum of the weights."""
        loss = float(self.loss(prediction, targets)) * len(prediction)
        return {"loss": (loss, float(targets.weights.sum()) if isinstance(targets, Weighted) else len(targets))}


@dataclass(frozen=True)
class ClassesTask(ArraysTask):
    """Sequences in memory and their classes, (n,)."""

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def has_classes(self, targets: Any) -> bool:
        """Return True."""
        return True

    def spread_loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the weighted cross-entropy to the class frequencies of the training part."""
        losses = -prediction.log_softmax(-1) @ self._frequencies.to(prediction.dtype)
        return (losses * targets.weights if isinstance(targets, Weighted) else losses).mean()

    @cached_property
    def _frequencies(self) -> Tensor:
        """The weighted shares of the classes in the training part: float64."""
        own = torch.from_numpy(self.parts["train"])
        weights = None if self.weights is None else self.weights[own].double()
        counts = torch.bincount(self.targets[own], weights, self.outputs).double()
        return counts / counts.sum()

    def metrics(self, prediction: Tensor, targets: Any) -> dict[str, tuple[float, float]]:
        """Return the sums of the weighted losses, of the weighted hits, and of the weights."""
        classes, weights = targets if isinstance(targets, Weighted) else (targets, torch.ones(len(targets)))
        hits = (prediction.argmax(1) == classes) * weights
        return {**super().metrics(prediction, targets), "accuracy": (float(hits.sum()), float(weights.sum()))}
