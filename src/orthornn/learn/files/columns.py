"""Tables of columns from .csv, .tsv, .csv.gz, .tsv.gz, .npz, .npy, .parquet, .feather and .ts, and from sounds.

.csv, .tsv  a line of names, then a line per step; separated by commas, semicolons or tabs; empty, nan, na, N/A and null
            cells are missing values; with .gz behind it, compressed
.parquet    a column each (package pyarrow); nulls are missing values, durations are seconds. .feather likewise
.ts         the text format of the UCR/UEA archive, see ts_files.py
.npz        either one-dimensional arrays of one length, a column each; or `x` (sequences, time, features) or
            (sequences, time), with `y` (sequences,) or (sequences, time), if wanted `lengths` (sequences,) and `mask`
            (sequences, time): they become the columns x0, x1, ..., y, mask, sequence
a folder    of sounds, or a sound: see sound_folder.py
.npy        (time,), (time, features) or (sequences, time, features): x0, x1, ..., sequence

A column holds numbers, truth values, dates or text, by the same rules in every format; see cells.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError
from . import cells, dates
from .array_files import read_array, read_arrays
from .cells import LARGEST_WHOLE, Kind, column_names, listed, shown
from .csv_columns import is_pointed
from .csv_files import has_names, read_csv
from .csv_format import CsvFormat
from .data_frames import SHOWN, Frame, columns_of, shown_name
from .number_marks import is_marked
from .parquet_files import read_feather, read_parquet
from .rounded_targets import check_finite_names, check_names, check_rounding
from .same_names import in_known_spelling
from .sound_folder import SoundFormat, is_sound, read_sounds
from .ts_files import read_ts

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npz", ".npy", ".ts")
_TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_SEPARATORS = "|; \t:"  # that a text file may have where it was read as one column


@dataclass(frozen=True)
class Table:
    """Columns (R,) by name, one row per step: numbers, dates, or objects (str, and None for a missing value).

    features: how many of them are the features of an array, which states what its sequences are, and have no names of
        their own; 0 for a table. commas: the columns of a text file that have decimal commas. points: those that are
        text, though some cells are numbers with a decimal point, which is not the decimal mark there. sound: For
        sounds, their lengths, and how they became the columns; otherwise "".
    line: Returns the line of a row in a text file; None for other tables. parts: Of joined tables.
    """

    path: Path
    columns: dict[str, np.ndarray]
    features: int = 0
    commas: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    sound: str = ""
    line: Callable[[int], int] | None = None
    parts: tuple[Table, ...] = ()

    @property
    def rows(self) -> int:
        """R, the number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def _is_text(self) -> bool:
        """Whether options say how its numbers are written: of a text file, or a list of sounds."""
        return self.line is not None or bool(self.sound) or any(part._is_text for part in self.parts)

    def row(self, place: int) -> str:
        """Return the place of a row for messages: `row 6`, or `row 6, line 7 of the file`."""
        table, file = self, "the file"
        for part in self.parts:
            if place < part.rows:
                table, file = part, str(part.path)
                break
            place -= part.rows
        if table.line is not None:
            return f"row {place + 1}, line {table.line(int(place))} of {file}"
        return f"row {place + 1}{f' of {file}' if table is not self else ''}"

    def check(self, name: str, what: str) -> str:
        """Return `name` if there is a column of that name; raise DataError with the nearest one if not."""
        if name in self.columns:
            return name
        near = difflib.get_close_matches(name, self.columns, n=1, cutoff=0.4)
        (only, *others) = self.columns
        parted = (mark for mark in _SEPARATORS if name in only.split(mark) and mark in str(self.columns[only][0]))
        mark = None if others else next(parted, None)
        wanted = f"Expected a column {name!r} for {what} in {self.path}, but got"
        if mark is not None:
            raise DataError(
                f"{wanted} only {only!r}. If its cells are separated by {mark!r}, say so with separator, --separator."
            )
        parts = {column: [part.strip() for part in column.split(",")] for column in self.columns if "," in column}
        whole = next((column for column, names in parts.items() if name in names), None)
        if whole is not None:
            quoted = '"' + whole.replace('"', '""') + '"'
            raise DataError(
                f"{wanted} {whole!r}. A comma separates names: put one that has a comma in double quotes, {quoted!r}."
            )
        raise DataError(
            f"{wanted} {listed(self.columns)}. "
            + (f"Did you mean {near[0]!r}? Correct the name." if near else "Name one of these.")
        )

    def kind(self, name: str) -> Kind:
        """Return the kind of a column; "mixed" if some cells are numbers and others are text, "nested" if some are
        lists.
        """
        column = self.columns[name]
        if name in self.points:
            return "mixed"
        if column.dtype == object:
            return cells.kind_of_cells(column)
        return "truth values" if column.dtype.kind == "b" else "dates" if column.dtype.kind == "M" else "numbers"

    def numbers(self, name: str, what: str) -> np.ndarray:
        """Return a column as float64 (R,): NaN for missing values, 1 and 0 for truth values."""
        column = self.columns[self.check(name, what)]
        if column.dtype.kind == "c":
            raise DataError(
                f"Expected real numbers for {what}, but {self.path}, column {name!r}, is complex. Split it into two "
                f"columns."
            )
        if column.dtype.kind == "M":
            raise DataError(
                f"Expected numbers for {what} in {self.path}, column {name!r}, but got dates. To put steps in order by "
                f"them, name the column with time, --time."
            )
        if name in self.points:
            raise self._no_numbers(name, what)
        if column.dtype != object:
            found = column.astype(np.float64)
        else:
            try:
                found = np.array([cells.number(cell) for cell in column])
            except ValueError:
                raise self._no_numbers(name, what) from None
        if what in ("target", "inputs"):
            where, error = f"in {self.path}, column {name!r},", DataError if what == "target" else None
            kind = what.removesuffix("s")
            check_rounding(column, found, lambda row: f"{where} {self.row(row)},", "the column", error, kind=kind)
        return found

    def _no_numbers(self, name: str, what: str) -> DataError:
        column = self.columns[name]
        points = name in self.points
        wrong = [
            row
            for row, cell in enumerate(column)
            if cell is not None and (not _is_value(cell) or (points and is_pointed(cell)))
        ]
        cell = column[wrong[0]]
        if points and is_pointed(cell):
            advice = (
                "A point is not a decimal mark with decimal=',', --decimal ,. If it is between groups of three digits, pass "
                "thousands='.', --thousands .; else correct the cells, or the decimal mark."
            )
        elif not self._is_text and (cells.is_marker(cell) or is_marked(cell)):
            advice = "Convert the column to numbers, with a null, or NaN, for missing values."
        elif cells.is_marker(cell):
            advice = (
                "If that is a missing value, leave the cell empty, or name its spelling: na, --na; "
                "and say what a missing value means: missing='hold', --missing hold."
            )
        elif is_marked(cell):
            advice = (
                "Its marks have two meanings, or not one for the whole column. Give them with decimal and thousands, "
                "such as --decimal , or --thousands ,."
            )
        elif what == "known":
            advice = "Correct the cell; or if the column holds words or codes, name it in categories too, --categories."
        elif what == "inputs":
            advice = (
                "Correct the cell, or name the columns that the network is to see without this one: inputs, --inputs."
            )
        else:
            advice = "Correct the cell."
        return DataError(
            f"Expected numbers for {what} in {self.path}, column {name!r}, but got {shown(cell)} in {self.row(wrong[0])} "
            f"({len(wrong)} of {len(column)} cells are not numbers). {advice}"
        )

    def order(self, name: str, what: str) -> np.ndarray:
        """Return a column (R,) by which rows can be put in order: numbers, or dates in ISO 8601, none missing."""
        column = self.columns[self.check(name, what)]
        gone = np.array([cell is None for cell in column]) if column.dtype == object else column != column
        if gone.any():
            row = self.row(int(np.flatnonzero(gone)[0]))
            raise DataError(
                f"Expected a time for every step in {self.path}, column {name!r}, but got none in {row}. Fill it in, or "
                f"leave the row out."
            )
        if column.dtype != object and column.dtype.kind != "c":
            return self._finite(column, name)
        kind = self.kind(name)
        if kind == "numbers":
            whole = cells.ranks_of_whole_numbers(column.tolist()) if column.dtype == object else None
            return self._finite(self.numbers(name, what), name) if whole is None else whole
        try:
            return dates.ranks_of_dates(column.tolist())
        except (TypeError, ValueError) as error:
            strange = next((cell for cell in column if not dates.exists(cell)), column[0])
            raise DataError(
                f"Expected numbers, or dates such as 2020-12-31 or 2020-12-31T23:59, for {what}, but {self.path}, "
                f"column {name!r}, has {shown(strange)} and the like ({error}). "
                f"Write all of them in one such form: pandas.to_datetime(..., dayfirst=True) reads 31/12/2020, for example."
            ) from None

    def _finite(self, times: np.ndarray, name: str) -> np.ndarray:
        """Return times. Raise DataError for an infinite time, since no step can precede or follow it."""
        infinite = np.flatnonzero(np.isinf(times) if times.dtype.kind == "f" else np.zeros(0, bool))
        if len(infinite):
            row = int(infinite[0])
            raise DataError(
                f"Expected finite times in {self.path}, column {name!r}, but got {times[row]} in {self.row(row)}. Correct "
                f"it, or leave the row out."
            )
        return times

    def labels(self, name: str, what: str) -> np.ndarray:
        """Return a column as objects (R,): str, or None for a missing value."""
        column = self.columns[self.check(name, what)]
        if column.dtype == object:
            nested = next((row for row, cell in enumerate(column) if cells.is_nested(cell)), None)
            if nested is not None:
                raise DataError(
                    f"Expected text, numbers or dates for {what} in {self.path}, column {name!r}, but got "
                    f"{shown(column[nested])} in {self.row(nested)}. Divide it into columns of plain cells."
                )
            return np.array([cells.label(cell) for cell in column], object)
        where = f"in {self.path}, column {name!r},"
        if what not in ("time", "inspect"):  # which tell nothing apart
            check_names(column, lambda row: f"{where} {self.row(row)},", DataError)
            if suffix_of(self.path) in _TEXT:
                check_finite_names(column, lambda row: f"{where} {self.row(row)},")
        return np.array([cells.label(cell) for cell in plain_cells(column)], object)


