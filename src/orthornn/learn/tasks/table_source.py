"""The files of a task on the user's own table, read as one table by its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import ArgumentError, DataError
from ..files.cells import is_missing, listed
from ..files.columns import Table, is_text, joined, read_columns
from ..files.csv_format import format_of
from ..files.data_frames import Frame, located, shown_name
from ..files.sound_folder import SoundFormat, has_manifest, is_sound, sounds_of
from .table_options import OF_SOUNDS, TableOptions, names_in, sound_format


class Source(NamedTuple):
    """The rows (R,) of all files of a task. file_of_rows: Which file each is of, int64, 0 for `data`; None for one file."""

    table: Table
    file_of_rows: np.ndarray | None


def read_source(options: TableOptions, file: Table | None = None) -> Source:
    """Return the table of the options' files. DataError or ArgumentError where they and the options do not fit.

    file: What is in the file `data`, if that was read before. Default: None, it is read.
    """
    table = read_table(options, located(options.data)) if file is None else file
    targets = names_in(options.target)
    if not targets:
        raise DataError(f"Expected target to name a column; {table.path} has {listed(table.columns)}.")
    twice = next((name for name in targets if targets.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Expected each column once in target, but got {twice!r} several times. Name it once.")
    if options.sequence is not None and options.sequence in targets:
        raise DataError(
            f"Expected a target that the network could learn, but got {options.sequence!r}, which tells sequences apart. "
            f"Name another target, or another column with sequence, --sequence."
        )
    _check_options_of_files(options)
    rows = [table.rows]
    for path in (options.validation_data, options.test_data):
        if path is not None:
            words = {name: cells.tolist() for name, cells in table.columns.items() if cells.dtype == object}
            other = read_table(options, located(path), table.commas, words)
            rows.append(other.rows)
            table = joined(table, other)
    return Source(table, np.repeat(np.arange(len(rows)), rows) if len(rows) > 1 else None)


def read_table(
    options: TableOptions,
    path: Path | Frame,
    commas: Sequence[str] = (),
    words: Mapping[str, Iterable[object]] | None = None,
) -> Table:
    """Return the table of a file.

    Args:
        options: How text files and sounds are read.
        path: The file, or a DataFrame.
        commas: Columns that had decimal commas in the training data.
        words: What is known of the cells of a column: those that are spelled as a missing value are none in it.
    """
    known = {name: [cell for cell in cells if isinstance(cell, str)] for name, cells in (words or {}).items()}
    own = {name: tuple(sorted(set(filter(is_missing, cells)))) for name, cells in known.items()}
    words_of = tuple((name, cells) for name, cells in own.items() if cells)
    text = format_of(vars(options))._replace(commas=tuple(commas), words_of=words_of)
    return read_columns(path, text, sound_format(vars(options)))


def takes_words_for_missing(options: TableOptions) -> bool:
    """Return whether a cell of the data may be a word, such as None, that was taken for a missing value."""
    return options.default_na == "usual" and has_text(located(options.data))


def files_of(options: TableOptions) -> dict[str, Path]:
    """Return the files of training, validation and test by their names."""
    found: dict[str, Path] = {}
    for path in filter(None, (options.data, options.validation_data, options.test_data)):
        own = located(path)
        if isinstance(own, Frame):
            continue
        if is_sound(own):
            sounds = sounds_of(own, format_of(vars(options)))
            folder = own.name
            if any(name.startswith(f"{folder}/") for name in found):  # that of another part has the same name
                folder = str(path)
            found |= {f"{folder}/{name}": file for name, file in sounds.items()}
        elif own.is_file():
            found[own.name if own.name not in found else str(path)] = own
    return found


def _check_options_of_files(options: TableOptions) -> None:
    """Raise ArgumentError for an option of text files or of sounds where there are none, or that is not read."""
    given = [located(path) for path in (options.data, options.validation_data, options.test_data) if path is not None]
    marks = {name: getattr(options, name) for name in ("separator", "decimal", "thousands", "na", "encoding")}
    marks["default_na"] = None if options.default_na == "usual" else options.default_na
    form = sound_format(vars(options))
    sounds = {name: value for name, value, usual in zip(OF_SOUNDS, form, SoundFormat()) if value != usual}
    for unread, kind, found in (
        (
            {name: mark for name, mark in marks.items() if mark is not None},
            "text files",
            map(has_text, given),
        ),
        (sounds, "sounds", (not isinstance(path, Frame) and is_sound(path) for path in given)),
    ):
        if unread and not any(found):
            name, value = next(iter(unread.items()))
            raise ArgumentError(
                f"Expected {name} only for {kind}, but got {value!r} for {shown_name(options.data)}. Leave it out."
            )
    form.check_read()


def has_text(path: Path | Frame) -> bool:
    """Return whether a path is a text file, or a folder of sounds with one."""
    return not isinstance(path, Frame) and (is_text(path) or has_manifest(path))
