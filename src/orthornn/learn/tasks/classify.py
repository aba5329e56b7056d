"""Classification of the user's own sequences: one class per sequence, or one per step.

The loss is the cross-entropy in nats; with class weights w, sum_i w(y_i) nll_i / sum_i w(y_i). The trivial baseline
predicts each class its (weighted) frequency among the training targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_float32
from ...errors import ArgumentError, DataError
from ..files.cells import listed, shown
from ..files.columns import Columns
from ..files.label_types import type_of_labels
from .decision_threshold import best_threshold, decided, read_threshold
from .plain_baselines import classifiers
from .sequences import flat
from .table_options import entries_in
from .table_task import TableTask
from .task import Batch

IGNORED = -100


@dataclass(frozen=True)
class Classify(TableTask):
    """Name the class of your own sequences, or of each of their steps."""

    name: ClassVar[str] = "classify"
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    trivial_formula: ClassVar[str] = "-sum_k p_k ln p_k over the class frequencies of the training targets"

    every_step: bool = False
    """Predict a class at every step, instead of one after the last."""
    class_weights: str | None = None
    """balanced: each class counts the same in the loss; or label=weight, separated by commas (others weigh 1). Default:
    no weights."""
    threshold: str | None = None
    """With two classes: the probability from which the second one, in the order of their names, is predicted; or
    accuracy, balanced_accuracy or f1, by which validation chooses it. Default: the likelier class."""
    ignore: str | None = None
    """Label without a meaning, which enters neither loss nor accuracy. Default: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None:
            read_threshold(self.threshold)

    @property
    def output(self) -> Literal["all", "last"]:  # type: ignore[override]
        """Either "all", with every_step, or "last"."""
        return "all" if self.every_step else "last"

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing with the classes' names, and the type of their column if it is not text."""
        kind = type_of_labels(Path(self.data).expanduser(), self._file, self._target, self.classes)
        return {**super().preprocessing(), "labels": self.classes, **({} if kind is None else {"label_type": kind})}

    @property
    def output_size(self) -> int:
        """The classes."""
        return len(self.classes)

    @property
    def trivial_loss(self) -> float:
        """The entropy in nats of the (weighted) class frequencies of the training targets."""
        return float(torch.special.entr(self._frequencies).sum())

    @property
    def trivial_metric(self) -> float:
        """The share of the most frequent class among the training targets."""
        return float(self._counts.max() / self._counts.sum())

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the (weighted) cross-entropy in nats."""
        rows, wanted = self.rows(prediction, targets)
        return F.cross_entropy(rows, wanted, self._weight_of(rows), ignore_index=IGNORED)

    def has_classes(self, targets: Any) -> bool:
        """Return True."""
        return True

    def spread_loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the cross-entropy to the (weighted) class frequencies of the training targets; each target keeps the weight
        of its class.
        """
        rows, wanted = self.rows(prediction, targets)
        known = wanted != IGNORED
        losses = -rows[known].log_softmax(-1) @ self._frequencies.to(rows.device, rows.dtype)
        weight = self._weight_of(rows)
        if weight is None:
            return losses.mean()
        own = weight[wanted[known]]
        return (losses * own).sum() / own.sum()

    def mass(self, batch: Batch) -> float:
        """Return the weight of all targets that are known."""
        targets = batch.targets.data if isinstance(batch.targets, PackedSequence) else batch.targets
        known = targets[targets != IGNORED]
        return float(len(known) if self._weights is None else self._weights[known.cpu()].sum())

    def metrics(
        self, prediction: Tensor, targets: Tensor | PackedSequence, threshold: float | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return loss and accuracy, the share of targets classified correctly; threshold: see decision_threshold.py."""
        rows, wanted = self.rows(prediction, targets)
        counted = wanted != IGNORED
        weight = self._weight_of(rows)
        mass = float(counted.sum() if weight is None else weight[wanted[counted]].sum())
        total = float(F.cross_entropy(rows, wanted, weight, ignore_index=IGNORED, reduction="sum").detach())
        hits = (decided(rows, threshold) == wanted) & counted
        return {"loss": (total, mass), "accuracy": (float(hits.sum()), int(counted.sum()))}

    def choose_threshold(self, outputs: Iterable[tuple[Tensor, Any]]) -> float | None:
        """Return the threshold of the second class by predictions and targets of the validation part, if one is asked for."""
        if self.threshold is None:
            return None
        asked = read_threshold(self.threshold)
        if isinstance(asked, float):
            return asked
        pairs = [self.rows(prediction, targets) for prediction, targets in outputs]
        rows, wanted = (torch.cat([pair[place].cpu() for pair in pairs]) for place in (0, 1))
        counted = wanted != IGNORED
        probabilities = rows.double().softmax(-1)[counted][:, 1]
        return best_threshold(probabilities.numpy(), (wanted[counted] == 1).numpy(), asked)

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        return classifiers()

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        found = np.full((len(targets), len(self.classes)), np.finfo(np.float32).tiny)
        found[:, method.classes_] = method.predict_proba(features).clip(np.finfo(np.float32).tiny)
        nats = -np.log(found[np.arange(len(targets)), targets])
        return {"loss": float(nats.mean()), "accuracy": float((found.argmax(1) == targets).mean())}

    def _counted_targets(self, targets: np.ndarray) -> np.ndarray:
        return targets != IGNORED

    @cached_property
    def classes(self) -> list[str]:
        """The labels, in the order of the outputs: by number if all are numbers, else by name."""
        found = sorted({label for label in self._labels if label is not None and label != self.ignore})
        try:
            return sorted(found, key=float)  # 7 and 007 by name
        except ValueError:
            return found

    @property
    def _target(self) -> str:
        """The column of the classes."""
        return self.target_columns[0]

    @cached_property
    def _labels(self) -> np.ndarray:
        if len(self.target_columns) != 1:
            raise DataError(f"Expected one target to classify, but got {self.target!r}.")
        labels = self._file.labels(self._target, "target")
        if self.ignore is not None and self.ignore not in set(labels):
            known = ", ".join(map(str, sorted({str(label) for label in labels})[:20]))
            raise DataError(
                f"Expected ignore to be a label of {self._target!r}, but got {self.ignore!r}. Name one of {known}."
            )
        return labels

    @property
    def _strata(self) -> np.ndarray | None:
        if not self.stratified or self.every_step:
            return None
        ends = self._sequences.starts + self._sequences.lengths - 1
        return self._labels[self._arranged_rows[0]][ends]

    def _told_of_targets(self) -> list[str]:
        counts = self._counts.long().tolist()
        most = [f"{label} {count}" for label, count in zip(self.classes, counts)]
        return [f"classes: {listed(most)} in training"]

    def _raw_targets(self, file: Columns) -> np.ndarray:
        labels = file.labels(self._target, "target")
        return np.array([None if label == self.ignore else label for label in labels], object)

    def _read_targets(self, file: Columns) -> np.ndarray:
        labels = self._labels
        if self._strict_targets.any() and None in labels:
            row = list(labels).index(None)
            words = "; or if it is the name of a class, such as None or NA: default_na='empty', --default-na empty"
            raise DataError(
                f"Expected a label for every step in {file.path}, column {self._target!r}, but got none in {file.row(row)}. "
                f"Fill it in, or leave such steps out of the loss: missing='hold', --missing hold"
                f"{words * self._takes_words_for_missing}."
            )
        number = {label: code for code, label in enumerate(self.classes)}
        if len(number) < 2:
            raise DataError(
                f"Expected at least 2 classes, but {file.path}, column {self._target!r}, has "
                f"{f'only {shown(next(iter(number)))}' if number else 'no label'}. Add sequences of another class, or name "
                f"another column with target, --target."
            )
        if self.threshold is not None and len(number) > 2:
            raise DataError(
                f"Expected 2 classes for threshold={self.threshold!r}, but {file.path}, column {self._target!r}, has "
                f"{len(number)}. Leave the threshold out; class_weights shifts the balance of several classes."
            )
        return np.array([number.get(label, IGNORED) for label in labels])

    def _target_there(self, targets: np.ndarray) -> np.ndarray:
        sequences = self._table.sequences
        if self.output == "last":
            last = np.repeat(targets[sequences.starts + sequences.lengths - 1], sequences.lengths)
            same = last == targets
            if not same.all():
                gone = self.ignore is None and bool((same | (targets == IGNORED) | (last == IGNORED)).all())
                raise DataError(
                    f"Expected one label in all rows of a sequence, but {self.data}, column {self._target!r}, "
                    f"{'is missing in some of its rows. Repeat it in all of them' if gone else 'changes within one'}. For a "
                    f"class at every step: every_step=True, --every-step."
                )
        return targets != IGNORED

    def _target_tensor(self, targets: np.ndarray, there: np.ndarray) -> Tensor:
        return torch.from_numpy(np.where(there, targets, IGNORED))

    def rows(self, prediction: Tensor, targets: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
        """Return the prediction (rows, K) and the targets (rows,), row by row."""
        if self.output == "all":
            return flat(prediction, targets)
        assert isinstance(targets, Tensor)
        return prediction, targets

    def _weight_of(self, rows: Tensor) -> Tensor | None:
        return None if self._weights is None else self._weights.to(rows.device, rows.dtype)

    @cached_property
    def _frequencies(self) -> Tensor:
        """The shares of the classes among the training targets, each by its weight: float64."""
        weighted = self._counts * (self._weights.double() if self._weights is not None else 1)
        return weighted / weighted.sum()

    @cached_property
    def _counts(self) -> Tensor:
        """The number of training targets of each class: float64."""
        targets = self._parts["train"].targets
        return torch.bincount(targets[targets != IGNORED], minlength=len(self.classes)).double()

    @cached_property
    def _weights(self) -> Tensor | None:
        if self.class_weights is None:
            return None
        if self.class_weights == "balanced":
            if not bool(self._counts.all()):
                absent = [label for label, count in zip(self.classes, self._counts) if not count]
                raise DataError(
                    f"Expected training targets of every class for class_weights='balanced', but {self.data} has none of "
                    f"{', '.join(absent)}. Choose another split_seed, or name weights."
                )
            return (self._counts.sum() / (len(self.classes) * self._counts)).float()
        weights, given = dict.fromkeys(self.classes, 1.0), set()
        for entry in entries_in(self.class_weights):
            label, _, weight = entry.rpartition("=")
            label = label.strip()
            try:
                value = float(weight)
            except ValueError:
                value = float("nan")
            if label not in weights or not value >= 0:
                raise ArgumentError(
                    f"Expected class_weights to be 'balanced' or label=weight, separated by commas, with the labels "
                    f"{', '.join(self.classes[:20])}, but got {self.class_weights!r}."
                )
            if label in given:
                raise ArgumentError(f"Expected one class weight for {label!r}, but got several. Give one.")
            given.add(label)
            advice = "To leave a class out, use ignore."
            weights[label] = check_float32(f"the class weight of {label!r}", value, advice, zero=False)
        return torch.tensor(list(weights.values()))