def suffix_of(path: Path | Frame) -> str:
    """Return the suffix of a file name in lower case, such as .csv or .csv.gz; an empty string for a DataFrame."""
    if isinstance(path, Frame):
        return ""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == ".gz" else last


def is_text(path: Path | Frame) -> bool:
    """Return whether a path names a file whose marks and missing values can be written in several ways."""
    return suffix_of(path) in _TEXT


def is_data(path: Path | Frame) -> bool:
    """Return whether read_columns reads what a path names: a file by its ending, a sound, a folder of sounds, a
    DataFrame.
    """
    return isinstance(path, Frame) or suffix_of(path) in SUFFIXES or is_sound(path)


def read_columns(path: Path | Frame, form: CsvFormat | None = None, sound: SoundFormat | None = None) -> Table:
    """Return the columns of a file, of a folder of sounds, or of a DataFrame.

    Raises DataError if it is missing, damaged, empty or of another format.
    """
    if isinstance(path, Frame):
        return _with_rows(Table(Path(SHOWN), columns_of(path)))
    if is_sound(path):
        columns, features, told = read_sounds(path, sound or SoundFormat(), form or CsvFormat())
        return Table(path, columns, features, sound=told)
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        what = "a folder without sounds" if path.is_dir() else repr(path.name)
        raise DataError(
            f"Expected a file ({', '.join(SUFFIXES)}) or a folder of sounds, but got {what}: {path}. Convert it to one of "
            f"them."
        )
    if not path.is_file():
        raise DataError(f"Expected one of {', '.join(SUFFIXES)}, but the file {path} does not exist. Correct the path.")
    if suffix in _TEXT:
        read = read_csv(path, form or CsvFormat())
        found = Table(path, read.columns, commas=read.commas, points=read.points, line=read.line)
    elif suffix in (".parquet", ".feather"):
        found = Table(Path(shown_name(path)), read_parquet(path) if suffix == ".parquet" else read_feather(path))
    elif suffix == ".ts":
        columns, features = read_ts(path)
        found = Table(path, columns, features)
    else:
        found = _npz(path) if suffix == ".npz" else _npy(path)
    return _with_rows(found)


