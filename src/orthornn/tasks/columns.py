"""Tables of columns from .csv, .npz, .npy and .parquet.

.csv        a line of names, then a line a step; separated by commas, semicolons or tabs; empty, nan, na and null cells
            are missing values
.parquet    a column each (package pyarrow); nulls are missing values
.npz        either one-dimensional arrays of one length, a column each; or `x` (sequences, time, features) or
            (sequences, time), with `y` (sequences,) or (sequences, time), if wanted `lengths` (sequences,) and `mask`
            (sequences, time): they become the columns x0, x1, ..., y, mask, sequence
.npy        (time,), (time, features) or (sequences, time, features): x0, x1, ..., sequence
"""

from __future__ import annotations

import csv
import difflib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError
from .extras import need

SUFFIXES = (".csv", ".parquet", ".npz", ".npy")
_MISSING = ("", "nan", "na", "null", "none")
_MANY = 20  # names that a message lists


class Columns(NamedTuple):
    """Columns (R,) by name, one row a step: numbers, or objects (str, and None where a value is missing)."""

    path: Path
    columns: dict[str, np.ndarray]

    def check(self, name: str, what: str) -> str:
        """`name`, if there is a column of that name; DataError with the nearest one if not."""
        if name in self.columns:
            return name
        near = difflib.get_close_matches(name, self.columns, n=1, cutoff=0.4)
        names = list(self.columns)
        listed = ", ".join(names[:_MANY]) + (", ..." if len(names) > _MANY else "")
        raise DataError(
            f"{self.path} has no column {name!r} for {what}; it has {listed}."
            + (f" Did you mean {near[0]!r}?" if near else "")
        )

    def is_number(self, name: str) -> bool:
        """Whether a column can be read as numbers."""
        try:
            self.numbers(name, "")
        except DataError:
            return False
        return True

    def numbers(self, name: str, what: str) -> np.ndarray:
        """A column as float64 (R,), NaN where a value is missing."""
        column = self.columns[self.check(name, what)]
        if column.dtype.kind == "c":
            raise DataError(
                f"{self.path}, column {name!r}, is complex; needed real numbers for {what}. Give two columns."
            )
        if column.dtype != object:
            return column.astype(np.float64)
        try:
            return np.array([np.nan if cell is None else float(cell) for cell in column])
        except (TypeError, ValueError):
            for row, cell in enumerate(column):
                if not _is_number(cell):
                    comma = isinstance(cell, str) and _is_number(cell.replace(",", ".", 1))
                    raise DataError(
                        f"{self.path}, column {name!r}, row {row + 1}: {cell!r} is no number; needed numbers for {what}."
                        f"{' Write decimal points, not commas.' if comma else ''}"
                    ) from None
            raise

    def moments(self, name: str, what: str) -> np.ndarray:
        """A column as float64 (R,) by which rows can be put in order: numbers, or dates in ISO 8601."""
        column = self.columns[self.check(name, what)]
        if column.dtype == object and not self.is_number(name):
            try:
                moments = np.array([None if cell is None else str(cell) for cell in column], "datetime64[us]")
            except ValueError:
                raise DataError(
                    f"{self.path}, column {name!r}: {str(column[0])!r} and the like are neither numbers nor dates such "
                    f"as 2020-12-31 or 2020-12-31T23:59; needed one of these for {what}."
                ) from None
            return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)
        return self.numbers(name, what)

    def labels(self, name: str, what: str) -> np.ndarray:
        """A column as objects (R,): str, None where a value is missing."""
        column = self.columns[self.check(name, what)]
        if column.dtype == object:
            return np.array([None if cell is None else str(cell) for cell in column], object)
        if column.dtype.kind == "f":
            whole = not np.isinf(column).any() and (column[~np.isnan(column)] % 1 == 0).all()
            return np.array(
                [None if np.isnan(cell) else str(int(cell) if whole else cell) for cell in column.tolist()], object
            )
        return np.array([str(cell) for cell in column.tolist()], object)


def read_columns(path: Path) -> Columns:
    """The columns of a file. DataError if it is missing, damaged, empty or of another format."""
    readers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".npy": _npy}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is none of {', '.join(SUFFIXES)}. Convert it to one of them.")
    if not path.is_file():
        raise DataError(f"there is no file {path}; needed one of {', '.join(SUFFIXES)}. Name it with --data.")
    columns = readers[path.suffix.lower()](path)
    if not columns or not len(next(iter(columns.values()))):
        raise DataError(f"{path} has no rows; needed at least one step of one sequence.")
    return Columns(path, columns)


def is_table(path: Path) -> bool:
    """Whether a file has columns with names: .parquet, or .csv that does not begin with a line of numbers."""
    if path.suffix.lower() != ".csv":
        return path.suffix.lower() == ".parquet"
    try:
        with open(path, encoding="utf-8-sig") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        return True  # whoever reads it as a table says what is wrong
    return not all(_is_number(cell) for cell in first.strip().split(","))


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return cell is None
    return True


