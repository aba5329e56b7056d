"""The two sides of what a network is trained on: a problem has the data, an objective judges outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from torch import Tensor

from ..tasks import Batch, Task
from .description import describe


class Problem(Protocol):
    """Data, equal for equal arguments, which makes a run resumable at any step without the state of a generator.

    schema: What description.json holds: the inputs and outputs of a network, and what was done to the data.
    """

    @property
    def schema(self) -> dict[str, Any]:
        """The content of description.json."""

    def train(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return the batch of this step (0, 1, ...)."""

    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Return the validation sequences, always the same ones, in batches of at most this size."""

    def test(self, batch_size: int) -> Iterator[Batch]:
        """Return the test sequences, always the same ones, in batches of at most this size."""


class Objective(Protocol):
    """Functions of (prediction, targets), and how sequences are cut into batches; see Task, which is one."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def metric(self) -> str:
        """The entry of `metrics` by which validations are compared."""

    @property
    def higher_is_better(self) -> bool:
        """Which of two is better."""

    @property
    def output(self) -> Literal["all", "last"]:
        """Whether there is a prediction at every step, or one after the last."""

    @property
    def carries_state(self) -> bool:
        """Whether the sequences of a batch continue the sequences of the previous batch."""

    def begins(self, step: int, batch_size: int) -> bool:
        """Return whether this step's batch begins new sequences, for data whose state is carried over."""

    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the mean loss over the batch."""

    def has_classes(self, targets: Any) -> bool:
        """Return whether these targets are classes whose labels can be smoothed."""

    def spread_loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the cross-entropy to targets spread over the classes."""

    def mass(self, batch: Batch) -> float:
        """Return the divisor in the mean of `loss`."""

    def metrics(self, prediction: Tensor, targets: Any) -> Mapping[str, tuple[float, float]]:
        """Return (sum, count) by name, "loss" among them."""

    def summarized(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of a part from the means."""


class TaskProblem:
    """The problem of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def schema(self) -> dict[str, Any]:
        """The content of description.json."""
        return describe(self._task)

    def train(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return the batch of this step (0, 1, ...)."""
        return self._task.train_batch(step, batch_size, seed)

    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Return the validation sequences, always the same ones, in batches of at most this size."""
        return self._task.validation(batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        """Return the test sequences, always the same ones, in batches of at most this size."""
        return self._task.test(batch_size)
