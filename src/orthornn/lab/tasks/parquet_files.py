"""Columns of Parquet files, as those of a CSV file with the same content would be."""

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
        return {name: _column(pyarrow, table.column(name)) for name in names}
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise DataError(f"{path} is truncated, corrupt or no Parquet file: {str(error)[:500]}") from error


def _column(pyarrow: Any, column: Any) -> np.ndarray:
    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_floating(kind) or types.is_decimal(kind):
        return np.array([np.nan if cell is None else float(cell) for cell in column.to_pylist()])
    if types.is_integer(kind) and column.null_count == 0:
        return column.to_numpy()
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.to_numpy().astype("datetime64[D]" if types.is_date(kind) else f"datetime64[{kind.unit}]")
    cells = np.empty(len(column), object)
    cells[:] = column.to_pylist()
    return cells
