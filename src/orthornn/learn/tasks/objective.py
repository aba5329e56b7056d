"""The judgment of predictions: loss, metrics and the trivial baseline, as functions of (prediction, targets)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .problem import Batch


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """An objective. A prediction is (T, B, O), (R, O) if packed, or (B, O), as `output` says.

    name: Of its task, for messages. output, metric, higher_is_better: As of a task.
    trivial: The loss of the best prediction that does not look at the input, where that is a number from the start.
    trivial_formula: The same as a formula.
    carries_state: Whether the sequences of a batch continue those of the batch before, whose last state is then their
        first one: in training but where `begins`, in validation and test from the first batch on.
    """

    name: str = ""
    output: Literal["all", "last"] = "last"
    metric: str = "loss"
    higher_is_better: bool = False
    trivial: float = math.nan
    trivial_formula: ClassVar[str] = ""
    carries_state: ClassVar[bool] = False

    def begins(self, step: int, batch_size: int) -> bool:
        """Return whether this step's batch begins new sequences, where the state is carried over."""
        return True

    @property
    def trivial_loss(self) -> float:
        """The loss of the best prediction that does not look at the input."""
        return self.trivial

    @property
    def trivial_metric(self) -> float:
        """The `metric` of that prediction."""
        return self.trivial_loss

    @abstractmethod
    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the mean loss over the batch."""

    @abstractmethod
    def metrics(self, prediction: Tensor, targets: Any) -> Mapping[str, tuple[float, float]]:
        """Return (sum, count) by name, "loss" among them, so that batches of any size add up exactly."""

    def summarized(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of a part from the means of what `metrics` returned: those that are no means are made here."""
        return dict(means)

    def mass(self, batch: Batch) -> float:
        """Return what the mean of `loss` divides by: sequences, or steps where there is a prediction at each, unless some
        targets count more than others, or not at all.
        """
        inputs = batch.inputs
        if isinstance(inputs, PackedSequence):
            return int(inputs.batch_sizes[0]) if self.output == "last" else len(inputs.data)
        return int(inputs.shape[1])

    def has_classes(self, targets: Any) -> bool:
        """Return whether these targets of a batch are classes whose labels can be smoothed (`spread_loss`)."""
        return self.output == "last" and isinstance(targets, Tensor) and not targets.is_floating_point()

    def spread_loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the cross-entropy to targets spread over the classes, evenly or by frequency; a mean as `loss` is."""
        return -prediction.log_softmax(-1).mean()
