"""The options of a task on the user's own table: which file, which column plays which part, and how it is divided."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from ..._checks import check_choice, check_integer, check_number
from ...errors import ArgumentError
from ..fields import check_choices
from ..files.csv_format import check_encoding
from ..files.data_frames import Source, source
from ..files.sound_folder import SoundFormat
from .channels import MODES
from .task import Task

OF_SOUNDS = ("sample_rate", "sound", "window_ms", "hop_ms", "mels")  # in the order of the fields of SoundFormat


class Forecasting(NamedTuple):
    """The options of a forecast; the defaults are those of classification and regression.

    leads: How many steps later than the input the targets are, ascending. skipped: First steps of a piece without a loss.
    context: Steps before a stretch of validation or test that its first windows begin with. known: Columns whose values are
        known ahead. embedding: Numbers of a vector for each series. new_series: What is done with one without a vector.
    """

    leads: tuple[int, ...] = (0,)
    skipped: int = 0
    context: int = 0
    known: str | None = None
    embedding: int | None = None
    new_series: Literal["error", "mean"] = "error"


@dataclass(frozen=True)
class TableOptions(Task):
    """The fields that classification, regression and forecasting have."""

    data: Source = "data.csv"
    """File (.csv, .tsv, also .gz; .parquet, .feather, .npz, .npy, .ts) with one row per step, or folder of sounds, with
    their labels as subfolders or in a CSV file. In Python also a DataFrame."""
    target: str = ""
    """Column to predict; several, separated by commas, for regression and forecasting. A name with a comma is in double
    quotes, here and in the other options that list columns: '"Weight, kg"'."""
    sequence: str | None = None
    """Column that tells sequences apart. Default: the column named sequence, if there is one; otherwise all rows are
    one sequence."""
    inputs: str | None = None
    """Columns that the network reads, separated by commas. Default: all columns of numbers and truth values that no
    other option names; a warning lists the columns left out."""
    time: str | None = None
    """Column that orders the steps of a sequence: numbers, or dates in ISO 8601. Default: the order of the rows."""
    irregular: bool = False
    """Let the network turn and decay over the time between steps, as --time says it, in units of its median in training.
    Only for the model blocks, which is exact between steps."""
    mask: str | None = None
    """Column that is 0 where a step is missing. Default: the column named mask, if there is one."""
    missing: str = "error"
    """Treatment of missing values. error: refuse them; hold: hold the state at such a step; indicator: the last value
    seen, and an input that marks it; interpolate: a value between its neighbors; skip: leave the sequence out. For
    single columns: column=word, separated by commas."""
    validation_share: float = 0.15
    """Share of the sequences, or of the time, for validation, from 0 to 1."""
    test_share: float = 0.15
    """Share of the sequences, or of the time, for the test, from 0 to 1."""
    split_seed: int = 0
    """Seed of the split."""
    window: int | None = None
    """Steps per window, at least 2, if sequences are divided by time. Default: 100, or three times the `skipped` steps
    of a forecast, if that is more."""
    categories: str | None = None
    """Columns of words or codes, separated by commas, that the network reads as one input per value in the training
    data. Default: none."""
    split: str | None = None
    """Column with train, validation or test (or valid, dev, ...). Default: split by the shares."""
    group: str | None = None
    """Column, such as a person, whose sequences of one value stay in the same part of the split. Default: none."""
    stratified: bool = True
    """Divide the sequences of each class by the shares, if each sequence has one class."""
    split_by: Literal["sequences", "time"] | None = None
    """Divide whole sequences, or each sequence by time. Default: whole sequences if there are at least three."""
    test_data: Source | None = None
    """Separate file for the test. Default: none."""
    validation_data: Source | None = None
    """Separate file for validation. Default: none."""
    separator: str | None = None
    """Character between the cells of a text file. Default: the most frequent of comma, semicolon and tab in the first
    line."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of a text file. Default: inferred from the cells if they allow only one."""
    thousands: str | None = None
    """Mark between groups of three digits in a text file. Default: inferred from the cells if they allow only one."""
    na: str | None = None
    """Further spellings of a missing value in a text file, separated by commas; -9999 is also -9999.0. Default: none."""
    default_na: Literal["usual", "empty"] = "usual"
    """Spellings of a missing value in a text file without --na. usual: nan, na, null, none, n/a and the like; empty:
    empty cells only, where None or NA is the name of a class."""
    encoding: str | None = None
    """Encoding of a text file, such as latin-1, cp1252 or utf-16. Default: utf-8."""
    sound: Literal["log-mel", "frames"] = "log-mel"
    """Inputs from a sound: log-mel energies, or the samples of frames that do not overlap."""
    sample_rate: int = 16000
    """Samples per second of the sounds; others are resampled."""
    window_ms: float = 25.0
    """Milliseconds per window of log-mel energies."""
    hop_ms: float = 10.0
    """Milliseconds between two steps of a sound."""
    mels: int = 40
    """Log-mel energies per step."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("data", "test_data", "validation_data"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, source(getattr(self, name)))
        for name in ("sequence", "time", "mask", "split", "group"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, getattr(self, name).strip())
        if self.irregular and self.time is None:
            raise ArgumentError(
                "Expected time, --time, with irregular, but got none. Name the column of times, or leave irregular out."
            )
        for word in modes_of(self.missing).values():
            check_choice("missing", word, MODES)
        if self.split_by == "time" and self.group is not None:
            raise ArgumentError(
                f"Expected no group with split_by='time', which divides every sequence, but got {self.group!r}. Leave one of "
                f"them out."
            )
        if self.encoding is not None:
            check_encoding(self.encoding)
        for name in ("separator", "thousands"):
            mark = getattr(self, name)
            if mark is not None and (len(mark) != 1 or mark.isalnum() or mark in '"\r\n'):
                raise ArgumentError(f"Expected one character, no letter or digit, for {name}, but got {mark!r}.")
        marks = [mark for mark in (self.separator, self.decimal, self.thousands) if mark is not None]
        if len(set(marks)) < len(marks):
            raise ArgumentError(
                f"Expected different marks, but got separator={self.separator!r}, decimal={self.decimal!r}, "
                f"thousands={self.thousands!r}."
            )
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)
        check_integer("split_seed", self.split_seed, 0)
        if self.window is not None:
            check_integer("window", self.window, 2)
        sound_format(vars(self)).check()

    target_transform: ClassVar[str | None] = None  # of targets that are numbers; a field in Numbers

    @property
    def forecasting(self) -> Forecasting:
        """The options of a forecast, or what stands for them in another task."""
        return Forecasting()


def sound_format(options: Mapping[str, Any]) -> SoundFormat:
    """Return the form in which sounds are read, by the options of a task that are given."""
    given = zip(SoundFormat._fields, OF_SOUNDS)
    return SoundFormat(**{field: options[name] for field, name in given if name in options})


def names_in(text: str) -> list[str]:
    """Return the names of an option that has several, separated by commas; a name with a comma is in double quotes."""
    return [name.strip() for name in entries_in(text) if name.strip()]


def entries_in(text: str) -> list[str]:
    """Return what is between the commas of an option; in double quotes a comma separates nothing, and "" is a quote.

    Raises ArgumentError if quotes do not enclose whole entries.
    """
    if '"' not in text:
        return text.split(",")
    try:
        (found,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        raise ArgumentError(
            f"Expected names separated by commas, those with a comma or a quote at their beginning in double quotes, but got "
            f"{text!r}. Write '\"a, b\",c'."
        ) from None
    return found


def modes_of(text: str) -> dict[str, str]:
    """Return the meaning of a missing value by column; "" for all others."""
    found = {"": "error"}
    for entry in entries_in(text):
        name, _, word = entry.rpartition("=")
        found[name.strip()] = word.strip()
    return found
