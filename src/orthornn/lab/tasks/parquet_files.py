"""Columns of Parquet and Feather files, as those of a CSV file with the same content would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from .cells import listed
from .inflate import check_inflated
from .optional_packages import import_optional

_CELL = 8  # bytes, at least


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a Parquet file. Raises DataError if it is not one, or too large.

    Times are datetime64: those with a time zone in UTC, those without one as they are written.
    """
    parquet = import_optional("pyarrow.parquet", "data", "Parquet files")
    pyarrow = import_optional("pyarrow", "data", "Parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            becomes = file.metadata.num_rows * max(1, len(names)) * _CELL
            check_inflated(path, path.stat().st_size, becomes, "Divide it into smaller files.")
            if len(set(names)) != len(names) or not all(names):
                raise DataError(f"Expected columns with names, all different, in {path}, but got {listed(names)}.")
            table = file.read()
        return {name: column_of_arrow(pyarrow, table.column(name)) for name in names}
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise DataError(f"{path} is truncated, corrupt or no Parquet file: {str(error)[:500]}") from error


def read_feather(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a Feather file (version 2, Arrow IPC). Raises DataError if it is not one, or too large."""
    pyarrow = import_optional("pyarrow", "data", "Feather files")
    ipc = import_optional("pyarrow.ipc", "data", "Feather files")
    try:
        size, names, columns, becomes = path.stat().st_size, [], {}, 0
        with pyarrow.OSFile(str(path)) as source, ipc.open_file(source) as file:
            names = file.schema.names
            if len(set(names)) != len(names) or not all(names):
                raise DataError(f"Expected columns with names, all different, in {path}, but got {listed(names)}.")
            batches = []
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                batch.validate(full=True)
                becomes += max(batch.nbytes, batch.num_rows * _CELL)
                check_inflated(path, size, becomes, "Divide it into smaller files.")
                batches.append(batch)
            table = pyarrow.Table.from_batches(batches, file.schema)
            columns = {name: column_of_arrow(pyarrow, table.column(name)) for name in names}
        return columns
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise DataError(f"{path} is truncated, corrupt or no Feather file: {str(error)[:500]}") from error


def column_of_arrow(pyarrow: Any, column: Any) -> np.ndarray:
    """Return an Arrow column: numbers, dates, or objects with None where a cell is missing."""
    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_float32(kind) or types.is_float64(kind):
        return column.to_numpy().astype(np.float64)  # a null is NaN
    if types.is_floating(kind) or types.is_decimal(kind):
        return np.array([np.nan if cell is None else float(cell) for cell in column.to_pylist()])
    if types.is_integer(kind) and column.null_count == 0:
        return column.to_numpy()
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.to_numpy().astype("datetime64[D]" if types.is_date(kind) else f"datetime64[{kind.unit}]")
    cells = np.empty(len(column), object)
    cells[:] = column.to_pylist()
    return cells
