"""The division of a table into training, validation and test: whole sequences, or windows of stretches of time.

With three sequences or more, whole sequences are for training, validation or test, by `split_seed`: as many of each class
in each part as their shares, and whole groups where a column tells which sequences belong together. A file that is one
sequence is divided by time, the first part for training and the last for the test, and each part is cut into windows; no
window reaches into another part. So is every sequence where that is asked for, and both of two series to forecast. Where a
column or files of their own say which part is which, that holds, and only what they do not say is divided.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...errors import ArgumentError, DataError
from ..files.cells import coded, listed, shown
from ..files.part_names import PART_NAMES
from .sequences import Ragged
from .splits import PARTS, counts, divided, shares
from .table_rows import TableRows

_OVERLAP = 8  # training windows that see a step
_SPOKEN = {"train": "training", "validation": "validation", "test": "the test"}
_STEPS = 100  # of a window, if nothing else is asked for and no forecast reads more


class TableSplits(TableRows):
    """A task's table in parts."""

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
                    f"{shown(labels[row])} in {file.row(row)}. Name the part of every row."
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
    def _or_by_time(self) -> str:
        """The division by time as advice, where sequences can be divided."""
        return "" if self.output == "last" else ", or divide by time: split_by='time', --split-by time"

    @property
    def _whole(self) -> bool:
        """Whether whole sequences are in the parts, rather than stretches of time."""
        if self.output == "last" or self.split_by == "sequences":
            return True
        said, sequences = self._said_parts, self._sequences
        if self.split_by == "time" or len(sequences) == 1 or self.embedding is not None:
            return False
        if said is None:  # a forecast of two series has no third one for a part: they are divided by time
            return not (self.sees_target and len(sequences) < len(PARTS) and self.group is None)
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
                    f"column {self.split!r}{self._or_by_time}."
                )
            part_of = said[sequences.starts]
        missing = [part for part in PARTS if part not in part_of]
        open_ = np.flatnonzero(part_of == "")
        if "validation" in missing and not len(open_):
            open_ = np.flatnonzero(part_of == "train")
        is_open = np.zeros(len(part_of), bool)
        is_open[open_] = True
        fixed = {part: np.flatnonzero((part_of == part) & ~is_open).tolist() for part in PARTS}
        if "test" in missing and self.split is not None:
            raise DataError(
                f"Expected rows for the test in {self.data}, column {self.split!r}, but got none. Name some."
            )
        if "train" in missing and not len(open_):
            raise DataError(f"Expected rows for training in {self.data}, but got none. Name some.")
        wanted = ["train", *(part for part in missing if part != "train")] if len(open_) else []
        for part, which in self._shared_out(open_, wanted).items():
            fixed[part] = sorted([*fixed[part], *which])
        if self.group is not None:
            self._check_groups(self.group, fixed)
        return fixed

    def _check_groups(self, group: str, parts: dict[str, list[int]]) -> None:
        """Raise DataError if sequences of one group are in two parts, which a column or files can say."""
        labels = self._file.labels(group, "group")[self._arranged_rows[0]][self._sequences.starts]
        part_of: dict[str, str] = {}
        for part, which in parts.items():
            for label in map(str, labels[which]):
                if part_of.setdefault(label, part) != part:
                    raise DataError(
                        f"Expected the sequences of {self.data} with {shown(label)} in the column {group!r} in one "
                        f"part, but some are for {_SPOKEN[part_of[label]]} and some for {_SPOKEN[part]}. Name one part for "
                        f"them, or leave out group, --group."
                    )

    def _shared_out(self, which: np.ndarray, wanted: list[str]) -> dict[str, list[int]]:
        """Return these sequences in the parts that are wanted, whole groups together."""
        if not wanted:
            return {}
        self._check_shares(wanted)
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
            what = "sequence(s)" if self.group is None else f"group(s) in the column {self.group!r}"
            time = "" if self.output == "last" or self.group else ", or one, which is divided by time"
            single = count == 1 and self.group is None and self.name != "forecast"
            every = "; or to predict every step of one, pass every_step=True, --every-step" * single
            raise DataError(
                f"Expected at least {len(wanted)} {what}, one each for "
                f"{listed(['training' if part == 'train' else part for part in wanted])}{time}, but {self.data} holds "
                f"{count}. "
                + (
                    "Name a column of more groups, or one that names the parts: split, --split."
                    if self.group is not None
                    else f"Name the column that tells sequences apart with sequence, --sequence{every}"
                    f"{'; or to forecast one series from its past, pass ahead, --ahead 1' if single else ''}."
                )
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

    def _check_shares(self, parts: list[str]) -> None:
        """Raise ArgumentError for a part that is to be made and to have nothing."""
        for part, share in (("validation", self.validation_share), ("test", self.test_share)):
            if part in parts and share == 0:
                raise ArgumentError(
                    f"Expected {part}_share, --{part}-share, above 0, for a part of at least one sequence, or one step of a "
                    f"series, but got 0. Leave it out; or name a file of its own: {part}_data, --{part}-data."
                )

    def _check_options_read(self) -> None:
        """Raise ArgumentError for an option of the division that changes nothing; a share of 0 of a named part is true."""
        if self.output == "last" and self.split_by == "time":
            raise ArgumentError(
                "Expected split_by, --split-by, to be sequences for one answer per sequence, but got time: no part of a "
                "sequence has an answer of its own. Leave it out; or predict every step: every_step=True, --every-step."
            )
        said = set() if self._said_parts is None else set(self._said_parts)
        divides = not said >= {"validation", "test"}
        unread = {
            "validation_share": "validation" in said,
            "test_share": "test" in said,
            "split_seed": not (divides and self._whole),
        }
        for name, is_unread in unread.items():
            default = self.__dataclass_fields__[name].default
            if is_unread and getattr(self, name) not in (0, default):
                why = (
                    "where sequences are divided by time, without chance"
                    if divides and name == "split_seed"
                    else f"where {'the parts are' if name == 'split_seed' else 'the part is'} named"
                )
                raise ArgumentError(
                    f"Expected {name}, --{name.replace('_', '-')}, to be {default} {why}, but got {getattr(self, name)}, "
                    f"which would change nothing. Leave it out."
                )

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
        self._check_shares(missing)
        if steps < 3:
            number = int(np.searchsorted(self._sequences.starts, at, side="right")) - 1
            name, advice = "", "Give a longer series."
            if len(self._sequences) > 1:
                name = f" of {shown(str(self._arranged_rows[1][number]))}"
                advice = "Leave that sequence out, or divide whole ones: split_by='sequences', --split-by sequences."
            raise DataError(
                f"Expected at least 3 steps to divide into training, validation and test, but got {steps}{name} in "
                f"{self.data}. {advice}"
            )
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
        self._check_options_read()
        sequences = self._sequences
        if self._whole:
            if self.window not in (None, _STEPS):  # runs from before it could be None have 100 in any case
                raise ArgumentError(
                    f"Expected window, --window, only where sequences are divided by time, but got {self.window} for whole "
                    f"sequences. Leave it out{self._or_by_time}."
                )
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
        window = max(_STEPS, 3 * self.skipped) if self.window is None else self.window
        new = window - self.skipped - self.leads[-1]
        if new < 1:
            raise DataError(
                f"Expected window to be at least {self.skipped + self.leads[-1] + 1}, but {window} leaves nothing to "
                f"predict after {self.skipped} skipped steps and {self.leads[-1]} ahead."
            )
        stride = max(1, new // _OVERLAP) if overlapping else new
        last = max(0, length - window) if overlapping else max(0, length - self.skipped - self.leads[-1] - 1)
        found = list(range(0, last + 1, stride))
        if overlapping and found[-1] < last:
            found.append(last)  # the newest steps
        return [(start + at, min(window, length - at)) for at in found]

    @property
    def _training_rows(self) -> np.ndarray:
        return np.unique(np.concatenate([np.arange(at, at + steps) for at, steps in self._pieces["train"]]))


def _constant(values: np.ndarray, sequences: Ragged) -> bool:
    """Return whether all rows of each sequence have the same value."""
    return bool((np.repeat(values[sequences.starts], sequences.lengths) == values).all())
