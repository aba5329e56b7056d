"""Classification as functions of a network's output and the targets.

The loss is the cross-entropy in nats; with class weights w, sum_i w(y_i) nll_i / sum_i w(y_i). The trivial baseline
predicts each class its (weighted) frequency among the training targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .decision_threshold import best_threshold, decided, read_threshold
from .objective import Objective
from .problem import Batch
from .sequences import flat
from .table_data import IGNORED


@dataclass(frozen=True)
class ClassObjective(Objective):
    """Cross-entropy. counts: Of the training targets of each class, float64 (K,). weights: Of the classes, float32 (K,)."""

    trivial_formula: ClassVar[str] = "-sum_k p_k ln p_k over the class frequencies of the training targets"

    counts: Tensor
    weights: Tensor | None = None

    @property
    def frequencies(self) -> Tensor:
        """The shares of the classes among the training targets, each by its weight: float64."""
        weighted = self.counts * (self.weights.double() if self.weights is not None else 1)
        return weighted / weighted.sum()

    @property
    def trivial_loss(self) -> float:
        """The entropy in nats of the (weighted) class frequencies of the training targets."""
        return float(torch.special.entr(self.frequencies).sum())

    @property
    def trivial_metric(self) -> float:
        """The share of the most frequent class among the training targets."""
        return float(self.counts.max() / self.counts.sum())

    def rows(self, output: Tensor, targets: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
        """Return the output (rows, K) and the targets (rows,), row by row."""
        if self.output == "all":
            return flat(output, targets)
        assert isinstance(targets, Tensor)
        return output, targets

    def loss(self, output: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the (weighted) cross-entropy in nats."""
        rows, wanted = self.rows(output, targets)
        return F.cross_entropy(rows, wanted, self._weight_of(rows), ignore_index=IGNORED)

    def spread_loss(self, output: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        """Return the cross-entropy to the (weighted) class frequencies of the training targets; each target keeps the weight
        of its class.
        """
        rows, wanted = self.rows(output, targets)
        known = wanted != IGNORED
        losses = -rows[known].log_softmax(-1) @ self.frequencies.to(rows.device, rows.dtype)
        weight = self._weight_of(rows)
        if weight is None:
            return losses.mean()
        own = weight[wanted[known]]
        return (losses * own).sum() / own.sum()

    def has_classes(self, targets: Any) -> bool:
        """Return True."""
        return True

    def mass(self, batch: Batch) -> float:
        """Return the weight of all targets that are known."""
        targets = batch.targets
        wanted = targets.data if isinstance(targets, PackedSequence) else targets
        known = wanted[wanted != IGNORED]
        return float(len(known) if self.weights is None else self.weights[known.cpu()].sum())

    def metrics(
        self, output: Tensor, targets: Tensor | PackedSequence, threshold: float | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return loss and accuracy, the share of targets classified correctly; threshold: see decision_threshold.py."""
        rows, wanted = self.rows(output, targets)
        counted = wanted != IGNORED
        weight = self._weight_of(rows)
        mass = float(counted.sum() if weight is None else weight[wanted[counted]].sum())
        total = float(F.cross_entropy(rows, wanted, weight, ignore_index=IGNORED, reduction="sum").detach())
        hits = (decided(rows, threshold) == wanted) & counted
        return {"loss": (total, mass), "accuracy": (float(hits.sum()), int(counted.sum()))}

    def errors(self, output: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return loss, without weights, and accuracy of probabilities (rows, K)."""
        nats = -np.log(output[np.arange(len(targets)), targets])
        return {"loss": float(nats.mean()), "accuracy": float((output.argmax(1) == targets).mean())}

    def chosen_threshold(self, asked: str, outputs: Iterable[tuple[Tensor, Any]]) -> float:
        """Return the threshold of the second class by outputs and targets of the validation part."""
        how = read_threshold(asked)
        if isinstance(how, float):
            return how
        pairs = [self.rows(output, targets) for output, targets in outputs]
        rows, wanted = (torch.cat([pair[place].cpu() for pair in pairs]) for place in (0, 1))
        counted = wanted != IGNORED
        probabilities = rows.double().softmax(-1)[counted][:, 1]
        return best_threshold(probabilities.numpy(), (wanted[counted] == 1).numpy(), how)

    def _weight_of(self, rows: Tensor) -> Tensor | None:
        return None if self.weights is None else self.weights.to(rows.device, rows.dtype)
