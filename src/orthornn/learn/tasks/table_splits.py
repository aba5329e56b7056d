"""The division of a table into training, validation and test: whole sequences, or windows of stretches of time.

With three sequences or more, whole sequences are for training, validation or test, by `split_seed`: as many of each class
in each part as their shares, and whole groups where a column tells which sequences belong together. A file that is one
sequence is divided by time, the first part for training and the last for the test, and each part is cut into windows; no
window reaches into another part. So is every sequence where that is asked for, and both of two series to forecast. Where a
column or files of their own say which part is which, that holds, and only what they do not say is divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...errors import ArgumentError, DataError
from ..files.cells import coded, listed, shown
from ..files.columns import Table
from ..files.part_names import PART_NAMES
from .sequences import Ragged
from .splits import PARTS, counts, divided, shares
from .table_options import TableOptions
from .table_sequences import Sequences
from .table_source import Source

_OVERLAP = 8  # training windows that see a step
_SPOKEN = {"train": "training", "validation": "validation", "test": "the test"}
_STEPS = 100  # of a window, if nothing else is asked for and no forecast reads more


@dataclass(frozen=True)
class Split:
    """The pieces of sequences that are each part: (first row, steps), rows in the order of the sequences.

    stretches: (part, first row, steps) of what is divided by time; None where whole sequences are.
    """

    pieces: dict[str, list[tuple[int, int]]]
    stretches: list[tuple[str, int, int]] | None

    @property
    def whole(self) -> bool:
        """Whether whole sequences are in the parts, rather than stretches of time."""
        return self.stretches is None

    @property
    def training_rows(self) -> np.ndarray:
        """The rows of the training part, int64, ascending."""
        return np.unique(np.concatenate([np.arange(at, at + steps) for at, steps in self.pieces["train"]]))


class _Divided(NamedTuple):
    """A table that is divided.

    said: Which part a column or a file of its own says that each row is for; "" where nothing does.
    strata: The class of every sequence, if the parts are to have the same shares of each.
    """

    options: TableOptions
    table: Table
    sequences: Sequences
    said: np.ndarray | None
    strata: np.ndarray | None

    @property
    def rows(self) -> Ragged:
        """Where each sequence begins, and its length."""
        return self.sequences.rows


def split_of(options: TableOptions, source: Source, sequences: Sequences, strata: np.ndarray | None) -> Split:
    """Return the parts of a table. DataError or ArgumentError where they cannot be as the options say.

    strata: The class of every sequence, if the parts are to have the same shares of each; else None.
    """
    own = _Divided(options, source.table, sequences, _said_parts(options, source, sequences), strata)
    rows, whole = sequences.rows, _divides_sequences(own)
    _check_options_read(own, whole)
    if whole:
        if options.window not in (None, _STEPS):  # runs from before it could be None have 100 in any case
            raise ArgumentError(
                f"Expected window, --window, only where sequences are divided by time, but got {options.window} for whole "
                f"sequences. Leave it out{_or_by_time(options)}."
            )
        pieces = {
            part: [(int(rows.starts[i]), int(rows.lengths[i])) for i in which]
            for part, which in _sequences_of_parts(own).items()
        }
        return Split(pieces, None)
    stretches = _stretches(own)
    found: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
    starts = np.repeat(rows.starts, rows.lengths)
    for part, at, steps in stretches:
        before = 0 if part == "train" else min(options.forecasting.context, at - int(starts[at]))
        found[part] += _windows(options, at - before, steps + before, part == "train")
    return Split(found, stretches)


def _said_parts(options: TableOptions, source: Source, sequences: Sequences) -> np.ndarray | None:
    """Return which part a column or a file of its own says that each row is for, in order; "" where nothing says it."""
    table, found = source.table, None
    if options.split is not None:
        labels = table.labels(options.split, "split")
        names = [PART_NAMES.get(str(label).strip().lower()) for label in labels]
        if None in names:
            row = names.index(None)
            raise DataError(
                f"Expected train, validation or test in {table.path}, column {options.split!r}, but got "
                f"{shown(labels[row])} in {table.row(row)}. Name the part of every row."
            )
        found = np.array(names, object)
    if source.file_of_rows is not None:
        if found is not None:
            raise ArgumentError("Expected split, or files of their own for validation and test, but got both.")
        parts = [p for p, path in (("validation", options.validation_data), ("test", options.test_data)) if path]
        found = np.array(["", *parts], object)[source.file_of_rows]
    return None if found is None else found[sequences.order]


def _or_by_time(options: TableOptions) -> str:
    """Return the division by time as advice, where sequences can be divided."""
    return "" if options.output == "last" else ", or divide by time: split_by='time', --split-by time"


def _divides_sequences(own: _Divided) -> bool:
    """Return whether whole sequences are in the parts, rather than stretches of time."""
    options, said, rows = own.options, own.said, own.rows
    if options.output == "last" or options.split_by == "sequences":
        return True
    if options.split_by == "time" or len(rows) == 1 or options.forecasting.embedding is not None:
        return False
    if said is None:  # a forecast of two series has no third one for a part: they are divided by time
        return not (options.predicts_ahead and len(rows) < len(PARTS) and options.group is None)
    return _constant(said, rows) and len({*said, "validation"}) <= int((said[rows.starts] == "").sum()) + 3


def _sequences_of_parts(own: _Divided) -> dict[str, list[int]]:
    """Return which sequences are in which part."""
    options, rows, said = own.options, own.rows, own.said
    if said is None:
        part_of = np.full(len(rows), "", object)
    else:
        if not _constant(said, rows):
            raise DataError(
                f"Expected one part for all steps of a sequence of {options.data}, but got several. Correct the "
                f"column {options.split!r}{_or_by_time(options)}."
            )
        part_of = said[rows.starts]
    missing = [part for part in PARTS if part not in part_of]
    open_ = np.flatnonzero(part_of == "")
    if "validation" in missing and not len(open_):
        open_ = np.flatnonzero(part_of == "train")
    is_open = np.zeros(len(part_of), bool)
    is_open[open_] = True
    fixed = {part: np.flatnonzero((part_of == part) & ~is_open).tolist() for part in PARTS}
    _check_test(own, missing)
    if "train" in missing and not len(open_):
        raise DataError(f"Expected rows for training in {options.data}, but got none. Name some.")
    wanted = ["train", *(part for part in missing if part != "train")] if len(open_) else []
    for part, which in _shared_out(own, open_, wanted).items():
        fixed[part] = sorted([*fixed[part], *which])
    if options.group is not None:
        _check_groups(own, options.group, fixed)
    return fixed


def _check_test(own: _Divided, missing: list[str]) -> None:
    """Raise DataError if a column names the parts, and no row is for the test."""
    if "test" in missing and own.options.split is not None:
        raise DataError(
            f"Expected rows for the test in {own.options.data}, column {own.options.split!r}, but got none. Name some."
        )


def _check_groups(own: _Divided, group: str, parts: dict[str, list[int]]) -> None:
    """Raise DataError if sequences of one group are in two parts, which a column or files can say."""
    labels = own.table.labels(group, "group")[own.sequences.order][own.rows.starts]
    part_of: dict[str, str] = {}
    for part, which in parts.items():
        for label in map(str, labels[which]):
            if part_of.setdefault(label, part) != part:
                raise DataError(
                    f"Expected the sequences of {own.options.data} with {shown(label)} in the column {group!r} in one "
                    f"part, but some are for {_SPOKEN[part_of[label]]} and some for {_SPOKEN[part]}. Name one part for "
                    f"them, or leave out group, --group."
                )


def _shared_out(own: _Divided, which: np.ndarray, wanted: list[str]) -> dict[str, list[int]]:
    """Return these sequences in the parts that are wanted, whole groups together."""
    if not wanted:
        return {}
    options = own.options
    _check_shares(options, wanted)
    strata, codes, count = own.strata, np.arange(len(which)), len(which)
    if options.group is not None:
        labels = own.table.labels(options.group, "group")[own.sequences.order]
        if not _constant(labels, own.rows):
            raise DataError(
                f"Expected one value of {options.data}, column {options.group!r}, for all steps of a sequence, but got "
                f"several. A group is made of whole sequences."
            )
        names, codes = coded(map(str, labels[own.rows.starts[which]]))
        strata, count = None, len(names)
    if count < len(wanted):
        raise _too_few(options, wanted, count)
    classes = None if strata is None else [strata[i] for i in which]
    if len(wanted) == 3:
        parts = shares(count, options.validation_share, options.test_share, options.split_seed, classes)
    else:
        share = {"validation": options.validation_share, "test": options.test_share}
        sizes = {part: min(count - 1, max(1, round(share[part] * count))) for part in wanted if part != "train"}
        sizes = {"train": count - sum(sizes.values()), **sizes}
        parts = divided(np.arange(count), sizes, options.split_seed, classes)
    return {part: which[np.isin(codes, chosen)].tolist() for part, chosen in parts.items()}


def _too_few(options: TableOptions, wanted: list[str], count: int) -> DataError:
    """Return the error of fewer sequences or groups than parts, with what to do."""
    group = options.group
    what = "sequence(s)" if group is None else f"group(s) in the column {group!r}"
    time = "" if options.output == "last" or group else ", or one, which is divided by time"
    single = count == 1 and group is None and options.name != "forecast"
    every = "; or to predict every step of one, pass every_step=True, --every-step" * single
    advice = (
        "Name a column of more groups, or one that names the parts: split, --split."
        if group is not None
        else f"Name the column that tells sequences apart with sequence, --sequence{every}"
        f"{'; or to forecast one series from its past, pass ahead, --ahead 1' if single else ''}."
    )
    return DataError(
        f"Expected at least {len(wanted)} {what}, one each for "
        f"{listed(['training' if part == 'train' else part for part in wanted])}{time}, but {options.data} holds "
        f"{count}. {advice}"
    )


def _check_shares(options: TableOptions, parts: list[str]) -> None:
    """Raise ArgumentError for a part that is to be made and to have nothing."""
    for part, share in (("validation", options.validation_share), ("test", options.test_share)):
        if part in parts and share == 0:
            raise ArgumentError(
                f"Expected {part}_share, --{part}-share, above 0, for a part of at least one sequence, or one step of a "
                f"series, but got 0. Leave it out; or name a file of its own: {part}_data, --{part}-data."
            )


def _check_options_read(own: _Divided, whole: bool) -> None:
    """Raise ArgumentError for an option of the division that changes nothing; a share of 0 of a named part is true."""
    options = own.options
    if options.output == "last" and options.split_by == "time":
        raise ArgumentError(
            "Expected split_by, --split-by, to be sequences for one answer per sequence, but got time: no part of a "
            "sequence has an answer of its own. Leave it out; or predict every step: every_step=True, --every-step."
        )
    said = set() if own.said is None else set(own.said)
    divides = not said >= {"validation", "test"}
    unread = {
        "validation_share": "validation" in said,
        "test_share": "test" in said,
        "split_seed": not (divides and whole),
    }
    for name, is_unread in unread.items():
        default = options.__dataclass_fields__[name].default
        if is_unread and getattr(options, name) not in (0, default):
            why = (
                "where sequences are divided by time, without chance"
                if divides and name == "split_seed"
                else f"where {'the parts are' if name == 'split_seed' else 'the part is'} named"
            )
            raise ArgumentError(
                f"Expected {name}, --{name.replace('_', '-')}, to be {default} {why}, but got {getattr(options, name)}, "
                f"which would change nothing. Leave it out."
            )


def _stretches(own: _Divided) -> list[tuple[str, int, int]]:
    """Return (part, first row, steps) of the stretches of time, where sequences are divided by it."""
    rows, said = own.rows, own.said
    missing = [part for part in PARTS if said is None or part not in said]
    _check_test(own, missing)
    found: list[tuple[str, int, int]] = []
    for start, length in zip(rows.starts.tolist(), rows.lengths.tolist()):
        parts = np.full(length, "", object) if said is None else said[start : start + length]
        edges = np.flatnonzero(np.append(True, parts[1:] != parts[:-1])).tolist()
        for first, last in zip(edges, [*edges[1:], length]):
            part, at, steps = parts[first], start + first, last - first
            if part == "" or (part == "train" and "validation" in missing):
                found += _in_time(own, at, steps, missing)
            else:
                found.append((part, at, steps))
    return found


def _in_time(own: _Divided, at: int, steps: int, missing: list[str]) -> list[tuple[str, int, int]]:
    """Return a stretch divided into one for training and those that are missing."""
    _check_shares(own.options, missing)
    if steps < 3:
        number = int(np.searchsorted(own.rows.starts, at, side="right")) - 1
        name, advice = "", "Give a longer series."
        if len(own.rows) > 1:
            name = f" of {shown(str(own.sequences.names[number]))}"
            advice = "Leave that sequence out, or divide whole ones: split_by='sequences', --split-by sequences."
        raise DataError(
            f"Expected at least 3 steps to divide into training, validation and test, but got {steps}{name} in "
            f"{own.options.data}. {advice}"
        )
    train, validation, test = counts(steps, own.options.validation_share, own.options.test_share)
    sizes = {"train": train, "validation": validation, "test": test}
    sizes = {part: size for part, size in sizes.items() if part == "train" or part in missing}
    sizes["train"] = steps - sum(sizes.values()) + sizes["train"]
    found = []
    for part, size in sizes.items():
        found.append((part, at, size))
        at += size
    return found


def _windows(options: TableOptions, start: int, length: int, overlapping: bool) -> list[tuple[int, int]]:
    """Return windows such that every step that can have a loss has one: exactly one, if not overlapping."""
    skipped, lead = options.forecasting.skipped, options.forecasting.leads[-1]
    window = max(_STEPS, 3 * skipped) if options.window is None else options.window
    new = window - skipped - lead
    if new < 1:
        raise DataError(
            f"Expected window to be at least {skipped + lead + 1}, but {window} leaves nothing to "
            f"predict after {skipped} skipped steps and {lead} ahead."
        )
    stride = max(1, new // _OVERLAP) if overlapping else new
    last = max(0, length - window) if overlapping else max(0, length - skipped - lead - 1)
    found = list(range(0, last + 1, stride))
    if overlapping and found[-1] < last:
        found.append(last)  # the newest steps
    return [(start + at, min(window, length - at)) for at in found]


def _constant(values: np.ndarray, rows: Ragged) -> bool:
    """Return whether all rows of each sequence have the same value."""
    return bool((np.repeat(values[rows.starts], rows.lengths) == values).all())
