"""The rows of a table by sequence: the file, the parts that its columns play, the order, and which steps are there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..._warnings import warn
from ...errors import ArgumentError, DataError
from ..files.cells import coded, is_missing, listed
from ..files.columns import Columns, is_text, joined, read_columns
from ..files.csv_format import CsvFormat, spellings
from ..files.dates import compact_nanoseconds
from ..files.frames import Frame, shown_name, store
from ..files.sound_folder import SoundFormat, has_manifest, is_sound, sounds_of
from .channels import Channel, beyond, channel_values
from .sequences import Ragged
from .table_options import TableOptions, modes_of, names_in
from .time_grid import grid_of

INFINITE = "An infinity is never taken for a missing value. Replace it by a number, or leave the cell empty."
_FEWEST_OF_A_CLOCK = 10  # rows
ADVICE = (
    "Fill them in, or say in training what a missing value means: missing='hold', --missing hold (the step is left out), or "
    "indicator, interpolate, skip."
)


class TableRows(TableOptions):
    """A task's table, a sequence after the other."""

    def files(self) -> dict[str, Path]:
        """Return the files of training, validation and test."""
        found: dict[str, Path] = {}
        for path in (self.data, self.validation_data, self.test_data):
            if path and is_sound(Path(path).expanduser()):
                sounds = sounds_of(Path(path).expanduser(), self._text)
                found |= {f"{Path(path).name}/{name}": file for name, file in sounds.items()}
            elif path and Path(path).expanduser().is_file():
                found[Path(path).name if Path(path).name not in found else str(path)] = Path(path).expanduser()
        return found

    def stored(self, folder: Path) -> TableRows:
        """Return the task with DataFrames as Parquet files in a folder."""
        found = {name: getattr(self, name) for name in ("data", "test_data", "validation_data")}
        frames: dict[str, Any] = {
            name: store(value, folder) for name, value in found.items() if isinstance(value, Frame)
        }
        return replace(self, **frames) if frames else self

    @cached_property
    def input_columns(self) -> list[str]:
        """The names of what the network sees."""
        for name in modes_of(self.missing):
            if name:
                self._file.check(name, "missing")
        words = names_in(self.categories or "")
        twice = next((name for name in words if words.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"Expected each column once in categories, but got {twice!r} several times. Name it once.")
        if self.inputs is not None:
            if not names_in(self.inputs):
                raise DataError(
                    f"Expected inputs to name a column; {self._file.path} has {listed(self._file.columns)}."
                )
            return self._named_inputs(self.inputs)
        others: set[str | None] = {self.sequence_column, self.time, self.mask_column, self.split, self.group}
        strange = [name for name in names_in(self.categories or "") if self._file.check(name, "categories") in others]
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
            if self._file.features and name == "time":  # of a file of arrays
                left[name] = f"times{self._lacks(name)}"
            elif self._file.is_index(name):
                left[name] = f"numbers the rows{self._lacks(name, unique=True)}"
            elif name in names_in(self.categories or ""):
                found.append(name)
            elif kind in ("dates", "text", "nested"):
                left[name] = f"{kind}{self._lacks(name) if kind == 'dates' else ''}"
            else:
                self._file.numbers(name, "inputs")  # DataError where a cell is none
                found.append(name)
        if not found:
            raise DataError(
                f"Expected a column of numbers in {self._file.path} that could be an input next to the target, but got none"
                f"{': ' * bool(left)}{listed(f'{name} ({why})' for name, why in left.items())}. Name one with inputs, "
                f"--inputs; or to forecast the target from its own past, pass ahead, --ahead 1."
            )
        if left:
            warn(
                f"{self._file.path}: the network does not see "
                f"{listed(f'{name} ({why})' for name, why in left.items())}. To silence this, name what it sees: "
                f"inputs={','.join(found)[:200]!r}, --inputs."
            )
        clocks = [name for name in found if name not in self.target_columns and self._is_clock(name)]
        if clocks:
            warn(
                f"{self._file.path}: the network sees {listed(clocks)}, which grows by the same amount from row to row, as a "
                f"clock does: later steps have values that training never saw. Name it with time, --time, and the network "
                f"does not see it. To silence this, name what it sees: inputs={','.join(found)[:200]!r}, --inputs."
            )
        strange = [name for name in found if self._file.is_nameless(name)]
        if strange:
            warn(
                f"{self._file.path}: the network sees {listed(strange)}, a column without a name that does not number the "
                f"rows. If it is the time, name it with time, --time. To silence this, name the column, or what the network "
                f"sees: inputs={','.join(found)[:200]!r}, --inputs.",
            )
        return found

    def _is_clock(self, name: str) -> bool:
        """Return whether a column of whole numbers grows by one amount from row to row of a table of one sequence, of which
        no column says the time.
        """
        column = self._file.columns[name]
        if self.time is not None or self.sequence_column is not None:
            return False
        if column.dtype.kind not in "iu" or len(column) < _FEWEST_OF_A_CLOCK:
            return False
        dates = compact_nanoseconds(column)
        steps = np.diff(column.astype(np.float64) if dates is None else dates)
        return bool(steps[0] > 0 and (steps == steps[0]).all())

    def _lacks(self, name: str, unique: bool = False) -> str:
        """Return what a column of times that nobody named says of the steps, and advice: out of order, twice, or with gaps.

        unique: Whether that is asked only of a column in which no cell is there twice.
        """
        if self.time is not None:
            return ""
        try:
            times = self._file.order(name, "time")
        except DataError:
            return ""
        if unique and len(np.unique(times)) < len(times):
            return ""
        order, _, lengths = self._arranged_rows
        earlier = times[order][1:] < times[order][:-1]
        earlier[lengths.cumsum()[:-1] - 1] = False  # where another sequence begins
        if earlier.any():
            return " out of order: pass time"
        grid = grid_of(self._file, name, order, lengths)
        what = "" if grid is None else {"doubled": ", some twice", "gaps": " with gaps"}.get(grid.kind)
        return f"{what}: pass time" if what else ""

    def _named_inputs(self, inputs: str) -> list[str]:
        """Return the names that the option `inputs` has. DataError if one is there twice, or a category is not."""
        names = [self._file.check(name, "inputs") for name in names_in(inputs)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"Expected each column once in inputs, but got {twice!r} several times. Name it once.")
        words = [self._file.check(name, "categories") for name in names_in(self.categories or "")]
        unseen = next((name for name in words if name not in (*names, *names_in(self.known or ""))), None)
        if unseen is not None:
            raise DataError(
                f"Expected categories to be among the inputs, but got {unseen!r}, which the network does not see. Add it to "
                f"inputs, --inputs, or leave it out of categories, --categories."
            )
        seen = [name for name in names if name in self.target_columns and not self.sees_target]
        if seen:
            warn(
                f"{self._file.path}: the network sees the target {seen[0]} of the step that it predicts, which is not known "
                f"then. To silence this, leave it out of inputs, --inputs."
            )
        return names

    @cached_property
    def known_columns(self) -> list[str]:
        """The names of what is known ahead."""
        found = [self._file.check(name, "known") for name in names_in(self.known or "")]
        others = {self.sequence_column, self.time, self.mask_column, self.split, self.group, *self.target_columns}
        strange = [name for name in found if name in others or found.count(name) > 1]
        if strange or (self.known is not None and not found):
            raise DataError(
                f"Expected known to name columns whose values are known ahead, each once and none with another part to "
                f"play, but got {self.known!r}. {self._file.path} has {listed(self._file.columns)}."
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
        taken: set[str | None] = {*names_in(self.inputs or ""), *names_in(self.categories or ""), *self.target_columns}
        taken |= {self.sequence, self.time, self.mask, self.split, self.group}
        return name if name in file.columns and name not in taken else None

    @cached_property
    def _file(self) -> Columns:
        file = self._read(Path(self.data).expanduser())
        if not self.target_columns:
            raise DataError(f"Expected target to name a column; {file.path} has {listed(file.columns)}.")
        twice = next((name for name in self.target_columns if self.target_columns.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"Expected each column once in target, but got {twice!r} several times. Name it once.")
        if self.sequence is not None and self.sequence in self.target_columns:
            raise DataError(
                f"Expected a target that the network could learn, but got {self.sequence!r}, which tells sequences apart. "
                f"Name another target, or another column with sequence, --sequence."
            )
        self._check_options_of_files()
        for path in (self.validation_data, self.test_data):
            if path is not None:
                words = {name: cells.tolist() for name, cells in file.columns.items() if cells.dtype == object}
                file = joined(file, self._read(Path(path).expanduser(), file.commas, words))
        return file

    def _check_options_of_files(self) -> None:
        """Raise ArgumentError for an option of text files or of sounds where there are none, or that is not read."""
        given = [
            Path(path).expanduser() for path in (self.data, self.validation_data, self.test_data) if path is not None
        ]
        marks = {name: getattr(self, name) for name in ("separator", "decimal", "thousands", "na", "encoding")}
        marks["default_na"] = None if self.default_na == "usual" else self.default_na
        names = ("sample_rate", "sound", "window_ms", "hop_ms", "mels")
        sounds = {name: value for name, value, usual in zip(names, self._sound, SoundFormat()) if value != usual}
        for options, kind, found in (
            (
                {name: mark for name, mark in marks.items() if mark is not None},
                "text files",
                (is_text(path) or has_manifest(path) for path in given),
            ),
            (sounds, "sounds", map(is_sound, given)),
        ):
            if options and not any(found):
                name, value = next(iter(options.items()))
                raise ArgumentError(
                    f"Expected {name} only for {kind}, but got {value!r} for {shown_name(self.data)}. Leave it out."
                )
        self._sound.check_read()

    def _read(
        self, path: Path, commas: Sequence[str] = (), words: Mapping[str, Iterable[object]] | None = None
    ) -> Columns:
        """Return the columns of a file.

        Args:
            path: The file.
            commas: Columns that had decimal commas in the training data.
            words: What is known of the cells of a column: those that are spelled as a missing value are none in it.
        """
        known = {name: [cell for cell in cells if isinstance(cell, str)] for name, cells in (words or {}).items()}
        own = {name: tuple(sorted(set(filter(is_missing, cells)))) for name, cells in known.items()}
        text = self._text._replace(
            commas=tuple(commas), words_of=tuple((name, cells) for name, cells in own.items() if cells)
        )
        return read_columns(path, text, self._sound)

    @property
    def _takes_words_for_missing(self) -> bool:
        """Whether a cell of the data may be a word, such as None, that was taken for a missing value."""
        path = Path(self.data).expanduser()
        return self.default_na == "usual" and (is_text(path) or has_manifest(path))

    @property
    def _text(self) -> CsvFormat:
        """How text files are written, by the options."""
        usual = self.default_na == "usual"
        return CsvFormat(self.separator, self.decimal, self.thousands, spellings(self.na), self.encoding, usual=usual)

    @cached_property
    def _file_of_rows(self) -> np.ndarray | None:
        """Which file each row is of: int64 (R,), 0 for `data`; None if there is one file."""
        others = [path for path in (self.validation_data, self.test_data) if path is not None]
        if not others:
            return None
        rows = [self._read(Path(path).expanduser(), self._file.commas).rows for path in (self.data, *others)]
        return np.repeat(np.arange(len(rows)), rows)

    @cached_property
    def _arranged_rows(self) -> tuple[np.ndarray, list[str], np.ndarray]:
        return self._arranged(self._file, self._file_of_rows)

    @cached_property
    def _sequences(self) -> Ragged:
        return Ragged(self._arranged_rows[2])

    def _arranged(
        self, file: Columns, file_of_rows: np.ndarray | None = None
    ) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Return the order of the rows in which sequences are together, the sequences' names, and their lengths.

        Warns of equal times within a sequence.
        """
        found = self._together(file, file_of_rows)
        order, _, lengths = found
        if self.time is None or len(order) < 2:
            return found
        times = file.order(self.time, "time")[order]
        inside = np.ones(len(order) - 1, bool)
        inside[np.cumsum(lengths)[:-1] - 1] = False
        equal = np.flatnonzero(inside & (times[1:] == times[:-1]))
        if len(equal):
            one_time = len(equal) == int(inside.sum())
            warn(
                f"{file.path}, column {self.time!r}: {len(equal)} row(s) have the time of the step before in their sequence, "
                f"the first in {file.row(order[equal[0] + 1])}; they are in the order of the table."
                f"{' No sequence has two times, so that the column gives the steps no order.' * one_time} If they are of "
                f"several sequences, name the column of these with sequence, --sequence; else put the table "
                f"in order and leave time out, which also silences the warning."
            )
        return found

    def _together(self, file: Columns, file_of_rows: np.ndarray | None) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Return the same, whatever the times."""
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
            row = file.row([label is None for label in labels].index(True))
            raise DataError(
                f"Expected the name of its sequence for every step in {file.path}, column {column!r}, but got missing "
                f"values, the first in {row}. Fill them in, or leave the rows out."
            )
        names, codes = coded(labels)
        if file_of_rows is not None:  # sequences of two files are never the same
            both, codes = np.unique(file_of_rows * len(names) + codes, return_inverse=True)
            names = [names[code % len(names)] for code in both.tolist()]
        return order[np.argsort(codes[order], kind="stable")], names, np.bincount(codes)

    def _features(
        self,
        file: Columns,
        channels: list[Channel],
        order: np.ndarray,
        lengths: np.ndarray,
        series: Sequence[str],
        stretches: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the inputs (R, I) in this order. DataError for a series without a vector, or a warning, as asked."""
        features = channel_values(file, channels, order, lengths, series, stretches)
        if channels[-1].kind != "series":
            return features
        unseen = features[:, -1] == len(series)
        if unseen.any():
            labels = file.labels(channels[-1].column, "sequence")[order[unseen]]
            names = listed(sorted(set(map(str, labels))))
            if self.new_series == "error":
                raise DataError(
                    f"Expected series that were in the training part in {file.path}, but got others, for which there is no "
                    f"vector: {names}. Leave them out; or train with the mean of all vectors for them, "
                    f"new_series='mean', --new-series mean."
                )
            warn(
                f"{file.path}: series that were not in the training part are read with the mean of the vectors of all "
                f"{len(series)}: {names}. To silence this, leave them out."
            )
        return features

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
                    f"Expected 0 or 1 in {file.path}, column {mask!r}, but got {flags[wrong[0]]:g} in "
                    f"{file.row(wrong[0])}. The column tells which steps are missing; if it is no mask, rename it or name "
                    f"it with inputs, --inputs."
                )
            observed = flags[order] != 0
        modes = modes_of(self.missing)
        mode_of = [modes.get(channel.column, modes[""]) for channel in channels]
        strict = np.array([mode == "error" for mode in mode_of])
        gone = ~np.isfinite(features)
        unknown = gone & ~beyond(channels, lengths)  # what no later row could have said
        wrong = observed & (unknown & (strict | np.isinf(features))).any(1)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            place = int(np.flatnonzero(unknown[row] & (strict | np.isinf(features[row])))[0])
            name = channels[place].column
            raise DataError(
                f"Expected finite numbers in {file.path}, column {name!r}, but got {features[row, place]:g} in "
                f"{file.row(order[row + channels[place].lead])}, as in {int(wrong.sum())} row(s) in all. "
                f"{ADVICE if np.isnan(features[row, place]) else INFINITE}"
            )
        skipping = np.array([mode == "skip" for mode in mode_of])
        if skipping.any():
            left_out = np.add.reduceat(
                (observed & (unknown & skipping).any(1)).astype(np.int64), lengths.cumsum() - lengths
            )
            observed = observed & np.repeat(left_out == 0, lengths)
        return observed & ~gone.any(1)

    @property
    def _strict_targets(self) -> np.ndarray:
        """Whether a missing target is an error: bool (O,), of each column."""
        modes = modes_of(self.missing)
        return np.array([modes.get(name, modes[""]) == "error" for name in self.target_columns])

    @abstractmethod
    def _read_targets(self, file: Columns) -> np.ndarray:
        """Return the targets of every row, see Table."""

    @abstractmethod
    def _raw_targets(self, file: Columns) -> np.ndarray:
        """Return the targets of every row as the file has them: labels (R,), or numbers (R, O)."""

    @cached_property
    def _targets_of_rows(self) -> np.ndarray:
        """The targets in the order of the file."""
        for name in self.target_columns:
            self._file.check(name, "target")
        return self._read_targets(self._file)
