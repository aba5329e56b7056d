"""The columns that a task reads: nothing that was named is left out without a word."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

from orthornn.errors import DataError, OrthornnWarning
from orthornn.learn.files.columns import read_columns
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.tasks.task_choice import choose_task


@pytest.fixture
def table(tmp_path):
    """12 sequences of 3 steps."""
    lines = [f"{i // 3},{i % 7},{i % 5}.5,{'rb'[i % 2]},{'uv'[i // 18]}" for i in range(36)]
    path = tmp_path / "table.csv"
    path.write_text("id,x,z,color,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "x", "categories": "color"}, "categories to be among the inputs, but got 'color'.*does not see"),
        ({"inputs": "x", "categories": "colour"}, "Expected a column 'colour' for categories.*Did you mean 'color'"),
        ({"inputs": "x,z,x"}, "each column once in inputs, but got 'x' several times"),
        ({"inputs": "x", "missing": "y=hold"}, "Expected a column 'y' for missing"),
        ({"missing": "hold,colr=indicator"}, "Expected a column 'colr' for missing"),
    ],
)
def test_a_column_that_is_named_in_vain_is_refused(table, options, message):
    with pytest.raises(DataError, match=message):
        Classify(data=table, target="label", sequence="id", **options).summary_lines()


def test_a_target_that_is_named_twice_is_refused(table):
    for options in ({"kind": Regress, "sequence": "id"}, {"kind": Forecast}):
        with pytest.raises(DataError, match="each column once in target, but got 'x' several times"):
            options.pop("kind")(data=table, target="x, z,x", **options).summary_lines()


def test_categories_among_the_inputs_or_known_ahead_are_read(table):
    task = Classify(data=table, target="label", sequence="id", inputs="x,color", categories="color")
    assert task.problem().schema["input_size"] == 3
    ahead = Forecast(data=table, target="x", inputs="x", known="color", categories="color", skipped=3, window=8)
    assert ahead.problem().schema["input_size"] == 1 + 2


def test_a_target_among_the_inputs_is_told(table):
    with pytest.warns(OrthornnWarning, match="sees the target x of the step that it predicts"):
        Regress(data=table, target="x", sequence="id", inputs="x,z").summary_lines()
    with warnings.catch_warnings():
        warnings.simplefilter("error", OrthornnWarning)
        Regress(data=table, target="x", sequence="id", inputs="z").summary_lines()
        Forecast(data=table, target="x", inputs="x,z", skipped=3, window=8).summary_lines()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("t,load", "pass ahead, --ahead 1"),
        (
            "t,load,wind",
            r"--sequence; or .* --every-step; or to forecast one series from its past, pass ahead, --ahead 1\.",
        ),
    ],
)
def test_one_series_that_is_no_forecast_is_told_how_to_become_one(tmp_path, head, message):
    path, count = tmp_path / "series.csv", head.count(",")
    path.write_text(head + "\n" + "\n".join(f"{t}{f',{np.sin(t)}' * count}" for t in range(50)) + "\n")
    with pytest.raises(DataError, match=message):
        Regress(data=path, target="load", time="t").summary_lines()


def test_nullable_whole_numbers_are_whole_numbers(tmp_path):
    pandas, path = pytest.importorskip("pandas"), tmp_path / "table.parquet"
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"k": pandas.array([1, None, 2], "Int64"), "name": ["007", "008", "9"]}).to_parquet(path)
    assert choose_task(path, "k", ()) == ("classify", "k holds whole numbers")
    assert choose_task(path, "name", ()) == ("classify", "name holds numbers that are names")


def test_durations_are_seconds(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"since": pandas.to_timedelta([0, 1.5, None], unit="h")})
    frame.to_parquet(tmp_path / "table.parquet")
    found = read_columns(tmp_path / "table.parquet")
    assert found.kind("since") == "numbers"
    np.testing.assert_array_equal(found.numbers("since", "inputs"), [0, 5400, np.nan])


@pytest.mark.parametrize("turned", [False, True])
def test_dates_that_are_not_in_order_are_told_where_no_column_of_times_is_named(tmp_path, turned):
    """Rows with the newest first were a sequence in the wrong direction, and the warning about dates did not say so."""
    days = [f"2024-05-{day:02d}" for day in range(1, 11)]
    rows = [f"{name},{day},{np.sin(int(day[-2:]))},fix" for name in "ba" for day in (days[::-1] if turned else days)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["name,when,x,note", *rows]) + "\n")
    options = {"data": str(path), "target": "x", "sequence": "name", "skipped": 1, "window": 4}
    with pytest.warns(OrthornnWarning, match="does not see when") as caught:
        Forecast(**options).summary_lines()
    assert ("when (dates out of order: pass time)" in str(caught[0].message)) == turned
    with pytest.warns(OrthornnWarning, match=r"does not see note \(text\)"):
        Forecast(**options, time="when").summary_lines()


@pytest.mark.parametrize("row", [0, 2])
def test_a_label_in_one_row_only_is_told(tmp_path, row):
    path = tmp_path / "a.csv"
    path.write_text(
        "id,x,y\n" + "".join(f"{i // 3},{i},{'ab'[i // 3 % 2] if i % 3 == row else ''}\n" for i in range(36))
    )
    task = Classify(data=str(path), target="y", sequence="id", missing="hold")
    with pytest.raises(DataError, match=r"column 'y', is missing in some of its rows\. Repeat it in all of them"):
        task.summary_lines()
    path.write_text("id,x,y\n" + "".join(f"{i // 3},{i},{'ab'[i % 2]}\n" for i in range(36)))
    with pytest.raises(DataError, match="column 'y', changes within one"):
        Classify(data=str(path), target="y", sequence="id").summary_lines()


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (lambda i: 1_700_000_000 + 60 * i, True),
        (lambda i: 20200101 + i % 31 + i // 31 * 100, True),  # days
        (lambda i: 60 * (i % 12), False),  # begins again
        (lambda i: 60 * i + (i > 20), False),
        (lambda i: 0.5 * i, False),
    ],
    ids=["clock", "day", "minute of the hour", "irregular", "not whole"],
)
def test_a_clock_among_the_inputs_is_told(tmp_path, recwarn, cells, told):
    """Seconds since 1970 became an input, whose values in the test part are beyond all that training saw."""
    path = tmp_path / "a.csv"
    path.write_text("at,x\n" + "".join(f"{cells(i)},{np.sin(i)}\n" for i in range(40)))
    options = {"data": str(path), "target": "x", "skipped": 1, "window": 4}
    Forecast(**options).summary_lines()
    assert any("sees at, which grows" in str(warning.message) for warning in recwarn) == told
    recwarn.clear()
    for more in ({"time": "at"}, {"inputs": "at,x"}):
        Forecast(**options, **more).summary_lines()
    assert not any("which grows" in str(warning.message) for warning in recwarn)


INDEXES = {
    "in order": (lambda p, days: days, "dates"),
    "out of order": (lambda p, days: days[::-1], "dates out of order: pass time"),
    "zoned": (lambda p, days: days[::-1].tz_localize("Europe/Berlin"), "dates out of order: pass time"),
    "periods": (lambda p, days: days.to_period("D")[::-1], "dates out of order: pass time"),
    "gaps": (lambda p, days: days.delete([4, 5]).append(days[:2] + p.Timedelta(days=40)), "dates with gaps: pass time"),
    "twice": (lambda p, days: days.delete(4).insert(3, days[3]), "dates, some twice: pass time"),
    "numbers": (lambda p, days: np.arange(40), "numbers the rows"),
    "shuffled": (lambda p, days: np.arange(40)[::-1], "numbers the rows out of order: pass time"),
    "left out": (lambda p, days: np.r_[:20, 30:50], "numbers the rows with gaps: pass time"),
    "two tables": (lambda p, days: np.r_[:25, :15], "numbers the rows"),
    "tables": (lambda p, days: np.repeat(np.arange(5), 8), "numbers the rows"),
    "words": (lambda p, days: [f"row {i}" for i in range(40)], "text"),
    "measured": (lambda p, days: np.sin(np.arange(40)), None),
    "counted": (lambda p, days: np.arange(40) * 7 % 12, None),
    "switched": (lambda p, days: np.arange(40) // 3 % 2, None),
    "below 0": (lambda p, days: np.arange(40) - 7, None),
    "missing": (lambda p, days: np.where(np.arange(40) == 3, np.nan, np.arange(40)), None),
}


@pytest.mark.parametrize("reader", ["frame", "reset", "csv", "parquet", "feather", "polars"])
@pytest.mark.parametrize("index", INDEXES)
def test_an_index_without_a_name_is_told_by_its_cells(tmp_path, recwarn, index, reader):
    """Dates out of order or with gaps, and measurements, were said to number the rows, and the latter left out."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    made, said = INDEXES[index]
    days = pandas.date_range("2024-02-01", periods=40)
    frame = pandas.DataFrame({"x": np.sin(np.arange(40.0)), "y": np.arange(40.0) % 7}, made(pandas, days))
    name, data = "__index_level_0__", tmp_path / f"a.{reader}"
    if reader in ("parquet", "feather", "polars") and index == "periods":
        pytest.skip("of pandas only: a file would have numbers, which are refused")
    if reader == "csv":
        frame.to_csv(data)
        name = "Unnamed: 0"
    elif reader in ("parquet", "feather"):
        pyarrow = pytest.importorskip("pyarrow")
        write = importlib.import_module(f"pyarrow.{reader}")
        (write.write_table if reader == "parquet" else write.write_feather)(pyarrow.Table.from_pandas(frame), data)
    elif reader == "reset":
        data = frame.reset_index(names=["level_0"])
        name = "level_0"
    elif reader == "polars":
        polars = pytest.importorskip("polars")
        data = polars.from_pandas(frame.reset_index(names=["level_0"]))
        name = "level_0"
    else:
        data = frame
    recwarn.clear()
    task = Forecast(data=data, target="y", missing="hold")
    columns = sorted(task.table().roles.inputs)
    messages = " ".join(str(warning.message) for warning in recwarn)
    if said is None:
        assert columns == sorted(["x", "y", name])
        assert f"sees {name}, a column without a name that does not number the rows" in messages
    else:
        assert columns == ["x", "y"]
        assert f"does not see {name} ({said})" in messages
    recwarn.clear()
    named = Forecast(data=data, target="y", missing="hold", inputs="x", time=name if index == "gaps" else None)
    assert ("every 1 d, with 1 gap(s), where steps are missing: 2 after" in "\n".join(named.summary_lines())) == (
        index == "gaps"
    )
    assert not len(recwarn)


