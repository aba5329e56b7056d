"""DataFrames are read as the files with the same content are, and stay with the run."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orthornn.errors import ArgumentError, ArgumentTypeError, DataError
from orthornn.learn.files.columns import read_columns
from orthornn.learn.files.data_frames import Frame, located, source, store
from orthornn.learn.sweep import trials
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify
from orthornn.learn.training import RunConfig, resume, train

pytest.importorskip("narwhals")
pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")


def table(count=20, steps=7):
    random = np.random.default_rng(3)
    return pandas.DataFrame(
        {
            "who": np.repeat(np.arange(count), steps),
            "x": random.standard_normal(count * steps),
            "flag": random.random(count * steps) > 0.5,
            "when": pandas.date_range("2020-03-28", periods=count * steps, freq="h", tz="Europe/Berlin"),
            "kind": pandas.Categorical(np.repeat(np.where(np.arange(count) % 2, "up", "down"), steps)),
        }
    )


def in_library(name, frame):
    if name == "pandas":
        return frame
    if name == "pyarrow":
        return pyarrow.Table.from_pandas(frame)
    polars = pytest.importorskip("polars")
    made = polars.from_pandas(frame)
    return made.lazy() if name == "polars, lazy" else made


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars", "polars, lazy"])
def test_a_frame_is_read_as_its_parquet_file_is(library, tmp_path):
    frame = table()
    frame.to_parquet(tmp_path / "table.parquet")
    wanted = read_columns(tmp_path / "table.parquet").columns
    name = source(in_library(library, frame))
    found = read_columns(name).columns
    assert list(found) == list(wanted)
    for key, column in wanted.items():
        np.testing.assert_array_equal(found[key], column)
    assert found["when"].dtype.kind == "M"
    assert name == source(in_library(library, table()))
    assert name != source(in_library(library, frame.assign(x=frame["x"] + 1)))


def test_missing_cells_names_that_are_no_text_and_an_index():
    frame = pandas.DataFrame(
        {"a": pandas.array([1, None, 3], dtype="Int64"), 7: ["x", None, "y"], "b": [0.5, np.nan, 1]}
    )
    assert "step" in read_columns(source(frame.set_index(pandas.Index([3, 8, 5], name="step")))).columns
    kept = source(frame.set_index(pandas.RangeIndex(3, 6, name="step")))
    found = read_columns(kept)
    assert found.columns["7"].tolist() == ["x", None, "y"]
    np.testing.assert_array_equal(found.numbers("a", "inputs"), [1, np.nan, 3])
    np.testing.assert_array_equal(found.numbers("b", "inputs"), [0.5, np.nan, 1])
    assert found.columns["step"].tolist() == [3, 4, 5]


def test_cells_of_several_types_are_named_by_row():
    kept = source(pandas.DataFrame({"x": [1, "bad", 3.5]}))
    with pytest.raises(DataError, match=r"column 'x', but got 'bad' in row 2"):
        read_columns(kept).numbers("x", "inputs")


@pytest.mark.parametrize("wrong", [[1, 2], 3, np.zeros((2, 2)), {"a": [1]}, None])
def test_what_is_no_table_is_refused(wrong):
    with pytest.raises(ArgumentTypeError, match="Expected a path or a DataFrame"):
        source(wrong)


def test_two_columns_of_one_name_are_refused():
    made = pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    with pytest.raises((DataError, ArgumentError, ValueError), match="a"):
        read_columns(source(made))


def test_a_table_is_not_copied_and_told_apart_by_what_it_holds():
    kept = source(table())
    assert copy.deepcopy(kept) is kept is source(kept)
    again = pickle.loads(pickle.dumps(kept))  # another process of a sweep
    assert isinstance(again, Frame)
    assert (again, hash(again)) == (kept, hash(kept)) == (source(table()), hash(source(table())))
    assert again.table.equals(kept.table)
    assert len({kept, again, source(table(9))}) == 2
    task = Classify(data=kept, target="kind", sequence="who", inputs="x")
    assert task == Classify(data=table(), target="kind", sequence="who", inputs="x") != replace(task, data=table(9))
    assert f"{kept}" == str(kept) == "DataFrame"


def test_a_configuration_in_json_names_its_table():
    config = RunConfig(task=Classify(data=table(), target="kind", sequence="who"), model=model_named("lstm"))
    assert json.loads(json.dumps(config.to_dict()))["task"]["data"] == config.task.data.name
    made = trials(config, {"lr": [0.1, 0.2]}, {})
    assert [one.task for one in made.values()] == [config.task, config.task]


def test_a_run_stores_its_table_and_resumes_without_the_frame(tmp_path):
    task = Classify(data=table(), target="kind", sequence="who", inputs="x,flag")
    config = RunConfig(task=task, model=model_named("lstm", hidden_size=3), steps=4, batch_size=4)
    whole = train(config, tmp_path / "whole")
    train(RunConfig(task=task, model=config.model, steps=2, batch_size=4), tmp_path / "half")
    stored = sorted(path.name for path in (tmp_path / "half").glob("*.parquet"))
    assert stored == [task.data.name + ".parquet"]
    del task, config
    gc.collect()
    again = resume(tmp_path / "half", steps=4)
    assert again.test == whole.test
    in_memory = train(
        RunConfig(
            task=Classify(data=table(), target="kind", sequence="who", inputs="x,flag"),
            model=model_named("lstm", hidden_size=3),
            steps=4,
            batch_size=4,
        )
    )
    assert in_memory.test == whole.test


def test_several_runs_share_one_file(tmp_path):
    name = source(table())
    paths = [store(name, tmp_path / folder) for folder in "abc"]
    assert len({read_columns(Path(path)).rows for path in paths}) == 1
    (tmp_path / "a" / (name.name + ".parquet")).unlink()
    assert Path(store(name, tmp_path / "a")).exists()
    (tmp_path / "a" / (name.name + ".parquet")).unlink()
    (tmp_path / "c" / (name.name + ".parquet")).unlink()
    name.stored = tmp_path / "gone"
    assert read_columns(Path(store(name, tmp_path / "d"))).rows == 140


def test_a_directory_with_a_run_is_left_as_it_is(tmp_path):
    config = RunConfig(
        task=Classify(data=table(), target="kind", sequence="who", inputs="x"),
        model=model_named("lstm", hidden_size=3),
        steps=1,
        batch_size=4,
    )
    train(config, tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    other = table(count=24)
    with pytest.raises(ArgumentError, match="already holds a run"):
        train(
            RunConfig(
                task=Classify(data=other, target="kind", sequence="who", inputs="x"),
                model=config.model,
                steps=1,
                batch_size=4,
            ),
            tmp_path / "run",
        )
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_parts_in_frames_of_their_own():
    first, second = table(), table(9)
    task = Classify(data=first, test_data=second, target="kind", sequence="who", inputs="x")
    assert sum(len(batch.targets) for batch in task.problem().test(50)) == 9
    assert task.files() == {}


class _Unshown:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "cells",
    [[10**30, 10**31], pandas.Series(["\ud800", "b"], dtype=object), [_Unshown(), _Unshown()]],
    ids=["integers", "surrogates", "objects"],
)
def test_cells_that_no_table_holds_are_one_error(cells):
    with pytest.raises(DataError, match="Expected a table that Arrow can hold, but got a DataFrame that it cannot"):
        source(pandas.DataFrame({"v": cells, "y": ["a", "b"]}))


def test_names_that_are_there_twice_are_one_error():
    frame = table()
    frame.columns = ["who", "x", "x", "when", "kind"]
    with pytest.raises(DataError, match="Expected") as said:
        Classify(data=source(frame), target="kind", sequence="who").summary_lines()
    assert "\n" not in str(said.value)


def test_intervals_are_names():
    """A table that had some was said to be none."""
    frame = table().assign(cut=pandas.cut(table()["x"], [-9, 0, 9]))
    frame["whole"] = pandas.arrays.IntervalArray.from_breaks(np.arange(141))
    frame.loc[3, "cut"] = None
    found = read_columns(source(frame))
    assert found.labels("cut", "categories").tolist() == [
        None if i == 3 else "(0, 9]" if x > 0 else "(-9, 0]" for i, x in enumerate(frame["x"])
    ]
    assert found.labels("whole", "categories").tolist() == [f"({i}, {i + 1}]" for i in range(140)]
    task = Classify(
        data=source(frame), target="kind", sequence="who", inputs="x,cut", categories="cut", missing="indicator"
    )
    assert [channel.name for channel in task.table().data.channels][1:3] == ["cut=(-9, 0]", "cut=(0, 9]"]


def test_periods_are_dates(tmp_path):
    """As numbers, which Arrow takes them for, they would be inputs."""
    frame = table().assign(when=pandas.period_range("2020-01", periods=140, freq="M")[::-1])
    name = source(frame)
    columns = read_columns(located(name))
    assert columns.kind("when") == "dates"
    assert np.array_equal(np.argsort(columns.order("when", "time")), np.arange(140)[::-1])
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet, column 'when', but got pandas.period"):
        read_columns(tmp_path / "a.parquet")


def test_a_named_index_stays_where_a_column_has_cells_of_several_types():
    """The index was lost, so that all sequences became one."""
    frame = table().assign(note=[1, "bad", None, 3.5] * 35, step=np.tile(np.arange(7), 20)).set_index(["who", "step"])
    found = read_columns(source(frame))
    assert set(found.columns) == {"who", "step", "x", "flag", "when", "kind", "note"}
    assert found.columns["who"].tolist() == np.repeat(np.arange(20), 7).tolist()
    assert len(Classify(data=frame, target="kind", sequence="who", inputs="x").table().sequences.rows) == 20


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_task_keeps_the_cells_that_a_frame_had(library):
    """A table shared the memory of its frame, so that a later change in place changed what a task reads."""
    frame = table()
    x = np.arange(len(frame)) / 7
    frame["x"] = pandas.Series(x, copy=False)
    name = source(in_library(library, frame))
    frame["x"] *= 1000
    x += 1
    np.testing.assert_array_equal(read_columns(name).columns["x"], np.arange(len(frame)) / 7)


WORDS = ["a", "b" * 20, None, " a "]
VIEWS = {
    "text": lambda: pyarrow.array(WORDS, pyarrow.string_view()),
    "slice": lambda: pyarrow.array(["skipped", *WORDS], pyarrow.string_view())[1:],
    "bytes": lambda: pyarrow.array([None if word is None else word.encode() for word in WORDS], pyarrow.binary_view()),
    "categories": lambda: pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 1, None, 0], pyarrow.uint32()), pyarrow.array(["a", "b" * 20], pyarrow.string_view())
    ),
}


@pytest.mark.skipif(not hasattr(pyarrow, "string_view"), reason="this pyarrow has no views")
@pytest.mark.parametrize("reader", ["frame", "feather", "parquet", "pandas", "polars feather", "polars"])
@pytest.mark.parametrize("kind", VIEWS)
def test_views_of_text_are_text(tmp_path, kind, reader):
    """The Feather files of polars, whose text is of this type, were said to be damaged."""
    made, data = pyarrow.table({"word": VIEWS[kind](), "x": [1, 2, 3, 4]}), tmp_path / "a.feather"
    if reader == "feather":
        pytest.importorskip("pyarrow.feather").write_feather(made, data)
    elif reader == "parquet":
        if kind == "categories":
            pytest.skip("Parquet has no categories of views")
        data = data.with_suffix(".parquet")
        pytest.importorskip("pyarrow.parquet").write_table(made, data)
    elif reader.startswith("polars"):
        frame = pytest.importorskip("polars").from_arrow(made)
        if reader == "polars feather":
            frame.write_ipc(data)
        else:
            data = frame
    else:
        data = made if reader == "frame" else made.to_pandas(types_mapper=pandas.ArrowDtype)
    name = source(data)
    found = read_columns(located(name)).columns["word"].tolist()
    expected = ["a", "b" * 20, None, "a"]
    if kind == "bytes":
        found, expected = found[:3], [b"a", b"b" * 20, None]
    assert found == expected
    if isinstance(name, Frame):
        assert read_columns(Path(store(name, tmp_path))).columns["word"].tolist()[:3] == expected[:3]


@pytest.mark.skipif(not hasattr(pyarrow, "list_view"), reason="this pyarrow has no views")
@pytest.mark.parametrize("reader", ["frame", "feather", "parquet"])
def test_columns_that_share_their_cells_are_one_error(tmp_path, reader):
    runs = pyarrow.RunEndEncodedArray.from_arrays([2, 4], [1.5, 2.5])
    lists = pyarrow.array([[1], [2, 3], None, [4]], pyarrow.list_view(pyarrow.int64()))
    for cells in (runs, lists):
        data = made = pyarrow.table({"odd": cells})
        if reader != "frame":
            data = tmp_path / f"a.{reader}"
            write = pytest.importorskip(f"pyarrow.{reader}")
            try:
                (write.write_feather if reader == "feather" else write.write_table)(made, data)
            except pyarrow.ArrowNotImplementedError:
                continue
        with pytest.raises(
            DataError, match=r"Expected plain numbers, .*, column 'odd', but got (run_end|list_view).*C"
        ):
            Classify(data=data, target="odd").table()


def test_a_column_that_no_parquet_file_holds_is_one_error(tmp_path):
    months = pyarrow.array([pyarrow.MonthDayNano([1, 2, 3])] * 4)
    name = source(pyarrow.table({"span": months, "x": [1, 2, 3, 4]}))
    with pytest.raises(DataError, match=r"Expected a table that a Parquet file can hold.*Leave the column out\."):
        store(name, tmp_path)


@pytest.mark.skipif(not hasattr(pyarrow, "string_view"), reason="this pyarrow has no views")
@pytest.mark.parametrize("nested", [False, True])
def test_views_of_one_text_do_not_fill_the_memory(tmp_path, nested):
    """Sixteen thousand cells share a text of a megabyte."""
    text = b"x" * (1 << 20)
    view = np.zeros(1 << 14, "i4,S4,i4,i4")
    view["f0"], view["f1"] = len(text), text[:4]
    buffers = [None, pyarrow.py_buffer(view.tobytes()), pyarrow.py_buffer(text)]
    cells = pyarrow.Array.from_buffers(pyarrow.string_view(), len(view), buffers)
    if nested:
        cells = pyarrow.StructArray.from_arrays([cells], ["word"])
    path = tmp_path / "a.feather"
    pytest.importorskip("pyarrow.feather").write_feather(pyarrow.table({"word": cells}), path)
    with pytest.raises(DataError, match=r"to become at most \d+ bytes when decompressed, but got \d{11,}"):
        read_columns(path)
