"""A table as tensors: its inputs and targets, standardized, in the parts of its split, and batches of them.

Features, and targets that are numbers, are standardized by mean and standard deviation of the training part only, after
the transform of the targets, if there is one (target_transform.py).

A step with a missing value (or a 0 in the column `mask`) holds the state: h_t = h_{t-1}. That is what happens when the
step is left out and the others are packed, so nothing is computed for it, and the result is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import listed
from ..files.data_frames import shown_name
from .channels import Channel
from .elapsed import elapsed, unit_of
from .problem import Batch, in_batches
from .sequences import Ragged
from .splits import PARTS
from .table_options import TableOptions, names_in
from .table_roles import Roles
from .table_sequences import Sequences
from .table_source import Source
from .table_splits import Split
from .table_values import channels_of, features_of, observed_of
from .target_transform import transformed

IGNORED = -100  # the class of a row without one, as cross_entropy has it
_LEAST_DEVIATION = math.sqrt(np.finfo(np.float64).tiny)  # whose square has all its digits
MOST_STEPS = 1 << 15  # that the test of a whole series processes before the first one that it predicts


@dataclass(frozen=True)
class Targets:
    """The targets of all rows (R,), in the order of the sequences.

    values: Classes, int64 (R,), IGNORED where there is none; or numbers, float64 (R, O), NaN where there is none.
    there: Which rows have all of theirs, bool (R,). mean, deviation: Of numbers in the training part, (O,).
    """

    values: np.ndarray
    there: np.ndarray
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    deviation: np.ndarray = field(default_factory=lambda: np.empty(0))

    def tensor(self, targets: np.ndarray, there: np.ndarray) -> Tensor:
        """Return classes (rows,), or numbers (rows, H O) standardized, as the loss takes them; marked where not `there`."""
        if targets.dtype.kind == "i":
            return torch.from_numpy(np.where(there, targets, IGNORED))
        mean, deviation = (np.tile(scale, targets.shape[1] // len(scale)) for scale in (self.mean, self.deviation))
        standard = (targets - mean) / deviation
        standard[~there] = np.nan
        return torch.from_numpy(standard.astype(np.float32))

    def counted(self, targets: np.ndarray) -> np.ndarray:
        """Return which targets, as `tensor` has them, enter the loss: bool (rows,)."""
        return targets != IGNORED if targets.dtype.kind == "i" else ~np.isnan(targets[:, 0])


class TargetCells(NamedTuple):
    """The targets of a table in its own order: values as `Targets.values`, labels (R,) and their classes if they are
    such.
    """

    values: np.ndarray
    labels: np.ndarray | None = None
    classes: Sequence[str] = ()


class Part(NamedTuple):
    """Training, validation or test: pieces of sequences without the steps that hold the state."""

    inputs: Tensor  # (R, I) float32
    targets: Tensor  # at every step (R, ...), else (pieces, ...)
    pieces: Ragged
    rows: np.ndarray  # (R,) int64: which row of the table each is
    counted: np.ndarray  # (R,) bool: whether its prediction enters the loss


@dataclass(frozen=True)
class TableData:
    """All rows (R,) of a table, a sequence after the other, and its parts.

    channels: The inputs (I,). series: The names of the series of training, in the order of their vectors; none without
        vectors. transformed: Which inputs are a target's own past, which the network reads as it learns the target.
    features: (R, I) float64. observed: Which steps are there, bool (R,). mean, deviation: Of the training features, (I,).
    """

    channels: list[Channel]
    series: list[str]
    transformed: list[int]
    features: np.ndarray
    observed: np.ndarray
    rows: Ragged
    mean: np.ndarray
    deviation: np.ndarray
    targets: Targets
    parts: dict[str, Part]

    @property
    def later_inputs(self) -> int:
        """How many of the inputs are values of later steps: the last ones."""
        return sum(channel.lead > 0 for channel in self.channels)

    @property
    def plain_inputs(self) -> int:
        """How many inputs plain methods see: all but the number of the series and the time since the step before."""
        return sum(channel.kind not in ("series", "elapsed") for channel in self.channels)

    def standardized(self, rows: np.ndarray) -> Tensor:
        """Return the inputs of these rows as the network reads them: float32 (rows, I)."""
        return _standardized(self.features[rows], self.mean, self.deviation)


@dataclass(frozen=True)
class ReadTable:
    """A table that was read for training: each value is made from those before it.

    classes: The labels that are predicted, in the order of the outputs; none for numbers. stratified: Whether the parts have
        the same shares of each class. objective: What judges predictions. schema: The content of description.json.
    """

    source: Source
    sequences: Sequences
    roles: Roles
    split: Split
    data: TableData
    classes: Sequence[str]
    stratified: bool
    objective: Any = None
    schema: dict[str, Any] = field(default_factory=dict)


def data_of(
    options: TableOptions,
    source: Source,
    sequences: Sequences,
    roles: Roles,
    split: Split,
    read_targets: Callable[[], Targets],
) -> TableData:
    """Return the inputs and targets of a table in its parts. DataError for values that cannot be inputs or targets.

    read_targets: Returns the targets; called after the inputs are read, so that what is wrong with these is said first.
    """
    table, order, rows = source.table, sequences.order, sequences.rows
    training = split.training_rows
    channels = channels_of(options, table, roles, order[training])
    own = np.unique(np.repeat(np.arange(len(rows)), rows.lengths)[training])
    series = [] if options.forecasting.embedding is None else sorted({str(sequences.names[place]) for place in own})
    stretches = None if split.stretches is None else np.array([steps for _, _, steps in split.stretches])
    features = features_of(options, table, channels, sequences, series, stretches)
    observed = observed_of(options, table, channels, sequences, features)
    if options.irregular:
        times = elapsed(options, table, sequences, observed)
        features[:, -1] = np.where(np.isnan(times), unit_of(options, times[training]), times)
    taken = _transformed_inputs(options, channels)
    if taken:  # whose numbers are those of targets, which were checked
        features[:, taken] = transformed(features[:, taken], options.target_transform)
    mean, deviation = _scale(options, roles, channels, features[training[observed[training]]])
    targets = read_targets()
    standard = _standardized(features, mean, deviation)
    parts = {part: _part(options, part, split, standard, observed, targets) for part in PARTS}
    return TableData(channels, series, taken, features, observed, rows, mean, deviation, targets, parts)


def moments(options: TableOptions, values: np.ndarray, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the columns (R, K); 0, without rounding, where all values are the same."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = values.mean(0), values.std(0)
    differ = values.min(0) < values.max(0)
    large, small = ~np.isfinite(mean + deviation), differ & (deviation < _LEAST_DEVIATION)
    for name, is_large, is_small in zip(names, large, small):
        if is_large or is_small:
            raise DataError(
                f"Expected values whose squares are float64 numbers, but {shown_name(options.data)}, column {name!r}, has "
                f"{'larger' if is_large else 'smaller'} ones. Give it in another unit."
            )
    return mean, np.where(differ, deviation, 0.0)


def answers(leads: Sequence[int], targets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return what is to be predicted at these rows of one sequence: the classes (rows,), or numbers (rows, H C), the
    nearest step first.
    """
    later = [targets[rows + lead] for lead in leads]
    return later[0] if len(later) == 1 else np.concatenate(later, 1)