@pytest.mark.parametrize(
    ("names", "options", "twice"),
    [
        (("h", "h is missing"), {"missing": "indicator"}, "'h is missing', of the columns 'h' and 'h is missing'"),
        (("a", "a=b"), {"categories": "a,a=b"}, "'a=b=c', of the columns 'a' and 'a=b'"),
        (("x", "x+1"), {"known": "x"}, r"'x\+1', of the columns 'x\+1' and 'x'"),
    ],
)
@pytest.mark.parametrize("reader", ["csv", "frame"])
def test_two_inputs_of_one_name_are_refused(tmp_path, names, options, twice, reader):
    cells = {
        "h": ["", *range(39)],
        "h is missing": range(40),
        "a": ["b=c", "d"] * 20,
        "a=b": ["c", "e"] * 20,
        "x": range(40),
        "x+1": range(40),
    }
    path = tmp_path / "a.csv"
    rows = zip(*(cells[name] for name in names), range(40))
    path.write_text("\n".join([",".join([*names, "y"]), *(",".join(map(str, row)) for row in rows)]))
    if reader == "frame":
        pytest.importorskip("pyarrow")
        path = pytest.importorskip("pandas").read_csv(path)
    task = Forecast(data=path, target="y", inputs=",".join([*names, "y"]), skipped=1, window=4, **options)
    with pytest.raises(DataError, match=f"Expected inputs of different names, but got two that are called {twice}"):
        task.problem()
    Forecast(
        data=path,
        target="y",
        inputs=f"{names[0]},y",
        skipped=1,
        window=4,
        missing="hold",
        categories=names[0] if "categories" in options else None,
    ).problem()
