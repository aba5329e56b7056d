"""Predicted classes are of the type of the column that named them."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from orthornn.errors import DataError, OrthornnError
from orthornn.learn.files.data_frames import source
from orthornn.learn.files.label_types import typed_labels
from orthornn.learn.predict import load
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify
from orthornn.learn.training import Run, RunConfig

narwhals = pytest.importorskip("narwhals")
pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

KINDS = np.arange(24) // 2 % 2
DATES = pandas.to_datetime(np.where(KINDS, "2024-01-01", "2023-05-05"))
COLUMNS = {
    "int64": KINDS + 3,
    "int8": (KINDS - 7).astype("int8"),
    "uint64": KINDS.astype("uint64") + np.uint64(2**63),
    "Int64": pandas.array(KINDS + 2**60, dtype="Int64"),
    "float64": KINDS / 10,
    "float32": KINDS.astype("float32") + np.float32(0.1),
    "bool": KINDS > 0,
    "boolean": pandas.array(KINDS > 0, dtype="boolean"),
    "text": np.where(KINDS, "7", "007"),
    "string": pandas.array(np.where(KINDS, "a", "b"), dtype="string"),
    "int32[pyarrow]": pandas.array(KINDS, dtype="int32[pyarrow]"),
    "dates": DATES,
    "dates with a zone": DATES.tz_localize("Europe/Berlin"),
    "days": pandas.Series(DATES).dt.date,
    "months": DATES.to_period("M"),
    "categories": pandas.Categorical(np.where(KINDS, "low", "high"), categories=["never", "low", "high"]),
    "ordered categories": pandas.Categorical(KINDS + 5, ordered=True, categories=[6, 5, 9]),
    "categories of dates": pandas.Categorical(DATES),
}


def frame_of(column):
    x = KINDS + 0.1 * np.random.default_rng(0).standard_normal(24)
    return pandas.DataFrame({"id": np.arange(24) // 2, "x": x, "y": pandas.Series(column)})


def trained(data, folder):
    """Return a network that a run has written, with its tables, and that was read again."""
    task = Classify(data=data, target="y", sequence="id")
    Run(RunConfig(task=task, model=model_named("lstm", hidden_size=2), steps=1, batch_size=4), folder).finish()
    return load(folder)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", COLUMNS)
def test_labels_have_the_type_of_the_column_of_the_classes(name, tmp_path):
    frame = frame_of(COLUMNS[name])
    found = trained(frame, tmp_path / "run").predict_frame(frame.drop(columns="y"))["label"]
    assert found.dtype == frame["y"].dtype
    assert len(found) == 12
    assert found.isin(frame["y"].unique()).all()


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_labels_in_other_libraries(library, tmp_path):
    names = ["int8", "bool", "text", "dates with a zone", "days", "categories"]
    pytest.importorskip(library)
    for name in names:
        frame = narwhals.from_native(frame_of(COLUMNS[name]))
        native = narwhals.from_arrow(frame.to_arrow(), backend=library)
        found = narwhals.from_native(trained(native.to_native(), tmp_path / name).predict_frame(native.to_native()))
        wanted = native["y"].dtype
        assert found["label"].dtype == (narwhals.String if name == "categories" and library == "pyarrow" else wanted)
        assert set(found["label"].to_list()) <= set(native["y"].to_list())


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather", ".npz"])
def test_labels_of_a_file(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    frame = frame_of(COLUMNS["int64"])
    if suffix == ".npz":
        np.savez(path, **{name: frame[name].to_numpy() for name in frame})
    else:
        getattr(frame, f"to_{suffix[1:]}")(path, **({} if suffix == ".feather" else {"index": False}))
    network = trained(str(path), tmp_path / "run")
    assert network.predict_frame(path)["label"].dtype == "int64"
    assert network.tables.predict(path)[0][1].labels[0] in ("3", "4")


def test_a_category_is_read_from_its_file(tmp_path):
    for suffix in ("parquet", "feather"):
        frame, path = frame_of(COLUMNS["categories"]), tmp_path / f"table.{suffix}"
        getattr(frame, f"to_{suffix}")(path)
        found = trained(str(path), tmp_path / suffix).predict_frame(path)["label"]
        assert found.dtype == frame["y"].dtype


def test_classes_that_are_not_all_of_the_type_are_text():
    own, other = frame_of(KINDS), frame_of(np.where(KINDS, "1", "one"))
    assert "label_type" not in Classify(data=own, test_data=other, target="y", sequence="id").problem().schema
    spans = frame_of(pandas.to_timedelta(KINDS, "D"))  # seconds are their labels
    assert "label_type" not in Classify(data=source(spans), target="y", sequence="id").problem().schema


def test_a_type_that_was_changed_is_refused(tmp_path):
    for wrong in ({"type": "int64"}, {"type": "timestamp[us, tz=No/Where]"}, {"type": "list"}):
        with pytest.raises(DataError, match=r"label_type in description\.json to be a type of the labels, but got"):
            typed_labels(narwhals, ["a"], wrong, "pandas")
    assert typed_labels(narwhals, ["2020-01-31"], {"type": "date32[day]"}, "pandas").to_list() == [
        datetime.date(2020, 1, 31)
    ]
    trained(frame_of(KINDS), tmp_path / "run")
    file = tmp_path / "run" / "description.json"
    content = {name: entry for name, entry in json.loads(file.read_text()).items() if name != "sha256"}
    assert content["label_type"] == {"type": "int64"}
    file.write_text(json.dumps({**content, "label_type": {"type": "int64", "dtype": "object"}}))
    with pytest.raises(OrthornnError, match="label_type"):
        load(tmp_path / "run")
