"""DataFrames instead of a file: from pandas, polars, pyarrow and every other library that narwhals supports.

A task stores a frame as an Arrow table, whose cells are read like those of a Parquet file with the same content.
A run with a directory stores the table in it, which makes the run resumable.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..._files import write_atomically
from ..._optional_packages import import_optional
from ...errors import ArgumentTypeError, DataError, OrthornnError
from ...saved.label_dtypes import MOST_CATEGORIES, PANDAS_DTYPES
from .cells import column_names
from .parquet_files import check_shared, column_of_arrow, without_views

if TYPE_CHECKING:
    Source: TypeAlias = Any
else:
    Source = str
"""What a task reads: the path of a file, or a DataFrame."""

DTYPE = b"pandas dtype"  # key of the metadata of a column: the type that pandas has for it, where Arrow has another
CATEGORIES, ORDERED = b"categories", b"ordered"  # of categories that are no text, which Parquet has as plain cells
PREFIX = "DataFrame-"
SHOWN = "DataFrame"  # how messages call one
_STORED = re.compile(rf"{PREFIX}[0-9a-f]{{12}}\.parquet")
_LONGEST = 300  # characters of an error of another library
_NAMELESS = "__index_level_0__"  # how Arrow calls the index of pandas where it can have no name
_USE = "DataFrames"


class Frame:
    """A DataFrame as a table of Arrow, which is not changed.

    name: Tells tables apart by what they hold; config.json of a run without a directory has it. stored: The path of a
        file with the table, once there is one.
    """

    def __init__(self, name: str, table: Any) -> None:
        self.name, self.table = name, table
        self.stored: Path | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return SHOWN

    __repr__ = __str__

    def __deepcopy__(self, memo: dict[int, Any]) -> Frame:
        return self


def source(data: Any) -> str | Frame:
    """Return the reference to its data that a task stores: a path as text, or a DataFrame as a Frame.

    Raises:
        ArgumentTypeError: If it is neither.
        MissingPackageError: For a DataFrame without narwhals or pyarrow.
    """
    if isinstance(data, (str, Frame)):
        return data
    if isinstance(data, os.PathLike):
        return os.fspath(data)
    narwhals = import_optional("narwhals", "data", _USE)
    import_optional("pyarrow", "data", _USE)
    _check_names(data)
    try:
        frame = narwhals.from_native(data)
        if hasattr(frame, "collect"):  # a lazy one
            frame = frame.collect()
        table = _arrow_table(narwhals, _with_dates(narwhals, _with_named_range(narwhals, frame)))
        table, digest = _copied(_with_dtypes(table, frame))
    except OrthornnError:
        raise
    except TypeError:
        raise ArgumentTypeError(
            f"Expected a path or a DataFrame (pandas, polars, pyarrow, ...), but got {type(data).__name__}. Build a table "
            f"with one row per step."
        ) from None
    except Exception as error:  # those of every library, such as for text that is not Unicode
        raise DataError(
            f"Expected a table that Arrow can hold, but got a {type(data).__name__} that it cannot: "
            f"{' '.join(str(error).split())[:_LONGEST]}. Correct the column."
        ) from error
    return Frame(f"{PREFIX}{digest[:12]}", table)


def _check_names(data: Any) -> None:
    """Raise DataError for two columns of one name, for which libraries have errors of many kinds."""
    if hasattr(data, "collect"):  # a lazy one, which does not know them yet
        return
    names = getattr(data, "column_names", getattr(data, "columns", ()))  # of pyarrow; of pandas
    with contextlib.suppress(TypeError):
        names = list(map(str, names))
        if len(set(names)) != len(names):
            column_names(names, SHOWN)


def located(data: str | Path | Frame) -> Path | Frame:
    """Return the location of data: a path, without ~, or the DataFrame itself."""
    return data if isinstance(data, Frame) else Path(data).expanduser()


def shown_name(data: str | Path | Frame) -> str:
    """Return how messages call a file, or a DataFrame, also one that a run has stored."""
    return SHOWN if isinstance(data, Frame) or _STORED.fullmatch(Path(data).name) else str(data)


def without_folder(value: Any) -> Any:
    """Return the name of a file in which a run has stored a table, which tells tables apart, without its folder.

    Any other value is returned as it is.
    """
    name = Path(value).name if isinstance(value, str) else ""
    return name if _STORED.fullmatch(name) else value


def columns_of(frame: Frame) -> dict[str, np.ndarray]:
    """Return the columns of a table in memory. Raises DataError for names that are not different."""
    pyarrow = import_optional("pyarrow", "data", _USE)
    names = column_names(frame.table.column_names, frame)
    for field in frame.table.schema:
        check_shared(field.type, f"{frame}, column {field.name!r},")
    return {name: column_of_arrow(pyarrow, frame.table.column(place)) for place, name in enumerate(names)}


def cells_at(narwhals: Any, data: str | Path | Frame, file: Any, column: str, rows: np.ndarray, library: Any) -> Any:
    """Return a column's cells in these rows, as a series of narwhals that has the type that they have in the table.

    Args:
        narwhals: The package.
        data: The path of a file, or a DataFrame.
        file: What was read of it, a Table.
        column: A column.
        rows: Rows of it.
        library: What the series is made of.
    """
    values = file.columns[column]
    if not isinstance(data, Frame) and values.dtype.kind != "M":
        return narwhals.new_series(column, values[rows].tolist(), backend=library)
    arrow = import_optional("pyarrow", "data", _USE)
    whole = data.table.column(column) if isinstance(data, Frame) else arrow.array(values)
    return narwhals.from_arrow(arrow.table({column: whole.take(arrow.array(rows))}), backend=library)[column]


def store(frame: Frame, folder: Path) -> str:
    """Write a table in memory as a Parquet file into a folder; return the file's absolute path."""
    arrow, parquet = (import_optional(name, "data", _USE) for name in ("pyarrow", "pyarrow.parquet"))
    path = (folder / f"{frame.name}.parquet").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return str(path)
    try:  # several runs on one frame share one file
        os.link(frame.stored or "", path)
    except OSError:  # it is not stored yet, or on another disk
        try:
            write_atomically(path, lambda file: parquet.write_table(frame.table, file))
        except arrow.ArrowException as error:
            raise DataError(
                f"Expected a table that a Parquet file can hold, to store it with the run, but got an error: "
                f"{str(error)[:_LONGEST]}. Leave the column out."
            ) from error
    frame.stored = path
    return str(path)