def _csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            separator = max(",;\t", key=first.count)
            file.seek(0)
            lines = list(csv.reader(file, delimiter=separator, strict=True))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        return {}
    names = [name.strip() for name in lines[0]]
    if len(names) == 1:
        lines = [line or [""] for line in lines]  # the empty line is how a lone column writes a missing value
    if any(_is_number(name) or not name for name in names) or len(set(names)) != len(names):
        unnamed = " The first column has no name: pandas writes its index so; use to_csv(index=False)."
        raise DataError(
            f"{path} must begin with a line of names, all different; got {', '.join(names)[:200]!r}."
            f"{unnamed if not names[0] and len(names) > 1 else ''}"
        )
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            raise DataError(
                f"{path}, line {number}, has {len(line)} cells; needed {len(names)}, one a name. "
                f"{'The file may be truncated.' if number == len(lines) else 'Quote cells that hold a separator.'}"
            )
    return {name: _cells([row[place].strip() for row in lines[1:]]) for place, name in enumerate(names)}


def _cells(texts: Sequence[str]) -> np.ndarray:
    """Numbers if every cell is one, whole ones as int64; else text. Missing cells are NaN or None."""
    found = [None if text.lower() in _MISSING else text for text in texts]
    try:
        numbers = np.array([np.nan if text is None else float(text) for text in found])
    except ValueError:
        return np.array(found, object)
    if None not in found and all(text.lstrip("+-").isdecimal() for text in texts):
        try:  # not by way of float64, which long numbers such as keys do not fit
            return np.array([int(text) for text in texts], np.int64)
        except OverflowError:
            return np.array(found, object)
    return numbers


def _parquet(path: Path) -> dict[str, np.ndarray]:
    parquet = need("pyarrow.parquet", "data", "Parquet files")
    pyarrow = need("pyarrow", "data", "Parquet files")
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is truncated, corrupt or no Parquet file: {error}") from error
    columns: dict[str, np.ndarray] = {}
    for name in table.column_names:
        column = table.column(name)
        kind = column.type
        if pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
            columns[name] = np.array([np.nan if cell is None else float(cell) for cell in column.to_pylist()])
        elif pyarrow.types.is_integer(kind) and column.null_count == 0:
            columns[name] = column.to_numpy()
        elif pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind):
            columns[name] = np.array([np.nan if cell is None else cell.timestamp() for cell in _instants(column)])
        else:
            columns[name] = np.array(column.to_pylist(), object)
    return columns


def _instants(column: object) -> list:
    import datetime

    return [
        datetime.datetime(cell.year, cell.month, cell.day) if type(cell) is datetime.date else cell
        for cell in column.to_pylist()  # type: ignore[attr-defined]
    ]


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is truncated, corrupt or no .npz file without pickled objects: {error}.") from error
    if "x" in arrays and arrays["x"].ndim >= 2:
        return _from_sequences(path, arrays)
    sizes = {name: array.shape for name, array in arrays.items()}
    if any(len(shape) != 1 for shape in sizes.values()) or len(set(sizes.values())) > 1:
        raise DataError(
            f"{path} holds {', '.join(f'{name} {shape}' for name, shape in sizes.items())}; needed one-dimensional "
            f"arrays of one length, or x (sequences, time, features)."
        )
    return {name: _plain(array) for name, array in arrays.items()}


def _npy(path: Path) -> dict[str, np.ndarray]:
    try:
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive of several arrays")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is truncated, corrupt or no .npy file without pickled objects: {error}.") from error
    if array.ndim == 3:
        return _from_sequences(path, {"x": array})
    if array.ndim not in (1, 2):
        raise DataError(
            f"{path} holds an array of shape {array.shape}; needed (time,), (time, features) or "
            f"(sequences, time, features)."
        )
    return {f"x{i}": _plain(column) for i, column in enumerate(array.reshape(len(array), -1).T)}


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(object) if array.dtype.kind in "US" else array


def _from_sequences(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """x (S, T, I), y (S,) or (S, T), lengths (S,), mask (S, T) as columns."""
    x = arrays["x"]
    x = x[..., None] if x.ndim == 2 else x
    shape = x.shape[:2]
    wanted = {"y": (shape[:1], shape), "lengths": (shape[:1],), "mask": (shape,)}
    for name, array in arrays.items():
        if name != "x" and (name not in wanted or array.shape not in wanted[name]):
            needed = " or ".join(map(str, wanted[name])) if name in wanted else f"only x, {', '.join(wanted)}"
            raise DataError(f"{path}: {name} has shape {array.shape} beside x {x.shape}; needed {needed}.")
    lengths = arrays.get("lengths", np.full(shape[0], shape[1]))
    if len(lengths) and (lengths.min() < 1 or lengths.max() > shape[1]):
        raise DataError(f"{path}: lengths must lie between 1 and {shape[1]}, the time steps of x.")
    there = np.arange(shape[1]) < lengths[:, None]
    columns = {f"x{i}": _plain(x[..., i][there]) for i in range(x.shape[2])}
    if "y" in arrays:
        y = arrays["y"]
        columns["y"] = _plain((np.broadcast_to(y[:, None], shape) if y.ndim == 1 else y)[there])
    if "mask" in arrays:
        columns["mask"] = arrays["mask"][there]
    columns["sequence"] = np.broadcast_to(np.arange(shape[0])[:, None], shape)[there]
    return columns
