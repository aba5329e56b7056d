"""The common base of classification, regression and forecasting of the user's own sequences.

A file (columns.py) has one row a step. Rows with one value in the column `sequence` are a sequence, in the order of
the file or of the column `time`. The same rules hold for every format, for training and for new data.

With three sequences or more, whole sequences are for training, validation or test, by `split_seed`. A file that is one
sequence is divided by time, the first part for training and the last for the test, and each part is cut into windows;
no window reaches into another part.

Features, and targets that are numbers, are standardized by mean and standard deviation of the training part only.

A step with a missing value (or a 0 in the column `mask`) holds the state: h_t = h_{t-1}. That is what happens when the
step is left out and the others are packed, so nothing is computed for it, and the result is exact.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice, check_integer, check_number
from ...errors import DataError, OrthornnWarning
from .cells import listed
from .columns import Columns, read_columns
from .sequences import Ragged
from .splits import counts, shares
from .task import Batch, Task, batch_rows

ADVICE = "Fill them in, or let missing steps hold the state: missing='hold', --missing hold."
_OVERLAP = 8  # training windows that see a step


class Table(NamedTuple):
    """All rows of a file, a sequence after the other."""

    features: np.ndarray  # (R, I) float64
    targets: np.ndarray  # (R, O) float64, NaN: none; or (R,) int64 classes, IGNORED: none
    observed: np.ndarray  # (R,) bool
    sequences: Ragged


class Part(NamedTuple):
    """Training, validation or test: pieces of sequences without the steps that hold the state."""

    inputs: Tensor  # (R, I) float32
    targets: Tensor  # at every step (R, ...), else (pieces, ...)
    pieces: Ragged
    rows: np.ndarray  # (R,) int64: which row of the table each is
    counted: np.ndarray  # (R,) bool: whether its prediction enters the loss


class Series(NamedTuple):
    """A sequence of a table: its observed steps, and what all of its steps are to be predicted."""

    name: str
    steps: np.ndarray  # (T,) int64: the places of the observed steps in the sequence
    values: np.ndarray  # (T, I) float64
    targets: np.ndarray | None  # of all S steps: labels (S,), None where there is none; or numbers (S, O)


@dataclass(frozen=True)
class TableTask(Task):
    """The fields that all three have."""

    input = "real"

    data: str = "data.csv"
    """A file: .csv, .parquet, .npz or .npy, one row a step."""
    target: str = ""
    """The column that is to be predicted; several, separated by commas, for regression and forecasting."""
    sequence: str | None = None
    """The column that tells sequences apart. Default: the column named sequence if there is one, else all rows are
    one sequence."""
    inputs: str | None = None
    """The columns that the network sees, separated by commas. Default: all columns of numbers and truth values
    without another part to play; what is left out is named in a warning."""
    time: str | None = None
    """The column by which the steps of a sequence are put in order: numbers, or dates in ISO 8601. Default: as
    they come."""
    mask: str | None = None
    """A column that is 0 where a step is missing. Default: the column named mask if there is one."""
    missing: Literal["error", "hold"] = "error"
    """What a missing value is: an error, or a step that holds the state."""
    validation_share: float = 0.15
    """Share of the sequences, or of the time, for validation."""
    test_share: float = 0.15
    """Share of the sequences, or of the time, for the test."""
    split_seed: int = 0
    """Which sequences those are."""
    window: int = 100
    """Steps of a window, where the file is one sequence."""

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, ("error", "hold"))
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)
        check_integer("split_seed", self.split_seed, 0)
        check_integer("window", self.window, 2)

    sees_target: ClassVar[bool] = False
    skipped: ClassVar[int] = 0  # first steps of a piece without a loss; a field in Forecast
    ahead: ClassVar[int] = 0  # how much later than the input the target is; a field in Forecast

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """32, or all training pieces if they are fewer."""
        return min(32, len(self._parts["train"].pieces))

    @property
    def input_size(self) -> int:
        """The input columns."""
        return len(self.input_columns)

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing: input columns are standardized by the training part."""
        mean, deviation = self._scale
        scaling = {"scale": (1 / deviation).tolist(), "offset": (-mean / deviation).tolist()}
        found = {"columns": self.input_columns, **scaling}
        if self.sequence_column is not None:
            found["sequence"] = self.sequence_column
        if self._file.features:
            found["features"] = self._file.features
        return found

    def told(self) -> list[str]:
        """Return what was read from the file and what each column is for."""
        parts = {part: len(pieces) for part, pieces in self._pieces.items()}
        sequences = self._table.sequences
        count = len(sequences)
        apart = "" if self.sequence_column is None else f" by the column {self.sequence_column}"
        order = "as in the file" if self.time is None else f"by the column {self.time}"
        columns = {
            "inputs": self.input_columns,
            "target": self.target_columns,
            "mask": [self.mask_column] if self.mask_column else [],
        }
        held = int((~self._table.observed).sum())
        return [
            f"{self.data}: {self._file.rows} steps, {count} sequence{'s' if count != 1 else ''}{apart} of "
            f"{sequences.lengths.min()} to {sequences.lengths.max()} steps, in order {order}"
            + (f"; {held} steps are missing and hold the state" if held else ""),
            "   ".join(f"{name}: {listed(names)}" for name, names in columns.items() if names),
            f"{'sequences' if count > 2 else 'windows'}: "
            + ", ".join(f"{number} for {part}" for part, number in parts.items()),
        ]

    @property
    def steps(self) -> int:
        """The length of the longest training piece."""
        return int(self._parts["train"].pieces.lengths.max())

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of full batches of the training pieces."""
        return len(self._parts["train"].pieces) // batch_size

    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return a batch of the training pieces."""
        rows = batch_rows(step, batch_size, len(self._parts["train"].pieces), seed)
        return self._batch(self._parts["train"], rows.numpy())

    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Yield the validation pieces."""
        return self._batches(self._parts["validation"], batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        """Yield the test pieces."""
        return self._batches(self._parts["test"], batch_size)

    @property
    def target_columns(self) -> list[str]:
        """The names of what is predicted."""
        return _names(self.target)

    @cached_property
    def input_columns(self) -> list[str]:
        """The names of what the network sees."""
        if self.inputs is not None:
            if not _names(self.inputs):
                raise DataError(
                    f"Expected inputs to name a column; {self._file.path} has {listed(self._file.columns)}."
                )
            return [self._file.check(name, "inputs") for name in _names(self.inputs)]
        others = {self.sequence_column, self.time, self.mask_column}
        if not self.sees_target:
            others.update(self.target_columns)
        found, left = [], {}
        for name in self._file.columns:
            if name in others:
                continue
            kind = self._file.kind(name)
            if self._file.is_index(name):
                left[name] = "numbers the rows"
            elif kind in ("dates", "text"):
                left[name] = kind
            else:
                self._file.numbers(name, "inputs")  # DataError where a cell is none
                found.append(name)
        if not found:
            raise DataError(
                f"{self._file.path} has no column of numbers that could be an input next to the target"
                f"{'; ' * bool(left)}{listed(f'{name} ({why})' for name, why in left.items())}. Name one with inputs, "
                f"--inputs."
            )
        if left:
            warnings.warn(
                f"{self._file.path}: the network does not see "
                f"{listed(f'{name} ({why})' for name, why in left.items())}. "
                f"To silence this, name what it sees: inputs={','.join(found)[:200]!r}, --inputs.",
                OrthornnWarning,
                stacklevel=2,
            )
        return found

    @property
    def sequence_column(self) -> str | None:
        """The name of the column that tells sequences apart."""
        return self._sequence_column(self._file)

    @property
    def mask_column(self) -> str | None:
        """The name of the column that is 0 where a step is missing."""
        return self._mask_column(self._file)

    def _sequence_column(self, file: Columns) -> str | None:
        return self.sequence or self._by_its_name(file, "sequence")

    def _mask_column(self, file: Columns) -> str | None:
        return self.mask or self._by_its_name(file, "mask")

    def _by_its_name(self, file: Columns, name: str) -> str | None:
        """Return `name` if there is such a column and no option uses it otherwise."""
        taken = {*_names(self.inputs or ""), *self.target_columns, self.sequence, self.time, self.mask}
        return name if name in file.columns and name not in taken else None

    @abstractmethod
    def _read_targets(self, file: Columns) -> np.ndarray:
        """Return the targets of every row, see Table."""

    @abstractmethod
    def _target_there(self, targets: np.ndarray) -> np.ndarray:
        """Return which rows have a target: bool."""

    def _target_tensor(self, targets: np.ndarray, there: np.ndarray) -> Tensor:
        """Return targets as the loss takes them; where not `there`, marked as not counted."""
        raise NotImplementedError

    @cached_property
    def _file(self) -> Columns:
        file = read_columns(Path(self.data).expanduser())
        if not self.target_columns:
            raise DataError(f"Expected target to name a column; {file.path} has {listed(file.columns)}.")
        return file

    def series(self, path: Path, description: Mapping[str, Any], targets: bool) -> list[Series]:
        """Return the sequences of another file, with its targets if they are asked for.

        Args:
            path: A file of any format; it need not be that of the training data.
            description: What description.json holds of the network: `columns`, and `sequence` and `features` of the
                training data.
            targets: Whether to read the targets.

        Raises:
            DataError: If something is missing or cannot be read in it.
        """
        columns = description["columns"]
        file = self._named_alike(read_columns(path), columns, description.get("features"))
        known = description.get("sequence")
        if known is not None and self._sequence_column(file) is None and not file.sequences:
            raise DataError(
                f"Expected the column {known!r} in {path}, which told the sequences of the training data apart, but "
                f"got "
                f"only {listed(file.columns)}. Add it, with one value in all rows if they are one sequence."
            )
        order, names, lengths = self._arranged(file)
        features = np.stack([file.numbers(name, "inputs") for name in columns], 1)[order]
        observed = self._observed(file, columns, order, features)
        wanted = self._raw_targets(file)[order] if targets else None
        found = []
        for name, at, steps in zip(names, np.cumsum(lengths) - lengths, lengths):
            seen = np.flatnonzero(observed[at : at + steps])
            if not len(seen):
                raise DataError(f"{path}: no step of sequence {name!r} is observed in all of {', '.join(columns)}.")
            found.append(Series(name, seen, features[at + seen], None if wanted is None else wanted[at : at + steps]))
        return found

    def _named_alike(self, file: Columns, columns: Sequence[str], features: int | None) -> Columns:
        """Return an array file with the names that the training data had; the features of arrays are told by their
        places.
        """
        if not file.features:
            return file
        needed = len(columns) if features is None else features
        if file.features != needed:
            raise DataError(
                f"Expected {needed} features at every step of {file.path}, as in the training data "
                f"({listed(columns)}), but got {file.features}. Give an array (time, {needed}) or "
                f"(sequences, time, {needed})."
            )
        if features is not None:
            return file
        names = {f"x{place}": name for place, name in enumerate(columns)}
        if len(self.target_columns) == 1 and self.target_columns[0] not in names.values():
            names["y"] = self.target_columns[0]
        return file._replace(columns={names.get(name, name): column for name, column in file.columns.items()})

    @abstractmethod
    def _raw_targets(self, file: Columns) -> np.ndarray:
        """Return the targets of every row as the file has them: labels (R,), or numbers (R, O)."""

    @cached_property
    def _table(self) -> Table:
        file = self._file
        for name in self.target_columns:
            file.check(name, "target")
        order, _, lengths = self._arranged(file)
        features = np.stack([file.numbers(name, "inputs") for name in self.input_columns], 1)[order]
        targets = self._read_targets(file)[order]
        return Table(features, targets, self._observed(file, self.input_columns, order, features), Ragged(lengths))

    def _arranged(self, file: Columns) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Return the order of the rows in which sequences are together, the sequences' names, and their lengths."""
        rows = file.rows
        order = np.arange(rows)
        if self.time is not None:
            order = np.argsort(file.order(self.time, "time"), kind="stable")
        column = self._sequence_column(file)
        if column is None:
            return order, ["0"], np.array([rows])
        labels = file.labels(column, "sequence")
        if any(label is None for label in labels):
            row = [label is None for label in labels].index(True) + 1
            raise DataError(
                f"{file.path}, column {column!r}, has missing values, the first in row {row}. Every step needs the "
                f"name of "
                f"its sequence."
            )
        names, codes = np.unique(labels.astype(str), return_inverse=True)
        return order[np.argsort(codes[order], kind="stable")], names.tolist(), np.bincount(codes)

    def _observed(self, file: Columns, columns: list[str], order: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Return which steps, in this order, are there: bool (R,). DataError for missing values that nobody spoke of."""
        observed = np.ones(len(order), bool)
        mask = self._mask_column(file)
        if mask is not None:
            flags = file.numbers(mask, "mask")
            wrong = np.flatnonzero(np.isnan(flags) if self.mask else ~np.isin(flags, (0, 1)))
            if len(wrong):
                raise DataError(
                    f"Expected 0 or 1 in {file.path}, column {mask!r}, but got {flags[wrong[0]]:g} in row "
                    f"{wrong[0] + 1}. "
                    f"The column tells which steps are missing; if it is no mask, rename it or name it with inputs, "
                    f"--inputs."
                )
            observed = flags[order] != 0
        whole = np.isfinite(features).all(1)
        wrong = observed & ~whole
        if wrong.any() and (self.missing == "error" or np.isinf(features).any()):
            row = int(np.flatnonzero(wrong)[0])
            name = columns[int(np.flatnonzero(~np.isfinite(features[row]))[0])]
            raise DataError(
                f"{file.path}, column {name!r}, row {order[row] + 1}: no finite number, as in {int(wrong.sum())} "
                f"row(s) "
                f"in all. {ADVICE if self.missing == 'error' else 'An infinity is never taken for a missing value.'}"
            )
        return observed & whole

    @cached_property
    def _pieces(self) -> dict[str, list[tuple[int, int]]]:
        """(first row, steps) of the pieces of each part."""
        sequences = self._table.sequences
        if len(sequences) >= 3:
            chosen = shares(len(sequences), self.validation_share, self.test_share, self.split_seed)
            return {
                part: [(int(sequences.starts[i]), int(sequences.lengths[i])) for i in which]
                for part, which in chosen.items()
            }
        if len(sequences) == 2 or self.output == "last":
            raise DataError(
                f"Expected at least 3 sequences, one each for training, validation and "
                f"test{'' if self.output == 'last' else ', or one, which is divided by time'}, but {self.data} holds "
                f"{len(sequences)}. Name the column that tells sequences apart with sequence, --sequence."
            )
        total = int(sequences.lengths[0])
        if total < 3:
            raise DataError(f"Expected at least 3 steps, but {self.data} has {total}.")
        train, validation, test = counts(total, self.validation_share, self.test_share)
        parts = {"train": (0, train), "validation": (train, validation), "test": (train + validation, test)}
        return {part: self._windows(start, length, part == "train") for part, (start, length) in parts.items()}

    def _windows(self, start: int, length: int, overlapping: bool) -> list[tuple[int, int]]:
        """Return windows such that every step that can have a loss has one: exactly one, if not overlapping."""
        new = self.window - self.skipped - self.ahead
        if new < 1:
            raise DataError(
                f"Expected window to be at least {self.skipped + self.ahead + 1}, but {self.window} leaves nothing to "
                f"predict after {self.skipped} skipped steps and {self.ahead} ahead."
            )
        stride = max(1, new // _OVERLAP) if overlapping else new
        last = max(0, length - self.window) if overlapping else max(0, length - self.skipped - self.ahead - 1)
        return [(start + at, min(self.window, length - at)) for at in range(0, last + 1, stride)]

    @cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (I,) of the training features; a constant one is left as wide as it is."""
        rows = np.unique(np.concatenate([np.arange(at, at + steps) for at, steps in self._pieces["train"]]))
        seen = self._table.features[rows[self._table.observed[rows]]]
        if not len(seen):
            raise DataError(f"no training step of {self.data} is observed in all of {', '.join(self.input_columns)}.")
        mean, deviation = self._moments(seen, self.input_columns)
        return mean, np.where(deviation > 0, deviation, 1.0)

    def _moments(self, values: np.ndarray, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the columns (R, K); 0, without rounding, where all values are the same."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = values.mean(0), values.std(0)
        for name, found in zip(names, np.isfinite(mean + deviation)):
            if not found:
                raise DataError(
                    f"{self.data}, column {name!r}: its values are so large that their squares are no float64 numbers. "
                    f"Give it in another unit."
                )
        return mean, np.where(values.min(0) < values.max(0), deviation, 0.0)

    @cached_property
    def _parts(self) -> dict[str, Part]:
        mean, deviation = self._scale
        standard = torch.from_numpy(((self._table.features - mean) / deviation).astype(np.float32))
        return {part: self._part(part, standard) for part in ("train", "validation", "test")}

    def _part(self, part: str, standard: Tensor) -> Part:
        targets, observed = self._table.targets, self._table.observed
        has_target = self._target_there(targets)
        chosen, counted, lengths, ends = [], [], [], []
        for at, steps in self._pieces[part]:
            rows = np.arange(at, at + steps - self.ahead)
            enters = has_target[rows + self.ahead] & (np.arange(len(rows)) >= self.skipped)
            seen = observed[rows]
            rows, enters = rows[seen], enters[seen]
            useful = enters.any() if self.output == "all" else len(rows) and has_target[at + steps - 1]
            if useful:
                chosen.append(rows)
                counted.append(enters)
                lengths.append(len(rows))
                ends.append(at + steps - 1)
        if not chosen:
            raise DataError(
                f"{self.data} leaves nothing to predict for {part}: {len(self._pieces[part])} piece(s), none with an "
                f"observed step and a target that enters the loss. Give it more data or larger shares"
                f"{', or a smaller skipped' if self.skipped else ''}."
            )
        rows, there = np.concatenate(chosen), np.concatenate(counted)
        if self.output == "all":
            wanted = self._target_tensor(targets[rows + self.ahead], there)
        else:
            wanted = self._target_tensor(targets[ends], np.ones(len(ends), bool))
        return Part(standard[torch.from_numpy(rows)], wanted, Ragged(np.array(lengths)), rows, there)

    def _batch(self, part: Part, chosen: np.ndarray) -> Batch:
        steps = part.pieces.steps(chosen)
        targets: Tensor | PackedSequence
        targets = steps.take(part.targets) if self.output == "all" else part.targets[torch.from_numpy(chosen)]
        return Batch(steps.take(part.inputs), targets)

    def _batches(self, part: Part, batch_size: int) -> Iterator[Batch]:
        check_integer("batch_size", batch_size, 1)
        for start in range(0, len(part.pieces), batch_size):
            yield self._batch(part, np.arange(start, min(start + batch_size, len(part.pieces))))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