def _with_named_range(narwhals: Any, frame: Any) -> Any:
    """A pandas frame whose index is a named range, with the index as a column, as Arrow stores every other index:
    without its name if a column has the same name.
    """
    index, native = narwhals.maybe_get_index(frame), frame.to_native()
    if type(index).__name__ == "RangeIndex" and index.name is not None:
        name = str(index.name) if index.name not in native.columns else _NAMELESS
        return narwhals.from_native(native.assign(**{name: index}))
    return frame


def _with_named_index(narwhals: Any, frame: Any) -> Any:
    """A frame of pandas with the levels of its index that have names as columns, as Arrow has them."""
    index, native = narwhals.maybe_get_index(frame), frame.to_native()
    names = [name for name in getattr(index, "names", ()) if name is not None and name not in native.columns]
    if not names:
        return frame
    native = native.copy(deep=False)
    for name in names:
        native[name] = index.get_level_values(name)
    return narwhals.from_native(native)


def _with_dates(narwhals: Any, frame: Any) -> Any:
    """A frame of pandas with periods as their first moments: Arrow would have the numbers that stand for them."""
    native, index = frame.to_native(), narwhals.maybe_get_index(frame)
    kinds = getattr(native, "dtypes", None)  # pandas has a table of them, others a list or none
    pairs = kinds.items() if kinds is not None and hasattr(kinds, "items") else ()
    periods = [name for name, kind in pairs if str(kind).startswith("period[")]
    levels = getattr(index, "levels", [index])
    in_index = [place for place, level in enumerate(levels) if str(getattr(level, "dtype", "")).startswith("period[")]
    if not periods and not in_index:
        return frame
    native = native.copy(deep=False)
    for name in periods:
        native[name] = native[name].dt.to_timestamp()
    for place in in_index:
        first = levels[place].to_timestamp()
        native.index = first if len(levels) == 1 else index.set_levels(first, level=place)
        index = native.index
    return narwhals.from_native(native)


