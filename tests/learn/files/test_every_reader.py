"""The same table in every format: the same data, warnings and errors."""

from __future__ import annotations

import datetime
import gzip
import math
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from orthornn.errors import OrthornnError
from orthornn.learn.files.columns import read_columns
from orthornn.learn.files.data_frames import located, source
from orthornn.learn.tasks import Classify, Forecast, Regress

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

TEXTS = ("csv", "semicolons", "tsv", "csv.gz", "mark", "crlf", "quoted", "blank-lines", "sep")
TYPED = ("parquet", "feather", "arrow", "pandas", "polars")
READERS = (*TEXTS, *TYPED, "npz")


def written(cell: object) -> str:
    return "" if cell is None else str(cell)


def as_text(reader: str, names: list[str], rows: list[tuple[Any, ...]]) -> bytes:
    separator = {"semicolons": ";", "tsv": "\t", "sep": ";"}.get(reader, ",")
    end = "\r\n" if reader == "crlf" else "\n"
    mark = '"' if reader == "quoted" else ""
    lines = [separator.join(f"{mark}{written(cell)}{mark}" for cell in row) for row in [names, *rows]]
    above = {"blank-lines": f"{end}{end}", "sep": f"sep=;{end}", "mark": "\ufeff"}.get(reader, "")
    return f"{above}{end.join(lines)}{end * (3 if reader == 'blank-lines' else 1)}".encode()


def table_of(names: list[str], rows: list[tuple[Any, ...]]) -> Any:
    return pyarrow.table([pyarrow.array(list(cells)) for cells in zip(*rows)], names=names)


def arrays(names: list[str], rows: list[tuple[Any, ...]]) -> dict[str, np.ndarray]:
    found = {}
    for name, cells in zip(names, zip(*rows)):
        if any(isinstance(cell, str) for cell in cells):
            if None in cells:
                pytest.skip("text of NumPy has no missing cells")
            found[name] = np.array(cells, str)
        elif any(isinstance(cell, datetime.datetime) for cell in cells):
            found[name] = np.array(cells, "datetime64[s]")
        elif None in cells:
            found[name] = np.array([math.nan if cell is None else cell for cell in cells], float)
        else:
            found[name] = np.array(cells)
    return found


def stored(reader: str, folder: Any, names: list[str], rows: list[tuple[Any, ...]]) -> Any:
    """What a task reads: a path, or a frame."""
    ending = reader if reader in ("csv", "tsv", "csv.gz", "parquet", "feather", "npz") else "csv"
    path = folder / f"table.{ending}"
    if reader in TEXTS:
        content = as_text(reader, names, rows)
        path.write_bytes(gzip.compress(content) if reader == "csv.gz" else content)
        return path
    if reader == "npz":
        np.savez(path, **arrays(names, rows))
        return path
    if reader == "pandas":
        columns = [pandas.Series(list(cells)) for cells in zip(*rows)]
        return pandas.concat(columns, axis=1, keys=names)
    if reader == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame(dict(zip(names, map(list, zip(*rows)))))
    table = table_of(names, rows)
    if reader == "arrow":
        return table
    if reader == "parquet":
        parquet.write_table(table, path)
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    return path


def same_everywhere(text: object) -> str:
    """A message without what differs between the formats: the file, its lines, and the T of dates that are no text."""
    text = re.sub(r"DataFrame|\S*table\.[a-z.]+[a-z]", "TABLE", str(text))
    text = re.sub(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.0+)?", r"\1 \2", text)
    return re.sub(r", line \d+ of the file", "", text)


