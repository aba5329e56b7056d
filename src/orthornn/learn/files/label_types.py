"""The type of the column that names the classes, which predicted classes share with the learned ones.

Classes are text to a network. description.json holds the type of their column if it differs, and predictions in a
DataFrame are of that type: numbers, truth values, dates, or categories, and for pandas also its types such as Int64.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._optional_packages import import_optional
from ...errors import DataError
from ...saved.label_dtypes import MOST_CATEGORIES
from .cells import label, shown
from .columns import Table, plain_cells, suffix_of
from .data_frames import CATEGORIES, DTYPE, ORDERED, Frame
from .parquet_files import column_of_arrow

_USE = "predictions as a DataFrame"
_NUMBERS = {"double": "float64", "float": "float32"}
_NUMBERS |= {name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}
_NUMBERS |= {name: name for name in ("float32", "float64", "bool")}
_ZONE = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.{1,64})\]")


def type_of_labels(path: Path | Frame, columns: Table, name: str, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return the type of the column `name` of a table as description.json holds it; None for text.

    Args:
        path: The file, or a DataFrame.
        columns: What was read of it.
        name: The column of the classes.
        labels: The classes, all of which are of that type.
    """
    found, table = {}, _table(path, name)
    if table is None:
        known = _NUMBERS.get(str(columns.columns[name].dtype))
        return None if known is None else {"type": known}
    arrow = import_optional("pyarrow", "data", _USE)
    field, column = table.schema.field(0), table.column(0)
    kind = field.type
    kept = field.metadata or {}
    if DTYPE in kept:
        found["dtype"] = kept[DTYPE].decode()
    if arrow.types.is_dictionary(kind):
        chunks = column.unify_dictionaries().chunks
        if chunks and len(chunks[0].dictionary) <= MOST_CATEGORIES:
            found |= {"categories": _different(_spelled(arrow, chunks[0].dictionary)), "ordered": kind.ordered}
        kind = kind.value_type
    if CATEGORIES in kept:
        texts = _array(arrow, json.loads(kept[CATEGORIES]), str(kind))
        found |= {"categories": _different(_spelled(arrow, texts)), "ordered": kept[ORDERED] == b"True"}
    found["type"] = _NUMBERS.get(str(kind), str(kind))
    if str(kind) in ("string", "large_string", "string_view"):
        return {**found, "type": "string"} if len(found) > 1 else None
    wanted = [*labels, *found.get("categories", ())]
    try:
        same = _spelled(arrow, _array(arrow, wanted, found["type"])) == wanted
    except (arrow.ArrowException, ValueError):  # a type that text does not become, such as durations
        same = False
    return found if same else None


def typed_labels(narwhals: Any, labels: Sequence[str], kind: dict[str, Any], library: Any) -> Any:
    """Return predicted classes as a series of narwhals of their type.

    Args:
        narwhals: The package.
        labels: The classes, as text.
        kind: What type_of_labels has returned.
        library: What the series is made of.

    Raises:
        DataError: If `kind` is not such a type: it may come from a modified file.
    """
    try:
        return _typed(narwhals, labels, kind, library)
    except (ArithmeticError, TypeError, ValueError) as error:  # errors of Arrow are ValueErrors
        raise DataError(
            f"Expected label_type in description.json to be a type of the labels, but got {shown(kind)} "
            f"({str(error)[:200]}). Remove it to have labels as text."
        ) from error


def _typed(narwhals: Any, labels: Sequence[str], kind: dict[str, Any], library: Any) -> Any:
    found = _series(narwhals, labels, kind["type"], library)
    pandas = found.implementation.is_pandas()
    categories = kind.get("categories")
    if categories is not None and pandas:
        names = _series(narwhals, categories, kind["type"], library).to_native()
        space = narwhals.get_native_namespace(found)
        if "dtype" in kind:
            names = names.astype(kind["dtype"])
        return _wrapped(narwhals, found.to_native().astype(space.CategoricalDtype(names, kind["ordered"])))
    if categories is not None and found.implementation.is_polars() and kind["type"] == "string":
        return found.cast(narwhals.Categorical)
    return _wrapped(narwhals, found.to_native().astype(kind["dtype"])) if pandas and "dtype" in kind else found


def _wrapped(narwhals: Any, native: Any) -> Any:
    return narwhals.from_native(native, series_only=True)


def _table(path: Path | Frame, name: str) -> Any:
    """Return a column of a DataFrame, a Parquet or a Feather file as an Arrow table; None for other files."""
    if isinstance(path, Frame):
        return path.table.select([name])
    suffix = suffix_of(path)
    if suffix == ".parquet":
        with import_optional("pyarrow.parquet", "data", _USE).ParquetFile(path) as file:
            own = [one for one in file.schema_arrow.names if one.strip() == name]
            return file.read(own)
    if suffix == ".feather":
        whole = import_optional("pyarrow.feather", "data", _USE).read_table(path)
        return whole.select([one for one in whole.column_names if one.strip() == name])
    return None


def _array(arrow: Any, labels: Sequence[str], kind: str) -> Any:
    """Return an Arrow array of a type with the cells that have these labels."""
    text, zone = arrow.array(labels, arrow.string()), _ZONE.fullmatch(kind)
    if zone is None:
        return text.cast(arrow.type_for_alias(kind))
    return text.cast(arrow.timestamp(zone[1])).cast(arrow.timestamp(zone[1], zone[2]))


def _spelled(arrow: Any, array: Any) -> list[str | None]:
    """Return the labels of the cells of an Arrow array, like the labels of a column of it."""
    cells = column_of_arrow(arrow, arrow.chunked_array([array]))
    return [label(cell) for cell in plain_cells(cells)]


def _different(names: list[str | None]) -> list[str | None]:
    """Return names without those that come again: two that differ in the spaces around them only are one."""
    return list(dict.fromkeys(names))


def _series(narwhals: Any, labels: Sequence[str], kind: str, library: Any) -> Any:
    """Return a series of cells of a type with these labels."""
    if kind == "bool":
        return narwhals.new_series("label", [one == "True" for one in labels], narwhals.Boolean, backend=library)
    if kind in _NUMBERS:
        number = float if kind.startswith("float") else int
        name = kind.replace("uint", "UInt") if kind.startswith("uint") else kind.capitalize()
        return narwhals.new_series("label", list(map(number, labels)), getattr(narwhals, name), backend=library)
    if kind == "string":
        return narwhals.new_series("label", list(labels), narwhals.String, backend=library)
    arrow = import_optional("pyarrow", "data", _USE)
    return narwhals.from_arrow(arrow.table({"label": _array(arrow, labels, kind)}), backend=library)["label"]
