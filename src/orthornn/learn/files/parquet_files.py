"""Columns of Parquet and Feather files, in the form that a CSV file with the same content would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..._optional_packages import import_optional
from ...errors import DataError
from .cells import LARGEST_WHOLE, column_names
from .inflate import check_inflated

_CELL = 8  # bytes, at least
_SHARED = ("run_end_encoded", "list_view")  # types of columns in which a few bytes stand for any number of cells
_TEXTS = ("string", "large_string", "binary", "large_binary", "string_view", "binary_view")
_VIEW = 16  # bytes of a text in a column of views, of which the first four are its length


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a Parquet file. Raises DataError if it is not one, or too large.

    Times are datetime64: those with a time zone in UTC, those without one as they are written.
    """
    parquet = import_optional("pyarrow.parquet", "data", "Parquet files")
    pyarrow = import_optional("pyarrow", "data", "Parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            names, texts = column_names(file.schema_arrow.names, path), _texts(file.schema_arrow)
            becomes = max(file.metadata.num_rows * max(1, len(names)), _cells(file)) * _CELL
            check_inflated(path, path.stat().st_size, becomes, "Divide it into smaller files.")
            _check_types(path, pyarrow, file.schema_arrow)
        with parquet.ParquetFile(path, read_dictionary=texts) as file:  # a text that is repeated is there once
            table = file.read()
        return {name: column_of_arrow(pyarrow, table.column(place)) for place, name in enumerate(names)}
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise DataError(
            f"Expected a Parquet file, but {path} is truncated, corrupt or another file: {str(error)[:500]} "
            f"Fetch it or write it "
            f"again."
        ) from error


def read_feather(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a Feather file (version 2, Arrow IPC). Raises DataError if it is not one, or too large."""
    pyarrow = import_optional("pyarrow", "data", "Feather files")
    ipc = import_optional("pyarrow.ipc", "data", "Feather files")
    try:
        size, names, columns, becomes = path.stat().st_size, [], {}, 0
        with pyarrow.OSFile(str(path)) as source, ipc.open_file(source) as file:
            names = column_names(file.schema.names, path)
            _check_types(path, pyarrow, file.schema)
            batches = []
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                batch.validate(full=True)
                becomes += max(batch.nbytes, batch.num_rows * _CELL) + sum(map(_viewed, batch.columns))
                check_inflated(path, size, becomes, "Divide it into smaller files.")
                batches.append(batch)
            table = pyarrow.Table.from_batches(batches, file.schema)
            columns = {name: column_of_arrow(pyarrow, table.column(place)) for place, name in enumerate(names)}
        return columns
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise DataError(
            f"Expected a Feather file, but {path} is truncated, corrupt or another file: {str(error)[:500]} "
            f"Fetch it or write it "
            f"again."
        ) from error


def _check_types(path: Path, pyarrow: Any, schema: Any) -> None:
    """Raise DataError for a column in which a few bytes stand for any number of cells, and for one of numbers that
    stand for something else, such as the periods of pandas: without the package that knows them Arrow reads plain
    numbers.
    """
    for field in schema:
        kind, name = field.type, (field.metadata or {}).get(b"ARROW:extension:name", b"").decode("utf-8", "replace")
        if isinstance(kind, pyarrow.BaseExtensionType):
            kind, name = kind.storage_type, kind.extension_name
        check_shared(kind, f"{path}, column {field.name!r},")
        if name and pyarrow.types.is_primitive(kind):
            raise _unreadable(name, f"{path}, column {field.name!r},")


def check_shared(kind: Any, where: str) -> None:
    """Raise DataError for a type of columns in which a few bytes stand for any number of cells."""
    if any(word in str(kind) for word in _SHARED):
        raise _unreadable(kind, where)


def _unreadable(kind: Any, where: str) -> DataError:
    return DataError(f"Expected plain numbers, dates or text in {where} but got {str(kind)[:60]}. Convert the column.")


def without_views(pyarrow: Any, column: Any) -> Any:
    """Return a column with its views of text as plain text, which all of Arrow and Parquet know."""
    kind = column.type
    plain = {"string_view": pyarrow.large_string(), "binary_view": pyarrow.large_binary()}
    if pyarrow.types.is_dictionary(kind) and str(kind.value_type) in plain:
        own = pyarrow.dictionary(kind.index_type, plain[str(kind.value_type)], kind.ordered)
        parts = [(part.indices, without_views(pyarrow, part.dictionary)) for part in column.chunks]
        arrays = [pyarrow.DictionaryArray.from_arrays(*part, ordered=kind.ordered) for part in parts]
        return pyarrow.chunked_array(arrays, own)
    return pyarrow.array(column.to_pylist(), plain[str(kind)]) if str(kind) in plain else column


def _viewed(array: Any) -> int:
    """Return how many bytes of text are in an array of views, which may share them, or in those within a nested one."""
    kind = array.type
    if str(kind) in ("string_view", "binary_view"):
        lengths = np.frombuffer(array.buffers()[1], np.int32)[:: _VIEW // 4][array.offset : array.offset + len(array)]
        return int(lengths.clip(0).sum())
    if str(kind).startswith("struct"):
        return sum(_viewed(array.field(place)) for place in range(kind.num_fields))
    if str(kind).startswith(("list", "large_list", "fixed_size_list", "map")):
        return _viewed(array.values)
    return _viewed(array.dictionary) if str(kind).startswith("dictionary") else 0


def _texts(schema: Any) -> list[str]:
    """Return the names of the columns of text."""
    return [field.name for field in schema if str(field.type) in _TEXTS]


def _cells(file: Any) -> int:
    """Return how many cells columns of lists have, which are more than rows.

    Others have one per row. They are not asked: pyarrow ends the process for some damaged descriptions of a column.
    """
    lists = [place for place in range(len(file.schema)) if file.schema.column(place).max_repetition_level]
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)) if lists else ()
    return sum(group.column(place).num_values for group in groups for place in lists)


def _is_flat(pyarrow: Any, column: Any) -> bool:
    """Return whether the values of a dictionary have a fixed size of a few bytes."""
    value = column.type.value_type
    return pyarrow.types.is_primitive(value) or pyarrow.types.is_boolean(value)


def _without_margins(cells: list[Any]) -> list[Any]:
    """Return cells, with text stripped of surrounding spaces, as from a CSV file."""
    return [cell.strip() if isinstance(cell, str) else cell for cell in cells]


def _decoded(column: Any) -> np.ndarray:
    """Return the cells of a column with a dictionary; equal ones are one object, however long they are."""
    cells, at = np.empty(len(column), object), 0
    for chunk in column.chunks:
        values = np.empty(len(chunk.dictionary) + 1, object)
        values[:-1] = _without_margins(chunk.dictionary.to_pylist())  # the last one stays None, for missing cells
        places = chunk.indices.cast("int64").fill_null(len(chunk.dictionary)).to_numpy(zero_copy_only=False)
        cells[at : at + len(chunk)] = values[places]
        at += len(chunk)
    return cells


def column_of_arrow(pyarrow: Any, column: Any) -> np.ndarray:
    """Return an Arrow column: numbers, dates, or objects with None for missing cells.

    DataError for durations that float64 does not tell apart.
    """
    types = pyarrow.types
    if types.is_dictionary(column.type):
        if not _is_flat(pyarrow, column):
            return _decoded(column)
        return column_of_arrow(pyarrow, column.cast(column.type.value_type))
    kind = column.type
    if types.is_float32(kind) or types.is_float64(kind):
        return column.to_numpy().astype(np.float64)  # a null is NaN
    if types.is_decimal(kind) and kind.scale == 0:  # as integers are: those that float64 rounds stay as they are
        cells = column.to_pylist()
        if any(cell is not None and abs(cell) >= LARGEST_WHOLE for cell in cells):
            whole = np.empty(len(cells), object)
            whole[:] = [cell if cell is None else int(cell) for cell in cells]
            return whole
    if types.is_floating(kind) or types.is_decimal(kind):
        return np.array([np.nan if cell is None else float(cell) for cell in column.to_pylist()])
    if types.is_integer(kind) and column.null_count == 0:
        return column.to_numpy()
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.to_numpy().astype("datetime64[D]" if types.is_date(kind) else f"datetime64[{kind.unit}]")
    if types.is_duration(kind):
        durations = column.to_numpy()
        seconds = durations / np.timedelta64(1, "s")  # NaN where one is missing
        if len(np.unique(seconds)) < len(np.unique(durations)):
            raise DataError(
                f"Expected durations that differ in seconds of float64, but got a column of {kind} with some that do not. "
                f"Subtract a constant from them, or convert them to integers."
            )
        return seconds
    cells = np.empty(len(column), object)
    cells[:] = _without_margins(column.to_pylist())
    return cells