def outcome(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call returns, or its error; and its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            result = work()
        except OrthornnError as error:
            result = f"{type(error).__name__}: {error}"
    told = [same_everywhere(one.message) for one in found]
    return ([same_everywhere(line) for line in result] if isinstance(result, list) else same_everywhere(result)), told


N = 60
VALUES = np.random.default_rng(0).normal(size=N).round(3).tolist()
DAY = datetime.datetime(2020, 1, 1)


def days(shifted: Callable[[int], int]) -> list[datetime.datetime]:
    return [DAY + datetime.timedelta(days=shifted(k)) for k in range(N)]


def without(cells: list[Any], *places: int) -> list[Any]:
    return [None if place in places else cell for place, cell in enumerate(cells)]


def repeated(*cells: Any) -> list[Any]:
    """Cells of sequences of four rows, in turn."""
    return [cells[k // 4 % len(cells)] for k in range(N)]


IDS = [k // 4 for k in range(N)]
X = {"x": VALUES, "y": VALUES[::-1]}
AHEAD = {"target": "y", "ahead": 1}
OF_IDS = {"target": "y", "sequence": "id"}
# The columns, the task and its options, and what is said of them, a pattern in what is told, warned of, or in the error.
TABLES: dict[str, tuple[dict[str, list[Any]], Any, dict[str, Any], str]] = {
    "missing": (X | {"x": without(VALUES, 3, 7)}, Forecast, AHEAD, "nan in row 4, as in 2 row"),
    "held": (X | {"x": without(VALUES, 3, 7)}, Forecast, AHEAD | {"missing": "hold"}, "2 steps are missing and hold"),
    "whole numbers": (
        X | {"x": without([*range(N)], 3)},
        Forecast,
        AHEAD | {"missing": "hold"},
        r"missing: 1 in x \(hold\)",
    ),
    "no target": (X | {"y": without(VALUES, 5)}, Forecast, AHEAD, r"\[nan\] in row 6"),
    "nothing": (X | {"z": without(VALUES, *range(N))}, Forecast, AHEAD, "column 'z', but got nan in row 1, as in 60"),
    "no label": (
        {"id": IDS, **X, "y": repeated(1, 2, None)},
        Classify,
        OF_IDS,
        "a label for every step .* none in row 9",
    ),
    "no name": ({"id": without(IDS, 9), **X, "y": repeated("u", "v")}, Classify, OF_IDS, "the first in row 10"),
    "no time": ({"t": without(days(int), 9), **X}, Forecast, AHEAD | {"time": "t"}, "but got none in row 10"),
    "gaps": (
        {"t": days(lambda k: k + 2 * (k > 20)), **X},
        Forecast,
        AHEAD,
        r"does not see t \(dates with gaps: pass time\)",
    ),
    "gaps of time": (
        {"t": days(lambda k: k + 2 * (k > 20)), **X},
        Forecast,
        AHEAD | {"time": "t"},
        "every 1 d, with 1 gap",
    ),
    "twice": (
        {"t": days(lambda k: k - (k > 20)), **X},
        Forecast,
        AHEAD,
        r"does not see t \(dates, some twice: pass time\)",
    ),
    "time twice": (
        {"t": days(lambda k: k - (k > 20)), **X},
        Forecast,
        AHEAD | {"time": "t"},
        "the first in row 22; they",
    ),
    "out of order": ({"t": days(lambda k: 7 * k % N), **X}, Forecast, AHEAD, r"t \(dates out of order: pass time\)"),
    "days of an index": (
        {"Unnamed: 0": days(lambda k: k + 2 * (k > 20)), **X},
        Forecast,
        AHEAD,
        "dates with gaps: pass time",
    ),
    "an index": ({"Unnamed: 0": [*range(N)], **X}, Forecast, AHEAD, r"does not see Unnamed: 0 \(numbers the rows\)"),
    "no index": (
        {"Unnamed: 0": [int(1000 * x) for x in VALUES], **X},
        Forecast,
        AHEAD,
        "sees Unnamed: 0, a column without",
    ),
    "tenths": ({"t": [0.1 * k for k in range(N)], **X}, Forecast, AHEAD | {"time": "t"}, "every 0.1, without gaps"),
    "digits": (
        {"t": [int(f"{day:%Y%m%d}") for day in days(int)], **X},
        Forecast,
        AHEAD | {"time": "t"},
        "every 1 d, without gaps",
    ),
    "a clock": ({"c": [*range(5, 5 + N)], **X}, Forecast, AHEAD, "sees c, which grows by the same amount"),
    "wide target": (
        X | {"y": [2**53 + 1 + k for k in range(N)]},
        Forecast,
        AHEAD,
        "more than float64 rounds them, .* row 1, is",
    ),
    "wide input": (
        X | {"x": [2**53 + 1 + k * 2**21 for k in range(N)]},
        Forecast,
        AHEAD,
        "above 9007199254740992 are rounded",
    ),
    "wide names": (
        {"id": [2**53 + 1 + k // 4 for k in range(N)], **X, "y": repeated("u", "v")},
        Classify,
        OF_IDS,
        "15 sequences by the column id of 4 steps",
    ),
    "words": (X | {"x": ["a", "b"] * (N // 2)}, Forecast, AHEAD, r"does not see x \(text\)"),
    "named words": (
        X | {"x": ["a", "b"] * (N // 2)},
        Forecast,
        AHEAD | {"inputs": "x"},
        "'a' in row 1 .60 of 60 cells",
    ),
    "truth values": (X | {"x": [True, False] * (N // 2)}, Forecast, AHEAD, "inputs: x, y"),
    "infinity": (X | {"x": [math.inf, *VALUES[1:]]}, Forecast, AHEAD, "inf in row 1, as in 1 row"),
    "a constant": (X | {"x": [1.5] * N}, Forecast, AHEAD, "x is constant in the training part"),
    "a mask of 2": ({"mask": [1, 0, 2] * (N // 3), **X}, Forecast, AHEAD, "Expected 0 or 1 .* but got 2 in row 3"),
    "spaces": (
        {"x ": VALUES, " id": repeated("a", "b ", " c", "d"), "y": repeated("u ", " v")},
        Classify,
        OF_IDS,
        r"classes: u \d, v \d in training",
    ),
    "leading zeros": (
        {"id": [f"{k // 4:03}" for k in range(N)], "x": VALUES, "y": repeated("01", "1")},
        Classify,
        OF_IDS,
        "classes: 01 .*, 1 .* in training",
    ),
    "dates as classes": (
        {"id": IDS, **X, "y": repeated(DAY, days(int)[1])},
        Classify,
        OF_IDS,
        "classes: 2020-01-01 00:00:00 6",
    ),
    "one sequence": (X, Regress, {"target": "y"}, "Expected at least 3 sequence"),
    "another name": (X, Forecast, AHEAD | {"target": "z"}, "Expected a column 'z' for target in TABLE, but got x, y"),
    **{
        f"classes {first}, {word}": (
            {"id": IDS, "x": VALUES, "y": repeated(first, word, "1")},
            Classify,
            OF_IDS | {"default_na": "empty"},
            rf"classes: .*{word} [34]\b.* in training",
        )
        for first in ("u", "0")
        for word in ("None", "NA", "nan", "null", "N/A")
    },
}


def read(reader: str, folder: Any, case: str) -> tuple[Any, list[str]]:
    columns, kind, options, _ = TABLES[case]
    data = stored(reader, folder, [*columns], [*zip(*columns.values())])
    if reader not in TEXTS:
        options = {name: value for name, value in options.items() if name != "default_na"}
    kept = source(data)

    def told() -> list[str]:
        task = kind(data=kept, **options)
        made = task.problem().schema
        made.pop("label_type", None)  # text has no types
        return [*task.summary_lines(), repr(made)]

    return outcome(told)


@pytest.mark.parametrize("case", TABLES)
def test_a_table_is_the_same_in_every_format(case, tmp_path):
    found = {}
    for reader in READERS:
        (tmp_path / reader).mkdir()
        try:
            result, warned = read(reader, tmp_path / reader, case)
        except pytest.skip.Exception:  # what this format, or this machine, does not have
            continue
        if isinstance(result, str):
            result = result.replace(
                "; or if it is the name of a class, such as None or NA: default_na='empty', --default-na empty", ""
            )
        found[reader] = (result, warned)
    assert len(found) >= len(READERS) - 2
    first = found["csv"]
    assert {reader: one for reader, one in found.items() if one != first} == {}
    assert re.search(TABLES[case][3], " ".join([*(first[0] if isinstance(first[0], list) else [first[0]]), *first[1]]))


@pytest.mark.parametrize("names", [("x", "x", "y"), ("x", " x", "y"), ("x", "", "y"), ("x", "y", "y ")])
@pytest.mark.parametrize("reader", READERS)
def test_columns_have_names_and_no_two_have_the_same(reader, names, tmp_path):
    if reader in ("polars", "npz") and len(set(names)) < len(names):
        pytest.skip("it cannot hold them")
    data = stored(reader, tmp_path, list(names), [(1.5, 2.5, 3.5)] * 3)

    def reading() -> None:
        kept = source(data)
        read_columns(located(kept))

    with pytest.raises(
        OrthornnError, match=r"names, all different, .*but got '.*'\. Name each column, and no two alike\."
    ):
        reading()


@pytest.mark.parametrize("reader", READERS)
def test_numbers_with_decimal_commas(reader, tmp_path):
    """Text that says so is read; a column of another type is to be converted."""
    cells = [f"{x:.4f}".replace(".", ",") for x in VALUES]
    kept = source(stored(reader, tmp_path, ["x", "y"], [*zip(cells, range(N))]))
    if reader in ("semicolons", "tsv", "sep", "quoted"):
        assert read_columns(located(kept)).numbers("x", "inputs").tolist() == VALUES
        return
    said = (
        "Expected 2 cells, one per name, but .* has 3"
        if reader in TEXTS
        else "in row 1 .* Convert the column to numbers"
    )
    with pytest.raises(OrthornnError, match=said):
        read_columns(located(kept)).numbers("x", "inputs")


@pytest.mark.parametrize("reader", READERS)
def test_a_table_without_rows(reader, tmp_path):
    rows: list[tuple[Any, ...]] = [] if reader in (*TEXTS, "polars", "npz") else [(1.0, 2.0)]
    data = stored(reader, tmp_path, ["x", "y"], rows)
    if reader in ("arrow", "pandas"):
        data = data[:0]
    elif rows:
        table = table_of(["x", "y"], rows)[:0]
        if reader == "parquet":
            parquet.write_table(table, data)
        else:
            feather.write_feather(table, str(data))
    kept = source(data)
    with pytest.raises(OrthornnError, match=r"Expected at least one step of one sequence, but .* has no rows"):
        read_columns(located(kept))


def test_an_index_that_has_the_name_of_a_column_is_kept(tmp_path):
    for index in (pandas.RangeIndex(5, 8, name="x"), pandas.Index([5, 6, 7], name="x")):
        kept = source(pandas.DataFrame({"x": VALUES[:3]}, index=index))
        columns = read_columns(located(kept)).columns
        assert {name: cells.tolist() for name, cells in columns.items()} == {
            "x": VALUES[:3],
            "__index_level_0__": [5, 6, 7],
        }


@pytest.mark.parametrize("name", ["__MACOSX/._x.npy", "__MACOSX/.DS_Store", ".DS_Store", "folder/._x.npy"])
def test_what_a_system_adds_to_an_archive_is_no_array(name, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), **{".hidden": np.arange(3)})
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr(name, b"Mac OS X")
    assert read_columns(tmp_path / "a.npz").columns.keys() == {"x", ".hidden"}
