"""The base of every task.

A task is a frozen dataclass: its fields are its whole description, go into config.json and come back from it.
Its data are functions of that description and of (seed, step), so that a run can be resumed at any step, in
the middle of an epoch, without the state of any generator.

T time, B batch, I input size, O output size, R rows. Everything is time-major. Sequences of one length are a plain
tensor (T, B, ...). Sequences of several lengths are a torch PackedSequence: its data are the rows that exist, so that
padding is nowhere, neither in the recurrence nor in a loss; a model's prediction at every step is then flat, (R, O).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_integer
from .plain_baselines import Baseline
from .streams import stream

LARGEST = 1 << 31  # of a number that determines how much data there are, so that a hostile description is an error


class Batch(NamedTuple):
    """inputs: (T, B, I) float32, or (T, B) int64 where the task's input is "tokens"; packed if lengths differ.

    targets: the classes or values to predict. At every step: (T, B) int64 or (T, B, O) float32, packed like the
        inputs. At the last: (B,) int64 or (B, O) float32, in the order of the batch, not of the packing.
    """

    inputs: Any  # Tensor | PackedSequence: each task has one of them, or both
    targets: Any


class Task(ABC):
    """Data, sizes, loss, metric and trivial baseline.

    name: under which the command line and config.json know it.
    input: "tokens" (int64 classes, read as one-hot) or "real".
    output: "all" (a prediction at every step) or "last" (one, after the last step).
    metric: the entry of `metrics` by which models are compared.
    higher_is_better: which way it goes.
    trivial_formula: the loss of the best prediction that does not look at the input, as a formula.
    batch_size: sequences in an update, unless a run sets it otherwise.
    carries_state: whether the sequences of a batch continue those of the batch before, whose last state is then their
        first one: in training but where `begins`, in validation and test from the first batch on.
    predicts_ahead: whether the targets are later values of its own inputs, which a network that reads the sequence backwards
        has seen.
    without_effect: fields that it has from its base and does not use; the command line has no option for them.
    """

    name: ClassVar[str]
    input: ClassVar[Literal["tokens", "real"]]
    output: ClassVar[Literal["all", "last"]]
    metric: ClassVar[str]
    higher_is_better: ClassVar[bool]
    trivial_formula: ClassVar[str]
    batch_size: ClassVar[int] = 50
    carries_state: ClassVar[bool] = False
    predicts_ahead: ClassVar[bool] = False
    without_effect: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def input_size(self) -> int:
        """I: the width of the input, or the number of token classes."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """O: the width of a prediction."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """T: how many time steps a sequence has, the longest of the training set if they differ."""

    @property
    @abstractmethod
    def trivial_loss(self) -> float:
        """The loss of the best prediction that does not look at the input, computed."""

    @abstractmethod
    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return the batch of this step (0, 1, ...): the same for the same arguments, always."""

    def begins(self, step: int, batch_size: int) -> bool:
        """Return whether this step's batch begins new sequences, in a task that carries the state over."""
        return True

    @abstractmethod
    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Return the validation sequences, always the same ones, in batches of at most this size."""

    @abstractmethod
    def test(self, batch_size: int) -> Iterator[Batch]:
        """Return the test sequences, always the same ones, in batches of at most this size."""

    def test_of_whole_series(self, batch_size: int) -> Iterator[Batch]:
        """Return what `test` cuts into windows as whole series, from their first step on; nothing if it cuts nothing."""
        return iter(())

    @abstractmethod
    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the mean loss over the batch. prediction: (T, B, O), (R, O) if packed, or (B, O), as `output` says."""

    def has_classes(self, targets: Any) -> bool:
        """Return whether these targets of a batch are classes whose labels can be smoothed (`spread_loss`)."""
        return self.output == "last" and isinstance(targets, Tensor) and not targets.is_floating_point()

    def spread_loss(self, prediction: Tensor, targets: Any) -> Tensor:
        """Return the cross-entropy to targets spread over the classes, evenly or by frequency; a mean as `loss` is."""
        return -prediction.log_softmax(-1).mean()

    def mass(self, batch: Batch) -> float:
        """Return what the mean of `loss` divides by: sequences, or steps where there is a prediction at each, unless some
        targets count more than others, or not at all.
        """
        inputs = batch.inputs
        if isinstance(inputs, PackedSequence):
            return int(inputs.batch_sizes[0]) if self.output == "last" else len(inputs.data)
        return int(inputs.shape[1])

    @abstractmethod
    def metrics(self, prediction: Tensor, targets: Any) -> Mapping[str, tuple[float, float]]:
        """Return (sum, count) by name, "loss" among them, so that batches of any size add up exactly."""

    def summarized(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of a part from the means of what `metrics` returned: those that are no means are made here."""
        return dict(means)

    def preprocessing(self) -> dict[str, Any]:
        """Return what was done to the data, in JSON, so that new data can be treated alike: it travels with the
        weights.

        "scale" and "offset": the input is raw * scale + offset (numbers, or one a channel); "order": the raw steps, in
        the order in which they are read; "vocabulary": the symbols of the token classes; "labels": the classes' names.
        "target_scale" and "target_offset": the output of the network is (raw - target_offset) / target_scale.
        "target_transform": "log" or "log1p", which comes before these for targets, and before scale and offset for the
        inputs of which "transformed_inputs" has the places. "says": "probabilities" where every output is the logit of one.
        "sample_rate": samples per second of sounds; "sound": which features of them a step is.
        What is absent was not done.
        """
        return {}

    def summary_lines(self) -> list[str]:
        """Return lines that report what was read and how, for the user to see before training; none for made data."""
        return []

    def files(self) -> dict[str, Path]:
        """Return the files that the data come from, by names that do not depend on where they are.

        A run remembers their sums, so that a change is noticed when it is resumed. A task with a field `data` that
        names one file need not define this; one that reads several files of a folder must.
        """
        data = getattr(self, "data", None)
        path = Path(data).expanduser() if isinstance(data, str) and data else None
        return {path.name: path} if path is not None and path.is_file() else {}

    def output_files(self) -> list[str]:
        """Return the names of the files that `write_outputs` writes."""
        return []

    def write_outputs(self, model: Any, folder: Path) -> list[str]:
        """Write what can be heard or seen of a trained network's outputs; return lines that describe it, with scores."""
        return []

    def stored(self, folder: Path) -> Task:
        """Return a task with the same data, all of them in files: tables in memory are written into a folder."""
        return self

    @property
    def trivial_metric(self) -> float:
        """The `metric` of the trivial baseline."""
        return self.trivial_loss

    def baselines(self) -> dict[str, float]:
        """Return the test loss of other simple answers, by name: what a network must beat to be worth its cost."""
        return {}

    def plain_baselines(self) -> list[Baseline]:
        """Return plain methods, fitted on the training part, with their metrics; none for made data.

        Raises MissingPackageError without scikit-learn.
        """
        return []

    def warm_start(self, model: Any) -> bool:
        """Set initial values of a model from the training data, in place; return whether it did."""
        return False

    def choose_threshold(self, outputs: Iterable[tuple[Tensor, Any]]) -> float | None:
        """Return the threshold of a decision by (prediction, targets) of the validation part, if the task asks for one.

        `metrics` then takes it as the keyword `threshold`.
        """
        return None

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return how many batches make an epoch; None where every batch is fresh."""
        return None


@lru_cache(maxsize=8)
def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order (count,) int64 in which this epoch visits a fixed set of `count` sequences."""
    return torch.from_numpy(stream("order", seed, epoch).permutation(count))


def fresh_rows(step: int, batch_size: int, count: int, seed: int) -> Tensor:
    """Return which of `count` fixed sequences step `step` sees, different ones, drawn afresh for every step: (B,) int64."""
    check_integer(
        "batch_size", batch_size, 1, count, f"The training set has {count} sequences. Pass batch_size, --batch-size."
    )
    return torch.from_numpy(stream("order", seed, step).permutation(count)[:batch_size])


def batch_rows(step: int, batch_size: int, count: int, seed: int) -> Tensor:
    """Return which of `count` fixed sequences step `step` sees: (B,) int64.

    An epoch is a permutation from (seed, epoch) cut into count // batch_size batches; what is left over, less
    than one batch and other sequences every time, is not seen in that epoch.
    """
    check_integer(
        "batch_size", batch_size, 1, count, f"The training set has {count} sequences. Pass batch_size, --batch-size."
    )
    epoch, place = divmod(step, count // batch_size)
    return epoch_order(count, seed, epoch)[place * batch_size : (place + 1) * batch_size]