def batches_of_whole_test(options: TableOptions, data: TableData, batch_size: int) -> Iterator[Batch]:
    """Yield the test steps that enter the loss, with the steps of their series before them, at most MOST_STEPS."""
    test, targets = data.parts["test"], data.targets
    counts = np.zeros(len(data.observed), bool)
    counts[test.rows[test.counted]] = True
    chosen = []
    for start, length in zip(data.rows.starts.tolist(), data.rows.lengths.tolist()):
        own = np.flatnonzero(counts[start : start + length])
        if len(own):
            rows = np.arange(max(start, start + own[0] - MOST_STEPS), start + own[-1] + 1)
            chosen.append(rows[data.observed[rows]])
    rows = np.concatenate(chosen)
    wanted = targets.tensor(answers(options.forecasting.leads, targets.values, rows), counts[rows])
    part = Part(data.standardized(rows), wanted, Ragged(np.array([len(own) for own in chosen])), rows, counts[rows])
    yield from batches_of(options, part, max(1, min(batch_size, 4 * MOST_STEPS // int(part.pieces.lengths.max()))))


def batch_of(options: TableOptions, part: Part, chosen: np.ndarray) -> Batch:
    """Return these pieces of a part as a batch."""
    steps = part.pieces.steps(chosen)
    targets: Tensor | PackedSequence
    targets = steps.take(part.targets) if options.output == "all" else part.targets[torch.from_numpy(chosen)]
    return Batch(steps.take(part.inputs), targets)


def batches_of(options: TableOptions, part: Part, batch_size: int) -> Iterator[Batch]:
    """Return the pieces of a part, in order, in batches of at most this size."""
    return in_batches(len(part.pieces), batch_size, partial(batch_of, options, part))


def _transformed_inputs(options: TableOptions, channels: list[Channel]) -> list[int]:
    if options.target_transform is None:
        return []
    kinds = ("number", "last", "interpolated")
    return [
        place
        for place, channel in enumerate(channels)
        if channel.column in names_in(options.target) and channel.kind in kinds
    ]


def _standardized(features: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> Tensor:
    return torch.from_numpy(((features - mean) / deviation).astype(np.float32))


def _scale(
    options: TableOptions, roles: Roles, channels: list[Channel], seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (I,) of the training features; a constant one is left as wide as it is."""
    if not len(seen):
        raise DataError(
            f"Expected training steps with a value in all of {', '.join(roles.inputs)}, but {options.data} has none. "
            f"Say what a missing value means with missing, --missing, or name fewer inputs."
        )
    mean, deviation = moments(options, seen, [channel.name for channel in channels])
    if options.forecasting.embedding is not None:
        mean[-1] = deviation[-1] = 0.0  # a number of a series stays as it is
    if options.irregular:
        mean[-1], deviation[-1] = 0.0, np.median(seen[:, -1])
    plain = [channel.kind in ("number", "last", "interpolated") and not channel.lead for channel in channels]
    same = [channel.name for channel, own, spread in zip(channels, plain, deviation) if own and not spread]
    if same:
        warn(
            f"{shown_name(options.data)}: {listed(same)} is constant in the training part, so that the network learns "
            f"nothing from it, but reads it: another value in new data disturbs the predictions. To silence this, leave "
            f"it out of inputs, --inputs."
        )
    return mean, np.where(deviation > 0, deviation, 1.0)


def _part(
    options: TableOptions, part: str, split: Split, standard: Tensor, observed: np.ndarray, targets: Targets
) -> Part:
    chosen, counted, lengths, ends = [], [], [], []
    for at, steps in split.pieces[part]:
        rows = np.arange(at, at + steps - options.forecasting.leads[-1])
        enters = np.all([targets.there[rows + lead] for lead in options.forecasting.leads], 0) & (
            np.arange(len(rows)) >= options.forecasting.skipped
        )
        seen = observed[rows]
        rows, enters = rows[seen], enters[seen]
        useful = enters.any() if options.output == "all" else len(rows) and targets.there[at + steps - 1]
        if useful:
            chosen.append(rows)
            counted.append(enters)
            lengths.append(len(rows))
            ends.append(at + steps - 1)
    if not chosen:
        raise DataError(
            f"Expected something to predict for {part}, but {options.data} leaves {len(split.pieces[part])} "
            f"piece(s), none with an observed step and a target that enters the loss. Give it more data or larger shares"
            f"{', or a smaller skipped' if options.forecasting.skipped else ''}."
        )
    rows, there = np.concatenate(chosen), np.concatenate(counted)
    if options.output == "all":
        wanted = targets.tensor(answers(options.forecasting.leads, targets.values, rows), there)
    else:
        wanted = targets.tensor(targets.values[ends], np.ones(len(ends), bool))
    return Part(standard[torch.from_numpy(rows)], wanted, Ragged(np.array(lengths)), rows, there)
