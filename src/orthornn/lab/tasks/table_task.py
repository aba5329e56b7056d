"""The common base of classification, regression and forecasting of the user's own sequences.

A file (columns.py) has one row a step. Rows with one value in the column `sequence` are a sequence, in the order of
the file or of the column `time`. The same rules hold for every format, for training and for new data.

With three sequences or more, whole sequences are for training, validation or test, by `split_seed`: as many of each
class in each part as their shares, and whole groups where a column tells which sequences belong together. A file that
is one sequence is divided by time, the first part for training and the last for the test, and each part is cut into
windows; no window reaches into another part. So is every sequence where that is asked for. Where a column or files of
their own say which part is which, that holds, and only what they do not say is divided.

Features, and targets that are numbers, are standardized by mean and standard deviation of the training part only.

A step with a missing value (or a 0 in the column `mask`) holds the state: h_t = h_{t-1}. That is what happens when the
step is left out and the others are packed, so nothing is computed for it, and the result is exact.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice, check_integer, check_number
from ...errors import ArgumentError, DataError, OrthornnWarning
from .cells import coded, listed, missing_cells, shown
from .channels import MODES, Channel, category_channels, channel_values
from .columns import Columns, read_columns
from .csv_files import CsvFormat
from .frames import Frame, Source, source, store
from .plain_baselines import FLAT_STEPS, LAST_STEPS, Baseline, Samples, fitted, flattened, last_steps, summary_features
from .sequences import Ragged
from .sound_folder import SoundFormat, is_sound, sounds_of
from .splits import PART_NAMES, PARTS, counts, divided, shares
from .task import Batch, Task, batch_rows
from .time_grid import told_grid

ADVICE = (
    "Fill them in, or say what a missing value means: missing='hold', --missing hold (the step is left out), or "
    "indicator, interpolate, skip."
)
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
    times: np.ndarray | None = (
        None  # of all S steps, as the file spells them: (S,) objects, where there is a time column
    )


@dataclass(frozen=True)
class TableTask(Task):
    """The fields that all three have."""

    input = "real"

    data: Source = "data.csv"
    """A file: .csv, .tsv (also .gz), .parquet, .feather, .npz, .npy or .ts, one row a step; or a folder
    of sounds, with its labels as subfolders or in a CSV file. In Python also a DataFrame."""
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
    missing: str = "error"
    """What a missing value is: an error; hold, a step that holds the state; indicator, the last value seen, with an
    input that says so; interpolate, a value between its neighbors; skip, its sequence is left out. For single columns:
    column=word, separated by commas."""
    validation_share: float = 0.15
    """Share of the sequences, or of the time, for validation."""
    test_share: float = 0.15
    """Share of the sequences, or of the time, for the test."""
    split_seed: int = 0
    """Which sequences those are."""
    window: int = 100
    """Steps of a window, where a sequence is divided by time."""
    categories: str | None = None
    """Columns of words or codes, separated by commas, that the network sees as one input for each value of training."""
    split: str | None = None
    """The column that says train, validation or test (or valid, dev, ...). Default: parts by the shares."""
    group: str | None = None
    """A column such as a person: sequences with the same value are in the same part."""
    stratified: bool = True
    """As many sequences of each class in each part as their shares, for one class per sequence."""
    split_by: Literal["sequences", "time"] | None = None
    """Divide whole sequences, or each by time. Default: whole sequences if there are at least three."""
    test_data: Source | None = None
    """A file of its own for the test."""
    validation_data: Source | None = None
    """A file of its own for validation."""
    separator: str | None = None
    """Between the cells of a text file. Default: the most frequent of comma, semicolon and tab in the first line."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of a text file. Default: told from the cells, where they leave no doubt."""
    thousands: str | None = None
    """Mark between groups of three digits in a text file. Default: told from the cells, where they leave no doubt."""
    na: str | None = None
    """More spellings of a missing value in a text file, separated by commas."""
    sound: Literal["log-mel", "frames"] = "log-mel"
    """What a sound becomes: log-mel energies, or the samples of frames that do not overlap."""
    sample_rate: int = 16000
    """Samples per second of sounds; those of another rate are resampled."""
    window_ms: float = 25.0
    """Milliseconds of a window of log-mel energies."""
    hop_ms: float = 10.0
    """Milliseconds between two steps of a sound."""
    mels: int = 40
    """Log-mel energies at every step."""

    def __post_init__(self) -> None:
        for name in ("data", "test_data", "validation_data"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, source(getattr(self, name)))
        for word in modes_of(self.missing).values():
            check_choice("missing", word, MODES)
        if self.split_by is not None:
            check_choice("split_by", self.split_by, ("sequences", "time"))
        if self.decimal is not None:
            check_choice("decimal", self.decimal, (".", ","))
        for name in ("separator", "thousands"):
            mark = getattr(self, name)
            if mark is not None and (len(mark) != 1 or mark.isalnum() or mark in '"\r\n'):
                raise ArgumentError(f"Expected one character, no letter or digit, for {name}, but got {mark!r}.")
        if len({mark for mark in (self.separator, self.decimal, self.thousands) if mark}) < sum(
            mark is not None for mark in (self.separator, self.decimal, self.thousands)
        ):
            raise ArgumentError(
                f"Expected different marks, but got separator={self.separator!r}, decimal={self.decimal!r}, "
                f"thousands={self.thousands!r}."
            )
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)
        check_integer("split_seed", self.split_seed, 0)
        check_integer("window", self.window, 2)
        self._sound.check()

    sees_target: ClassVar[bool] = False
    skipped: ClassVar[int] = 0  # first steps of a piece without a loss; a field in Forecast
    ahead: ClassVar[int] = 0  # how much later than the input the target is; a field in Forecast
    context: ClassVar[int] = 0  # steps before a stretch of validation or test that its first windows begin with

    @property
    def leads(self) -> tuple[int, ...]:
        """How much later than the input the targets are; several for a forecast of several steps at once."""
        return (self.ahead,)

    def answers(self, targets: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what is to be predicted at these rows of one sequence: (rows, ...), its targets `leads` rows later."""
        return targets[rows + self.leads[-1]]

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """32, or all training pieces if they are fewer."""
        return min(32, len(self._parts["train"].pieces))

    @property
    def input_size(self) -> int:
        """The input columns."""
        return len(self._channels)

    def preprocessing(self) -> dict[str, Any]:
        """Return the preprocessing: input columns are standardized by the training part."""
        mean, deviation = self._scale
        scaling = {"scale": (1 / deviation).tolist(), "offset": (-mean / deviation).tolist()}
        found = {"columns": [channel.name for channel in self._channels], **scaling}
        if any(channel.kind != "number" for channel in self._channels):
            found["channels"] = [list(channel) for channel in self._channels]
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
            "inputs": [channel.name for channel in self._channels],
            "target": self.target_columns,
            "mask": [self.mask_column] if self.mask_column else [],
        }
        held = int((~self._table.observed).sum())
        by = [f"{name} {value}" for name, value in (("column", self.split), ("group", self.group)) if value]
        stratified = ["class"] if self._strata is not None and self.split is None and len(sequences) >= 3 else []
        return [
            f"{self.data}: {self._file.rows} steps, {count} sequence{'s' if count != 1 else ''}{apart} of "
            f"{sequences.lengths.min()} to {sequences.lengths.max()} steps, in order {order}"
            + (f"; {held} steps are missing and hold the state" if held else ""),
            "   ".join(f"{name}: {listed(names)}" for name, names in columns.items() if names),
            f"{'sequences' if self._whole else 'windows'}: "
            + ", ".join(f"{number} for {part}" for part, number in parts.items())
            + (f" (by {', '.join([*by, *stratified])})" if by or stratified else ""),
            *self._told_of_values(),
        ]

    def _told_of_values(self) -> list[str]:
        """Return lines about missing values, the grid of the times, the targets, and the scaling."""
        lines = []
        gone = {name: missing_cells(self._file.columns[name]) for name in [*self.input_columns, *self.target_columns]}
        if any(gone.values()):
            modes = modes_of(self.missing)
            lines.append(
                "missing: "
                + ", ".join(
                    f"{number} in {name} ({modes.get(name, modes[''])})" for name, number in gone.items() if number
                )
            )
        if self.time is not None:
            grid = told_grid(self._file, self.time, self._arranged_rows[0], self._sequences.lengths)
            lines += [f"{self.time}: {grid}"] if grid else []
        return [*lines, *self._told_of_targets(), "scaling: by mean and standard deviation of the training part"]

    def _told_of_targets(self) -> list[str]:
        """Return lines about the targets."""
        return []

    def files(self) -> dict[str, Path]:
        """Return the files of training, validation and test."""
        found: dict[str, Path] = {}
        for path in (self.data, self.validation_data, self.test_data):
            if path and is_sound(Path(path).expanduser()):
                sounds = sounds_of(Path(path).expanduser())
                found |= {f"{Path(path).name}/{name}": file for name, file in sounds.items()}
            elif path and Path(path).expanduser().is_file():
                found[Path(path).name if Path(path).name not in found else str(path)] = Path(path).expanduser()
        return found

    def stored(self, folder: Path) -> TableTask:
        """Return the task with DataFrames as Parquet files in a folder."""
        found = {name: getattr(self, name) for name in ("data", "test_data", "validation_data")}
        frames: dict[str, Any] = {
            name: store(value, folder) for name, value in found.items() if isinstance(value, Frame)
        }
        return replace(self, **frames) if frames else self

    def plain_baselines(self) -> list[Baseline]:
        """Return logistic or ridge regression and gradient boosting, on the same parts."""
        parts = {part: self._samples(part) for part in PARTS}
        return fitted(self._plain_methods(), parts, self._plain_metrics)

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        """Return (name, kind of features, estimator) of plain methods."""
        raise NotImplementedError

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Return the metrics of a fitted plain method."""
        raise NotImplementedError

    def _counted_targets(self, targets: np.ndarray) -> np.ndarray:
        """Return which targets (rows, ...) enter the loss: bool."""
        raise NotImplementedError

    def _samples(self, name: str) -> Samples:
        part = self._parts[name]
        rows, lengths, targets = part.inputs.numpy(), part.pieces.lengths, part.targets.numpy()
        counted = self._counted_targets(targets)
        if self.output == "all":
            steps = max(1, self.skipped or LAST_STEPS)
            found = {"flattened steps": last_steps(rows, lengths, steps)[counted & part.counted]}
            return Samples(found, targets[counted & part.counted])
        steps = min(FLAT_STEPS, int(self._parts["train"].pieces.lengths.max()))
        found = {
            "summary features": summary_features(rows, lengths)[counted],
            "flattened steps": flattened(rows, lengths, steps)[counted],
        }
        return Samples(found, targets[counted])

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
        others: set[str | None] = {self.sequence_column, self.time, self.mask_column, self.split, self.group}
        strange = [name for name in _names(self.categories or "") if self._file.check(name, "categories") in others]
        if strange:
            raise DataError(
                f"Expected categories to be inputs, but got {strange[0]!r}, which has another part to play."
            )
        if not self.sees_target:
            others.update(self.target_columns)
        found, left = [], {}
        for name in self._file.columns:
            if name in others:
                continue
            kind = self._file.kind(name)
            if self._file.is_index(name):
                left[name] = "numbers the rows"
            elif name in _names(self.categories or ""):
                found.append(name)
            elif kind in ("dates", "text", "nested"):
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
                f"{listed(f'{name} ({why})' for name, why in left.items())}. To silence this, name what it sees: "
                f"inputs={','.join(found)[:200]!r}, --inputs.",
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
        """Return `name` if there is such a column and no option gives it another part to play."""
        taken: set[str | None] = {*_names(self.inputs or ""), *_names(self.categories or ""), *self.target_columns}
        taken |= {self.sequence, self.time, self.mask, self.split, self.group}
        return name if name in file.columns and name not in taken else None

    @property
    def _strict_targets(self) -> bool:
        """Whether a missing target is an error."""
        modes = modes_of(self.missing)
        return any(modes.get(name, modes[""]) == "error" for name in self.target_columns)

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
        file = self._read(Path(self.data).expanduser())
        if not self.target_columns:
            raise DataError(f"Expected target to name a column; {file.path} has {listed(file.columns)}.")
        for path in (self.validation_data, self.test_data):
            if path is not None:
                file = _joined(file, self._read(Path(path).expanduser()))
        return file

    def _read(self, path: Path) -> Columns:
        missing = tuple(self.na.split(",")) if self.na else ()
        text = CsvFormat(self.separator, self.decimal, self.thousands, missing)
        return read_columns(path, text, self._sound)

    @property
    def _sound(self) -> SoundFormat:
        return SoundFormat(self.sample_rate, self.sound, self.window_ms, self.hop_ms, self.mels)

    @cached_property
    def _file_of_rows(self) -> np.ndarray | None:
        """Which file each row is of: int64 (R,), 0 for `data`; None if there is one file."""
        others = [path for path in (self.validation_data, self.test_data) if path is not None]
        if not others:
            return None
        rows = [self._read(Path(path).expanduser()).rows for path in (self.data, *others)]
        return np.repeat(np.arange(len(rows)), rows)

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
        channels = Channel.of(description.get("channels") or [[name] for name in columns])
        columns = list(dict.fromkeys(channel.column for channel in channels))
        file = self._named_alike(self._read(path), columns, description.get("features"))
        known = description.get("sequence")
        if known is not None and self._sequence_column(file) is None and not file.sequences:
            raise DataError(
                f"Expected the column {known!r} in {path}, which told the sequences of the training data apart, but "
                f"got only {listed(file.columns)}. Add it, with one value in all rows if they are one sequence."
            )
        order, names, lengths = self._arranged(file)
        features = channel_values(file, channels, order, lengths)
        observed = self._observed(file, channels, order, features, lengths)
        wanted = self._raw_targets(file)[order] if targets else None
        times = file.labels(self.time, "time")[order] if self.time is not None else None
        found = []
        for name, at, steps in zip(names, np.cumsum(lengths) - lengths, lengths):
            seen = np.flatnonzero(observed[at : at + steps])
            if not len(seen):
                raise DataError(f"{path}: no step of sequence {name!r} is observed in all of {', '.join(columns)}.")
            own = slice(at, at + steps)
            cells = [None if values is None else values[own] for values in (wanted, times)]
            found.append(Series(name, seen, features[at + seen], *cells))
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
        order, _, lengths = self._arranged_rows
        features, targets = channel_values(file, self._channels, order, lengths), self._targets_of_rows[order]
        observed = self._observed(file, self._channels, order, features, lengths)
        return Table(features, targets, observed, self._sequences)

    @cached_property
    def _targets_of_rows(self) -> np.ndarray:
        """The targets in the order of the file."""
        for name in self.target_columns:
            self._file.check(name, "target")
        return self._read_targets(self._file)

    @cached_property
    def _channels(self) -> list[Channel]:
        """The inputs, with what is known of them from the training part."""
        rows = self._arranged_rows[0][self._training_rows]
        modes, found = modes_of(self.missing), []
        for name in self.input_columns:
            mode = modes.get(name, modes[""])
            if name in _names(self.categories or ""):
                if mode == "interpolate":
                    raise ArgumentError(
                        f"Expected another way than interpolate for the categories {name!r}. Try indicator."
                    )
                found += category_channels(self._file, name, rows, mode == "indicator")
                continue
            kind = {"indicator": "last", "interpolate": "interpolated"}.get(mode, "number")
            if kind == "number":
                found.append(Channel(name))
                continue
            values = self._file.numbers(name, "inputs")[rows]
            gone = np.isnan(values)
            if gone.all():
                raise DataError(f"no value of {self.data}, column {name!r}, is there in the training part.")
            found.append(Channel(name, kind, float(values[~gone].mean())))
            if mode == "indicator" and gone.any():
                found.append(Channel(name, "missing"))
        return found

    @property
    def _training_rows(self) -> np.ndarray:
        return np.unique(np.concatenate([np.arange(at, at + steps) for at, steps in self._pieces["train"]]))

    @cached_property
    def _arranged_rows(self) -> tuple[np.ndarray, list[str], np.ndarray]:
        return self._arranged(self._file, self._file_of_rows)

    @cached_property
    def _sequences(self) -> Ragged:
        return Ragged(self._arranged_rows[2])

    def _arranged(
        self, file: Columns, file_of_rows: np.ndarray | None = None
    ) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Return the order of the rows in which sequences are together, the sequences' names, and their lengths."""
        rows = file.rows
        order = np.arange(rows)
        if self.time is not None:
            order = np.argsort(file.order(self.time, "time"), kind="stable")
        column = self._sequence_column(file)
        if column is None and file_of_rows is None:
            return order, ["0"], np.array([rows])
        if column is None:
            assert file_of_rows is not None
            lengths = np.bincount(file_of_rows)
            return order[np.argsort(file_of_rows[order], kind="stable")], list(map(str, range(len(lengths)))), lengths
        labels = file.labels(column, "sequence")
        if any(label is None for label in labels):
            row = [label is None for label in labels].index(True) + 1
            raise DataError(
                f"{file.path}, column {column!r}, has missing values, the first in row {row}. Every step needs the "
                f"name of its sequence."
            )
        names, codes = coded(labels)
        if file_of_rows is not None:  # sequences of two files are never the same
            both, codes = np.unique(file_of_rows * len(names) + codes, return_inverse=True)
            names = [names[code % len(names)] for code in both.tolist()]
        return order[np.argsort(codes[order], kind="stable")], names, np.bincount(codes)

    def _observed(
        self, file: Columns, channels: list[Channel], order: np.ndarray, features: np.ndarray, lengths: np.ndarray
    ) -> np.ndarray:
        """Return which steps, in this order, are there: bool (R,). DataError for missing values that nobody spoke of."""
        observed = np.ones(len(order), bool)
        mask = self._mask_column(file)
        if mask is not None:
            flags = file.numbers(mask, "mask")
            wrong = np.flatnonzero(np.isnan(flags) if self.mask else ~np.isin(flags, (0, 1)))
            if len(wrong):
                raise DataError(
                    f"Expected 0 or 1 in {file.path}, column {mask!r}, but got {flags[wrong[0]]:g} in row "
                    f"{wrong[0] + 1}. The column tells which steps are missing; if it is no mask, rename it or name "
                    f"it with inputs, --inputs."
                )
            observed = flags[order] != 0
        modes = modes_of(self.missing)
        mode_of = [modes.get(channel.column, modes[""]) for channel in channels]
        strict = np.array([mode == "error" for mode in mode_of])
        gone = ~np.isfinite(features)
        wrong = observed & (gone & (strict | np.isinf(features))).any(1)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            place = int(np.flatnonzero(gone[row] & (strict | np.isinf(features[row])))[0])
            name = channels[place].column
            raise DataError(
                f"{file.path}, column {name!r}, row {order[row] + 1}: no finite number, as in {int(wrong.sum())} "
                f"row(s) in all. "
                f"{ADVICE if np.isnan(features[row, place]) else 'An infinity is never taken for a missing value.'}"
            )
        skipping = np.array([mode == "skip" for mode in mode_of])
        if skipping.any():
            left_out = np.add.reduceat(
                (observed & (gone & skipping).any(1)).astype(np.int64), lengths.cumsum() - lengths
            )
            observed = observed & np.repeat(left_out == 0, lengths)
        return observed & ~gone.any(1)

    @cached_property
    def _said_parts(self) -> np.ndarray | None:
        """Which part a column or a file of its own says that each row is for, in order; "" where nothing says it."""
        file, found = self._file, None
        if self.split is not None:
            labels = file.labels(self.split, "split")
            names = [PART_NAMES.get(str(label).strip().lower()) for label in labels]
            if None in names:
                row = names.index(None)
                raise DataError(
                    f"Expected train, validation or test in {file.path}, column {self.split!r}, but got "
                    f"{shown(labels[row])} in row {row + 1}. Name the part of every row."
                )
            found = np.array(names, object)
        if self._file_of_rows is not None:
            parts = [p for p, path in (("validation", self.validation_data), ("test", self.test_data)) if path]
            of_file = np.array(["", *parts], object)[self._file_of_rows]
            if found is not None:
                raise ArgumentError("Expected split, or files of their own for validation and test, but got both.")
            found = of_file
        return None if found is None else found[self._arranged_rows[0]]

    @property
    def _strata(self) -> np.ndarray | None:
        """The class of every sequence, if the parts are to have the same shares of each; else None."""
        return None

    @property
    def _whole(self) -> bool:
        """Whether whole sequences are in the parts, rather than stretches of time."""
        if self.output == "last" or self.split_by == "sequences":
            return True
        said, sequences = self._said_parts, self._sequences
        if self.split_by == "time" or len(sequences) == 1:
            return False
        if said is None:
            return True
        return (
            _constant(said, sequences) and len({*said, "validation"}) <= int((said[sequences.starts] == "").sum()) + 3
        )

    def _pieces_of_sequences(self) -> dict[str, list[int]]:
        """Return which sequences are in which part."""
        sequences, said = self._sequences, self._said_parts
        if said is None:
            part_of = np.full(len(sequences), "", object)
        else:
            if not _constant(said, sequences):
                raise DataError(
                    f"Expected one part for all steps of a sequence of {self.data}, but got several. Correct the "
                    f"column {self.split!r}, or divide by time: split_by='time', --split-by time."
                )
            part_of = said[sequences.starts]
        missing = [part for part in PARTS if part not in part_of]
        open_ = np.flatnonzero(part_of == "")
        if "validation" in missing and not len(open_):
            open_ = np.flatnonzero(part_of == "train")
        fixed = {part: [i for i in np.flatnonzero(part_of == part).tolist() if i not in set(open_)] for part in PARTS}
        if "test" in missing and self.split is not None:
            raise DataError(
                f"Expected rows for the test in {self.data}, column {self.split!r}, but got none. Name some."
            )
        if "train" in missing and not len(open_):
            raise DataError(f"Expected rows for training in {self.data}, but got none. Name some.")
        wanted = ["train", *(part for part in missing if part != "train")] if len(open_) else []
        for part, which in self._shared_out(open_, wanted).items():
            fixed[part] = sorted([*fixed[part], *which])
        return fixed

    def _shared_out(self, which: np.ndarray, wanted: list[str]) -> dict[str, list[int]]:
        """Return these sequences in the parts that are wanted, whole groups together."""
        if not wanted:
            return {}
        groups, strata = which, self._strata
        codes = np.arange(len(which))
        if self.group is not None:
            labels = self._file.labels(self.group, "group")[self._arranged_rows[0]]
            if not _constant(labels, self._sequences):
                raise DataError(
                    f"Expected one value of {self.data}, column {self.group!r}, for all steps of a sequence, but got "
                    f"several. A group is made of whole sequences."
                )
            names, codes = coded(map(str, labels[self._sequences.starts[which]]))
            groups = np.arange(len(names))
            strata = None
        count = len(groups)
        if count < len(wanted):
            what = "sequence(s)" if self.group is None else f"group(s) in the column {self.group}"
            time = "" if self.output == "last" or self.group else ", or one, which is divided by time"
            raise DataError(
                f"Expected at least {len(wanted)} {what}, one each for "
                f"{listed(['training' if part == 'train' else part for part in wanted])}{time}, but {self.data} holds "
                f"{count}. Name the column that tells sequences apart with sequence, --sequence."
            )
        classes = None if strata is None else [strata[i] for i in which]
        if len(wanted) == 3:
            parts = shares(count, self.validation_share, self.test_share, self.split_seed, classes)
        else:
            share = {"validation": self.validation_share, "test": self.test_share}
            sizes = {part: min(count - 1, max(1, round(share[part] * count))) for part in wanted if part != "train"}
            sizes = {"train": count - sum(sizes.values()), **sizes}
            parts = divided(np.arange(count), sizes, self.split_seed, classes)
        return {part: which[np.isin(codes, chosen)].tolist() for part, chosen in parts.items()}

    def _stretches(self) -> list[tuple[str, int, int]]:
        """Return (part, first row, steps) of the stretches of time, where sequences are divided by it."""
        sequences, said = self._sequences, self._said_parts
        missing = [part for part in PARTS if said is None or part not in said]
        if "test" in missing and self.split is not None:
            raise DataError(
                f"Expected rows for the test in {self.data}, column {self.split!r}, but got none. Name some."
            )
        found: list[tuple[str, int, int]] = []
        for start, length in zip(sequences.starts.tolist(), sequences.lengths.tolist()):
            own = np.full(length, "", object) if said is None else said[start : start + length]
            edges = np.flatnonzero(np.append(True, own[1:] != own[:-1])).tolist()
            for first, last in zip(edges, [*edges[1:], length]):
                part, at, steps = own[first], start + first, last - first
                if part == "" or (part == "train" and "validation" in missing):
                    found += self._in_time(at, steps, missing)
                else:
                    found.append((part, at, steps))
        return found

    def _in_time(self, at: int, steps: int, missing: list[str]) -> list[tuple[str, int, int]]:
        """Return a stretch divided into one for training and those that are missing."""
        if steps < 3:
            raise DataError(f"Expected at least 3 steps, but {self.data} has {steps}.")
        train, validation, test = counts(steps, self.validation_share, self.test_share)
        sizes = {"train": train, "validation": validation, "test": test}
        sizes = {part: size for part, size in sizes.items() if part == "train" or part in missing}
        sizes["train"] = steps - sum(sizes.values()) + sizes["train"]
        found = []
        for part, size in sizes.items():
            found.append((part, at, size))
            at += size
        return found

    @cached_property
    def _pieces(self) -> dict[str, list[tuple[int, int]]]:
        """(first row, steps) of the pieces of each part."""
        _ = self._targets_of_rows, self.input_columns  # what is wrong with them is said first
        sequences = self._sequences
        if self._whole:
            return {
                part: [(int(sequences.starts[i]), int(sequences.lengths[i])) for i in which]
                for part, which in self._pieces_of_sequences().items()
            }
        found: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
        starts = np.repeat(sequences.starts, sequences.lengths)
        for part, at, steps in self._stretches():
            before = 0 if part == "train" else min(self.context, at - int(starts[at]))
            found[part] += self._windows(at - before, steps + before, part == "train")
        return found

    def _windows(self, start: int, length: int, overlapping: bool) -> list[tuple[int, int]]:
        """Return windows such that every step that can have a loss has one: exactly one, if not overlapping."""
        new = self.window - self.skipped - self.leads[-1]
        if new < 1:
            raise DataError(
                f"Expected window to be at least {self.skipped + self.leads[-1] + 1}, but {self.window} leaves nothing to "
                f"predict after {self.skipped} skipped steps and {self.leads[-1]} ahead."
            )
        stride = max(1, new // _OVERLAP) if overlapping else new
        last = max(0, length - self.window) if overlapping else max(0, length - self.skipped - self.leads[-1] - 1)
        return [(start + at, min(self.window, length - at)) for at in range(0, last + 1, stride)]

    @cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (I,) of the training features; a constant one is left as wide as it is."""
        rows = self._training_rows
        seen = self._table.features[rows[self._table.observed[rows]]]
        if not len(seen):
            raise DataError(f"no training step of {self.data} is observed in all of {', '.join(self.input_columns)}.")
        mean, deviation = self._moments(seen, [channel.name for channel in self._channels])
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
            rows = np.arange(at, at + steps - self.leads[-1])
            enters = np.all([has_target[rows + lead] for lead in self.leads], 0) & (
                np.arange(len(rows)) >= self.skipped
            )
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
            wanted = self._target_tensor(self.answers(targets, rows), there)
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


def modes_of(text: str) -> dict[str, str]:
    """Return the meaning of a missing value by column; "" for all others."""
    found = {"": "error"}
    for entry in text.split(","):
        name, _, word = entry.rpartition("=")
        found[name.strip()] = word.strip()
    return found


def _constant(values: np.ndarray, sequences: Ragged) -> bool:
    """Return whether all rows of each sequence have the same value."""
    return bool((np.repeat(values[sequences.starts], sequences.lengths) == values).all())


def _joined(first: Columns, second: Columns) -> Columns:
    """Return two files with the same columns, one after the other. DataError if they are not alike."""
    absent = [name for name in first.columns if name not in second.columns]
    more = [name for name in second.columns if name not in first.columns]
    if absent or more or first.features != second.features:
        raise DataError(
            f"Expected the columns of {first.path} in {second.path}, but got others: "
            f"{'without ' + listed(absent) if absent else 'with ' + listed(more) if more else second.features}."
        )
    columns = {}
    for name, column in first.columns.items():
        other = second.columns[name]
        if column.dtype != other.dtype and "O" in (column.dtype.kind, other.dtype.kind):
            column, other = column.astype(object), other.astype(object)
        columns[name] = np.concatenate([column, other])
    return Columns(Path(f"{first.path} and {second.path}"), columns, first.features, first.sequences)