def _arrow_table(narwhals: Any, frame: Any) -> Any:
    """The table of Arrow columns, without the metadata of a library; cells of several types become text, as do cells of
    a type that a library adds to Arrow, such as the intervals of pandas.cut.
    """
    arrow = import_optional("pyarrow", "data", _USE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are not text: they become text
        try:
            table = frame.to_arrow()
        except (arrow.ArrowException, TypeError, ValueError):
            frame = _with_named_index(narwhals, frame)
            native = frame.to_native()
            columns = {}
            for name in frame.columns:
                try:
                    columns[str(name)] = arrow.array(native[name])
                except (arrow.ArrowException, TypeError, ValueError):
                    columns[str(name)] = _as_text(arrow, frame[name])
            table = arrow.table(columns)
        for place, (field, name) in enumerate(zip(table.schema, frame.columns)):
            kind = field.type.value_type if arrow.types.is_dictionary(field.type) else field.type
            if isinstance(kind, arrow.BaseExtensionType):
                table = table.set_column(place, field.name, _as_text(arrow, frame[name]))
        for place, field in enumerate(table.schema):
            table = table.set_column(place, field.name, without_views(arrow, table.column(place)))
    return table.rename_columns([name.strip() for name in table.column_names]).replace_schema_metadata(None)


def _as_text(arrow: Any, column: Any) -> Any:
    """The cells of a column as text; a categorical column by its categories, whether or not a cell is missing."""
    native = column.to_native()
    if hasattr(native, "cat") and hasattr(native.cat, "codes"):  # of pandas
        names = [str(name) for name in native.cat.categories]
        cells = [None if code < 0 else names[code] for code in native.cat.codes]
        return arrow.array(cells, arrow.string())
    gone = column.is_null().to_list()
    return arrow.array([None if null else str(cell) for cell, null in zip(column.to_list(), gone)], arrow.string())


def _with_dtypes(table: Any, frame: Any) -> Any:
    """A table with what Arrow or Parquet would not keep of the types of its columns, in their metadata."""
    arrow = import_optional("pyarrow", "data", _USE)
    kinds = getattr(frame.to_native(), "dtypes", None)  # pandas has a table of them, others a list or none
    pairs = kinds.items() if kinds is not None and hasattr(kinds, "items") else ()
    own = {str(name).strip(): str(kind) for name, kind in pairs}
    fields = []
    for field, column in zip(table.schema, table.columns):
        kept, name = {}, own.get(field.name, "")
        if PANDAS_DTYPES.fullmatch(name):
            kept[DTYPE] = name
        if arrow.types.is_dictionary(field.type) and arrow.types.is_primitive(field.type.value_type):
            chunks = column.unify_dictionaries().chunks
            if chunks and len(chunks[0].dictionary) <= MOST_CATEGORIES:
                texts = chunks[0].dictionary.cast(arrow.string()).to_pylist()
                kept |= {CATEGORIES: json.dumps(texts), ORDERED: str(field.type.ordered)}
        fields.append(field.with_metadata(kept or None))
    return arrow.Table.from_arrays(table.columns, schema=arrow.schema(fields))


def _copied(table: Any) -> tuple[Any, str]:
    """A table without memory of the frame, which may be changed in place; and the sha256 of names, types and cells."""
    arrow = import_optional("pyarrow", "data", _USE)
    sink = arrow.BufferOutputStream()
    whole = table.combine_chunks()
    with arrow.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    content = sink.getvalue()
    return arrow.ipc.open_stream(content).read_all(), hashlib.sha256(content).hexdigest()