def _with_rows(found: Table) -> Table:
    if not found.columns or not found.rows:
        raise DataError(f"Expected at least one step of one sequence, but {found.path} has no rows.")
    return found


def is_table(path: Path | Frame) -> bool:
    """Return whether a file is read by read_columns: all but a .csv that begins with a line of numbers."""
    if isinstance(path, Frame) or is_sound(path):
        return True
    return has_names(path) if suffix_of(path) in _TEXT else suffix_of(path) in SUFFIXES


def joined(first: Table, second: Table) -> Table:
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
        parts = [column, second.columns[name]]
        if not _have_one_type(*parts):
            parts = _spelled_alike(parts)
        columns[name] = np.concatenate(parts)
    points = tuple(name for name in columns if name in first.points + second.points)
    path = Path(f"{first.path} and {second.path}")
    sound = "; and ".join(filter(None, (first.sound, second.sound)))
    own = (*(first.parts or (first,)), second)
    return Table(path, columns, first.features, first.commas, points, sound, parts=own)


def _have_one_type(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether there is a type that has the cells of both columns as they are."""
    kinds = {first.dtype.kind, second.dtype.kind}
    if len(kinds) == 1:
        return True
    if kinds == {"i", "u"}:
        return np.result_type(first, second).kind != "f"
    if not kinds <= set("biuf"):
        return False
    whole = [column for column in (first, second) if column.dtype.kind in "iu"]
    return not any(int(column.max()) > LARGEST_WHOLE or int(column.min()) < -LARGEST_WHOLE for column in whole)


def _spelled_alike(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return two columns as plain cells; one without text has the other's spelling of what means the same."""
    texts, parts = [column.dtype == object for column in columns], list(map(plain_cells, columns))
    if sum(texts) == 1:
        own, other = texts.index(False), texts.index(True)
        known = {cell for cell in parts[other] if isinstance(cell, str)}
        parts[own] = in_known_spelling(np.array([cells.label(cell) for cell in parts[own]], object), known)
    return parts


def plain_cells(column: np.ndarray) -> np.ndarray:
    """Return a column as objects (R,), None for missing cells: whole numbers as int, dates as text in ISO 8601."""
    if column.dtype == object:
        return column
    found = column.astype(str if column.dtype.kind == "M" else object).astype(object)
    if column.dtype.kind == "f":
        whole = np.flatnonzero(np.isfinite(column) & (np.trunc(column) == column))
        found[whole] = [int(cell) for cell in found[whole]]
    found[column != column] = None
    return found


def _is_value(cell: object) -> bool:
    return cells.is_number(cell) or cells.is_truth(cell)


def _npz(path: Path) -> Table:
    arrays = read_arrays(path)
    if "x" in arrays and arrays["x"].ndim >= 2:
        return _from_sequences(path, arrays)
    sizes = {name: array.shape for name, array in arrays.items()}
    if any(len(shape) != 1 for shape in sizes.values()) or len(set(sizes.values())) > 1:
        raise DataError(
            f"Expected one-dimensional arrays of one length, or x (sequences, time, features), but {path} holds "
            f"{listed(f'{name} {shape}' for name, shape in sizes.items())}."
        )
    names = column_names(list(arrays), path)
    return Table(path, {name: _plain(path, name, array) for name, array in zip(names, arrays.values())})


def _npy(path: Path) -> Table:
    array = read_array(path)
    if array.ndim == 3:
        return _from_sequences(path, {"x": array})
    if array.ndim not in (1, 2):
        raise DataError(
            f"Expected an array of shape (time,), (time, features) or (sequences, time, features), but {path} holds "
            f"one of {array.shape}."
        )
    rows = array[:, None] if array.ndim == 1 else array
    columns = {f"x{i}": _plain(path, f"x{i}", rows[:, i]) for i in range(rows.shape[1])}
    return Table(path, columns, rows.shape[1])


def _plain(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Return text as objects without spaces around it, as a CSV file has it."""
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, {name}: its text is not UTF-8: {error}.") from error
    return np.char.strip(array).astype(object) if array.dtype.kind == "U" else array


def _from_sequences(path: Path, arrays: dict[str, np.ndarray]) -> Table:
    """Return x (S, T, I), y (S,) or (S, T), lengths (S,), mask (S, T) as columns."""
    x = arrays["x"]
    x = x[..., None] if x.ndim == 2 else x
    shape = x.shape[:2]
    wanted = {"y": (shape[:1], shape), "lengths": (shape[:1],), "mask": (shape,)}
    if x.ndim != 3:
        raise DataError(
            f"Expected x of shape (sequences, time) or (sequences, time, features), but {path} has one of {x.shape}."
        )
    for name, array in arrays.items():
        if name != "x" and (name not in wanted or array.shape not in wanted[name]):
            if name not in wanted:
                raise DataError(f"Expected only x, {', '.join(wanted)} in {path}, but got {listed([name])}.")
            shapes = " or ".join(map(str, wanted[name]))
            raise DataError(
                f"Expected {listed([name])} in {path} to have shape {shapes}, like x {x.shape}, but got {array.shape}."
            )
    there = np.arange(shape[1]) < _lengths(path, arrays, *shape)[:, None]
    columns = {f"x{i}": _plain(path, "x", x[..., i][there]) for i in range(x.shape[2])}
    if "y" in arrays:
        y = arrays["y"]
        columns["y"] = _plain(path, "y", (np.broadcast_to(y[:, None], shape) if y.ndim == 1 else y)[there])
    if "mask" in arrays:
        columns["mask"] = arrays["mask"][there]
    columns["sequence"] = np.broadcast_to(np.arange(shape[0])[:, None], shape)[there]
    return Table(path, columns, x.shape[2])


def _lengths(path: Path, arrays: dict[str, np.ndarray], count: int, steps: int) -> np.ndarray:
    """Return how many steps of each sequence are there: int64 (S,)."""
    lengths = arrays.get("lengths", np.full(count, steps))
    if lengths.dtype.kind not in "iuf":
        raise DataError(f"Expected whole numbers in {path}, lengths, but got {lengths.dtype}.")
    wrong = np.flatnonzero(~((lengths >= 1) & (lengths <= steps) & (lengths % 1 == 0)))
    if len(wrong):
        raise DataError(
            f"Expected lengths in {path} to be whole numbers between 1 and {steps}, the time steps of x, but got "
            f"{lengths[wrong[0]]} for sequence {wrong[0]}. Leave sequences without a step out of the file."
        )
    return lengths.astype(np.int64)
