"""Which rows are for training, validation and test, and what a missing value or a category becomes."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
import torch

import orthornn
from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.tasks.table_sequences import sequences_of
from orthornn.learn.tasks.table_source import read_source
from orthornn.learn.training import RunConfig, train
from support.run_cases import entries

SEQUENCES, STEPS = 20, 6


def write(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def each(values):
    return np.repeat(np.asarray(values), STEPS)


@pytest.fixture
def columns():
    numbers = np.arange(SEQUENCES)
    random = np.random.default_rng(2)
    return {
        "id": each(numbers),
        "subject": each(numbers // 2),
        "label": each(np.where(numbers % 5 == 0, "rare", "common")),
        "part": each(np.where(numbers < 12, "Training", np.where(numbers < 15, "val", "test"))),
        "x": random.standard_normal(SEQUENCES * STEPS).round(3),
    }


def members(task, name="id"):
    """Which sequences, by a column, are in which part."""
    order = task.table().sequences.order
    values = task.table().source.table.columns[name][order]
    return {part: {values[at] for at, _ in pieces} for part, pieces in task.table().split.pieces.items()}


def test_a_column_names_the_parts(tmp_path, columns):
    task = Classify(data=write(tmp_path / "a.csv", **columns), target="label", split="part", inputs="x", sequence="id")
    assert members(task) == {"train": set(range(12)), "validation": {12, 13, 14}, "test": set(range(15, 20))}
    assert "by column part" in " ".join(task.summary_lines())
    columns["part"] = np.where(columns["part"] == "val", "Training", columns["part"])
    found = members(Classify(data=write(tmp_path / "b.csv", **columns), target="label", split="part", sequence="id"))
    assert found["test"] == set(range(15, 20))
    assert found["train"] | found["validation"] == set(range(15))
    assert len(found["validation"]) == 2
    columns["part"][3] = "later"
    with pytest.raises(DataError, match=r"train, validation or test .* 'part', but got 'later' in row 4"):
        Classify(data=write(tmp_path / "c.csv", **columns), target="label", split="part", sequence="id").table()
    columns["part"] = each(["train"] * SEQUENCES)
    with pytest.raises(DataError, match="rows for the test"):
        Classify(data=write(tmp_path / "d.csv", **columns), target="label", split="part", sequence="id").table()


def test_a_group_is_in_one_part_alone(tmp_path, columns):
    path = write(tmp_path / "a.csv", **columns)
    for seed in range(5):
        task = Classify(data=path, target="label", group="subject", sequence="id", inputs="x", split_seed=seed)
        parts = list(members(task, "subject").values())
        assert sum(map(len, parts)) == len(set.union(*parts)) == 10
        assert task.summary_lines()[2].endswith(" (by group subject)")  # and not by class
    assert "subject" not in Classify(data=path, target="label", group="subject", sequence="id").table().roles.inputs
    columns["subject"][1] = 99
    with pytest.raises(DataError, match="A group is made of whole sequences"):
        Classify(data=write(tmp_path / "b.csv", **columns), target="label", group="subject", sequence="id").table()


def test_a_group_that_a_column_of_parts_tears_is_an_error(tmp_path, columns):
    of_sequence = np.array(["train", "test"])[np.arange(SEQUENCES) % 2]
    columns["part"] = np.repeat(of_sequence, len(columns["subject"]) // SEQUENCES).tolist()
    columns["subject"] = [int(number) % 2 for number in columns["id"]]
    task = {"target": "label", "group": "subject", "sequence": "id", "inputs": "x", "split": "part"}
    with pytest.raises(DataError, match="at least 2 group"):  # all of the training part is one
        Classify(data=write(tmp_path / "a.csv", **columns), **task).table()
    columns["subject"] = [int(number) % 4 for number in columns["id"]]
    parts = members(Classify(data=write(tmp_path / "b.csv", **columns), **task), "subject")
    assert parts["test"] == {1, 3}
    assert sorted(parts["train"] | parts["validation"]) == [0, 2]
    columns["subject"] = [int(number) % 5 for number in columns["id"]]
    with pytest.raises(
        DataError, match=r"in the column 'subject' in one part, but some are for .* and some for the test"
    ):
        Classify(data=write(tmp_path / "c.csv", **columns), **task).table()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"split_seed": 1}, "split_seed, --split-seed, to be 0 where the parts are named, but got 1"),
        ({"test_share": 0.2}, "test_share, --test-share, to be 0.15 where the part is named, but got 0.2"),
        ({"validation_share": 0.2}, "validation_share, .* to be 0.15 where the part is named, but got 0.2"),
    ],
)
def test_options_of_the_division_are_refused_where_they_change_nothing(tmp_path, columns, option, message):
    of_sequence = np.array(["train", "validation", "test"])[np.arange(SEQUENCES) % 3]
    columns["part"] = np.repeat(of_sequence, len(columns["id"]) // SEQUENCES).tolist()
    task = {"data": write(tmp_path / "a.csv", **columns), "target": "label", "sequence": "id", "inputs": "x"}
    Classify(**task, **option).table()
    with pytest.raises(ArgumentError, match=message):
        Classify(**task, split="part", **option).table()


@pytest.mark.parametrize("kind", [Classify, Regress])
def test_sequences_of_one_answer_each_are_not_divided_by_time(kind, tmp_path, columns):
    """The option was ignored, and whole sequences were divided."""
    task = {"data": write(tmp_path / "a.csv", **columns), "sequence": "id", "inputs": "x"}
    task["target"] = "label" if kind is Classify else "x"
    with pytest.raises(ArgumentError, match=r"split_by, --split-by, to be sequences .* but got time.*--every-step\.$"):
        kind(**task, split_by="time").table()
    assert kind(**task, split_by="time", every_step=True, window=2).table().split.pieces["test"]
    with pytest.raises(ArgumentError, match=r"but got 12 for whole sequences\. Leave it out\.$"):
        kind(**task, window=12).table()


def test_a_division_by_time_has_no_seed(tmp_path, columns):
    path = write(tmp_path / "a.csv", x=list(range(300)), y=list(range(300)))
    with pytest.raises(ArgumentError, match="where sequences are divided by time, without chance, but got 3"):
        Regress(data=path, target="y", every_step=True, split_seed=3).table()
    parts = Regress(data=path, target="y", every_step=True, test_share=0.4).table().split.pieces
    assert parts["test"][0][0] == 180


def test_the_parts_have_the_same_shares_of_the_classes(tmp_path, columns):
    path = write(tmp_path / "a.csv", **columns)
    for seed in range(5):
        task = Classify(data=path, target="label", sequence="id", inputs="x", split_seed=seed, test_share=0.25)
        parts = members(task)
        assert [len(part) for part in parts.values()] == [12, 3, 5]
        assert sum(number % 5 == 0 for number in parts["test"]) in (1, 2)
        assert set.union(*parts.values()) == set(range(SEQUENCES))
    tasks = [Classify(data=path, target="label", sequence="id", split_seed=seed) for seed in range(5)]
    seen = {tuple(sorted(members(task)["test"])) for task in tasks}
    assert len(seen) > 1


@pytest.mark.parametrize("suffix", ["csv", "ts"])
def test_files_of_their_own_for_the_parts(tmp_path, columns, suffix):
    if suffix == "csv":
        first, second = (write(tmp_path / f"{n}.csv", **columns) for n in "ab")
        task = Classify(data=first, test_data=second, target="label", sequence="id", inputs="x")
    else:
        head = "@classLabel true a b\n@data\n"
        for name in ("a.ts", "b.ts"):
            (tmp_path / name).write_text(head + "".join(f"{n},2,3:{'ab'[n % 2]}\n" for n in range(SEQUENCES)))
        task = Classify(data=str(tmp_path / "a.ts"), test_data=str(tmp_path / "b.ts"), target="y")
    assert {part: len(pieces) for part, pieces in task.table().split.pieces.items()} == {
        "train": 17,
        "validation": 3,
        "test": 20,
    }
    assert set(task.files()) == {f"a.{suffix}", f"b.{suffix}"}
    with pytest.raises(DataError, match="Expected the columns of"):
        Classify(data=task.data, test_data=write(tmp_path / "c.csv", z=[1]), target="label").table()


def test_every_series_is_divided_by_time(tmp_path):
    time = np.tile(np.arange(60), 4)
    path = write(
        tmp_path / "a.csv", id=np.repeat(np.arange(4), 60), t=time, value=np.sin(time) + np.repeat(range(4), 60)
    )
    task = Forecast(data=path, target="value", sequence="id", time="t", split_by="time", window=20, skipped=2)
    rows = {part: task.table().data.parts[part].rows for part in ("train", "validation", "test")}
    assert set(rows["train"] % 60) <= set(range(42))
    for part, first, last in (("validation", 42, 51), ("test", 51, 60)):
        # before the first: two steps that are skipped, and the one whose forecast is the first
        assert set(rows[part] % 60) <= set(range(first - 3, last))
        assert {row // 60 for row in rows[part]} == set(range(4))
    assert Forecast(data=path, target="value", sequence="id").table().split.whole


def test_a_series_whose_column_names_the_parts(tmp_path):
    part = ["train"] * 60 + ["valid"] * 20 + ["test"] * 20
    path = write(tmp_path / "a.csv", value=np.arange(100), part=part)
    task = Forecast(data=path, target="value", split="part", window=10, skipped=1)
    # before the first of a part: a step that is skipped, and the one whose forecast is the first
    assert [set(task.table().data.parts[name].rows) <= set(range(*span)) for name, span in
            (("train", (0, 60)), ("validation", (58, 80)), ("test", (78, 100)))] == [True] * 3  # fmt: skip


@pytest.mark.parametrize("steps", [20, 30, 31, 37, 59, 140])
def test_every_step_that_can_have_a_loss_has_one(tmp_path, steps):
    part = np.repeat(["train", "validation", "test"], steps)
    path = write(tmp_path / "series.csv", value=np.sin(np.arange(len(part))), part=part)
    task = Forecast(data=path, target="value", inputs="value", split="part", window=30, skipped=3)
    for name in ("train", "validation", "test"):
        rows = np.flatnonzero(part == name)
        seen = np.concatenate([np.arange(at + 4, at + size) for at, size in task.table().split.pieces[name]])
        assert set(seen) == set(rows[4:] if name == "train" else rows)
        assert name == "train" or len(seen) == len(set(seen))


GAPS = {
    "id": np.repeat(range(9), 4),
    "x": ["", 1, "", 3, 5, "", "", 8, 9, 9, 9, 9] * 3,
    "y": np.repeat(range(9), 4) / 7,
}


@pytest.mark.parametrize(
    ("mode", "filled"),
    [
        ("indicator", [None, 1, 1, 3, 5, 5, 5, 8, 9, 9, 9, 9]),
        ("interpolate", [1, 1, 2, 3, 5, 6, 7, 8, 9, 9, 9, 9]),
    ],
)
def test_missing_values_are_filled_in_within_their_sequence(tmp_path, mode, filled):
    task = Regress(data=write(tmp_path / "a.csv", **GAPS), target="y", sequence="id", missing=f"x={mode}")
    features = task.table().data.features
    known = task.table().source.table.columns["x"][task.table().split.training_rows]
    mean = known[~np.isnan(known)].mean()
    np.testing.assert_allclose(features[:, 0], [mean if value is None else value for value in filled * 3])
    assert task.table().data.observed.all()
    gone = np.isnan(task.table().source.table.columns["x"])
    if mode == "indicator" and gone[task.table().split.training_rows].any():
        assert features[:, 1].tolist() == gone.astype(float).tolist()
        assert task.problem().schema["columns"] == ["x", "x is missing"]
    assert f"in x ({mode})" in " ".join(task.summary_lines())


def test_a_sequence_with_a_missing_value_is_left_out(tmp_path, columns):
    columns["x"] = columns["x"].astype(object)
    columns["x"][[0, 40]] = ""
    task = Classify(
        data=write(tmp_path / "a.csv", **columns), target="label", sequence="id", missing="skip", inputs="x"
    )
    assert (~task.table().data.observed).sum() == 2 * STEPS
    assert sum(len(part.pieces) for part in task.table().data.parts.values()) == SEQUENCES - 2


def test_ways_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="Expected missing to be"):
        Regress(missing="x=forget")
    with pytest.raises(ArgumentError, match="does not look ahead"):
        Forecast(missing="interpolate")
    with pytest.raises(ArgumentError, match="different marks"):
        Regress(decimal=",", thousands=",")
    with pytest.raises(ArgumentError, match="one character"):
        Regress(separator="ab")


def test_categories_travel_with_the_run(tmp_path, columns):
    """Trained, saved, loaded, and used on a file with a value that training did not have."""
    colors = np.where(columns["label"] == "rare", "red", "blue")
    path = write(tmp_path / "a.csv", **{**columns, "color": colors})
    with pytest.warns(OrthornnWarning, match=r"does not see .*color \(text\)"):
        Classify(data=path, target="label", sequence="id").table()
    task = Classify(data=path, target="label", sequence="id", inputs="x,color", categories="color")
    assert task.problem().schema["input_size"] == 3
    assert task.problem().schema["columns"] == ["x", "color=blue", "color=red"]
    config = RunConfig(task=task, model=model_named("lstm", hidden_size=3), steps=2, batch_size=4)
    result = train(config, tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    test = [task.table().sequences.names[at // STEPS] for at, _ in task.table().split.pieces["test"]]
    found = {one.name: said for one, said in loaded.tables.predict(path)}
    with torch.no_grad():
        wanted = result.model.eval()(next(task.problem().test(100)).inputs).softmax(-1).numpy()
    np.testing.assert_allclose(np.concatenate([found[name].scores for name in test]), wanted, atol=1e-5)
    new = write(tmp_path / "new.csv", **{**columns, "color": np.where(colors == "red", "green", colors)})
    with pytest.warns(OrthornnWarning, match="'color': green was not in the training data"):
        loaded.tables.predict(new)
    description = tmp_path / "run" / "description.json"
    damaged = entries(description)
    damaged["channels"][1][2] = 7
    description.write_text(json.dumps(damaged))
    with pytest.raises(Exception, match="no fitting value for the kind category"):
        orthornn.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (["2024-01-01T00:00Z", "2024-01-01T00:30Z", "2024-01-01T01:00Z", "2024-01-01T01:30Z"], "every 30 min, without"),
        (["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06"], "every 1 d, with 5 gap.*: 2 after '2024-01-02'"),
        (["2024-01-31T00:00:00.5", "2024-02-01", "2024-02-07", "2024-02-09"], "irregular"),
        (["2024-01", "2024-02", "2024-04", "2024-05"], "every month, with 5 gap"),
        (["1970 Q1", "1970 Q2", "1970 Q3", "1970 Q4"], "every 3 months, without gaps"),
        ([1, 2, 2, 3], "5 times are those of the step before"),
        ([0.5, 1, 1.5, 2], "every 0.5, without gaps"),
        ([0.1 * i for i in (5, 6, 7, 8)], "every 0.1, without gaps"),
        ([1.7e9 + i / 30 for i in range(4)], "every 0.0333333, without gaps"),
        ([0.1 * i for i in (5, 6, 9, 10)], "every 0.1, with 5 gap.*: 2 after '?0.6"),
        (["0.033", "0.067", "0.1", "0.133"], "every about 0.033.*, without gaps"),
        ([33, 67, 100, 133], "every about 33.3333, without gaps"),
        ([1, 2, 4, 5], "every 1, with 5 gap"),
        ([0.1, 0.2, 0.33, 0.4], "irregular, 0.07 to 0.13"),
        ([20200131, 20200201, 20200202, 20200203], "every 1 d, without gaps"),
        ([20200131, 20200201, 20200204, 20200205], "every 1 d, with 5 gap.*: 2 after '?20200201"),
        ([202011, 202012, 202101, 202102], "every month, without gaps"),
        ([20201231235900, 20210101000000, 20210101000100, 20210101000200], "every 1 min, without"),
        ([20200131, 20200201, 20200230, 20200231], "irregular, 1 to 70"),  # no days
        (["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"], "every month, without gaps"),
        (["2024-01-31", "2024-02-29", "2024-04-30", "2024-05-31"], "every month, with 5 gap"),
        (
            ["2023-12-29", "2024-01-31", "2024-02-29", "2024-03-29"],
            "every month, without gaps",
        ),  # the last working days
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"], "every working day, without gaps"),
        (["2024-01-05", "2024-01-08", "2024-01-10", "2024-01-11"], "every working day, with 5 gap.*: 1 after"),
        (["2024-03-29T23:00Z", "2024-03-30T23:00Z", "2024-03-31T22:00Z", "2024-04-01T22:00Z"], "every 1 d, without"),
    ],
)
@pytest.mark.parametrize("reader", ["csv", "frame", "text"])
def test_the_grid_of_the_times_and_its_gaps(tmp_path, times, said, reader):
    path = write(tmp_path / "a.csv", id=np.repeat(range(5), 4), t=times * 5, x=range(20), y=np.repeat(range(5), 4))
    if reader != "csv":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        path = pandas.read_csv(path, dtype={"t": str} if reader == "text" else None)
    task = Regress(data=path, target="y", sequence="id", time="t")
    assert re.search(f"^t: {said}", "\n".join(task.summary_lines()), re.M), task.summary_lines()


@pytest.mark.parametrize("sequence", ["id", None])
@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            [1, 3, 2, 3],
            "column 't': 5 row.* the first in row 4, line 5.*; they are in the order of the table. If they are of several",
        ),
        (
            ["2024-01-01"] * 4,
            "15 row.* row 2, line 3 .* No sequence has two times, so that the column gives .* no order",
        ),
        ([2, 4, 1, 3], None),
    ],
)
def test_equal_times_within_a_sequence_are_named(tmp_path, times, message, sequence):
    times = times * 5 if sequence else [time for time in times for _ in range(5)]
    path = write(tmp_path / "a.csv", id=np.repeat(range(5), 4), t=times, x=range(20), y=np.repeat(range(5), 4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task = Regress(data=path, target="y", sequence=sequence, time="t", inputs="x")
        order = sequences_of(task, *read_source(task)).order
    told = [str(one.message) for one in caught if "the time of the step before" in str(one.message)]
    assert order.tolist() == sorted(range(20), key=lambda row: (row // 4 if sequence else 0, times[row], row))
    assert len(told) == (message is not None or sequence is None)
    if sequence and message:
        assert re.search(message, told[0])
        assert "name the column of these with sequence" in told[0]


def test_both_of_two_series_to_forecast_are_divided_by_time(tmp_path):
    path = write(tmp_path / "a.csv", id=np.repeat(["u", "v"], 60), value=np.sin(np.arange(120) / 5), x=np.arange(120))
    task = Forecast(data=path, target="value", sequence="id", skipped=4, window=12)
    assert task.table().data.rows.lengths.tolist() == [60, 60]
    parts = {part: [at for at, _ in pieces] for part, pieces in task.table().split.pieces.items()}
    assert all(min(own) < 60 <= max(own) for own in parts.values())
    with pytest.raises(DataError, match="at least 3 sequence"):
        next(Regress(data=path, target="value", sequence="id").problem().test(1))
    with pytest.raises(DataError, match="at least 3 sequence"):
        next(Forecast(data=path, target="value", sequence="id", split_by="sequences", skipped=4).problem().test(1))


def test_a_window_of_whole_sequences_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", id=np.repeat(np.arange(6), 40), value=np.sin(np.arange(240) / 5))
    whole = {"data": path, "target": "value", "sequence": "id", "skipped": 4}
    with pytest.raises(ArgumentError, match=r"window, --window, only where sequences are divided by time, but got 12"):
        next(Forecast(**whole, window=12).problem().test(1))
    for window in (None, 100):  # 100 is what runs from before it could be None have
        assert {steps for _, steps in Forecast(**whole, window=window).table().split.pieces["train"]} == {40}
    assert {steps for _, steps in Forecast(**whole, window=12, split_by="time").table().split.pieces["train"]} == {12}


@pytest.mark.parametrize(("skipped", "window"), [(16, 100), (33, 100), (34, 102), (49, 147)])
def test_a_window_has_room_for_the_steps_that_a_forecast_skips(tmp_path, skipped, window):
    task = Forecast(data=write(tmp_path / "a.csv", value=np.sin(np.arange(900) / 5)), target="value", skipped=skipped)
    assert {steps for _, steps in task.table().split.pieces["train"]} == {window}


@pytest.mark.parametrize("edge", [210, 255])
def test_interpolation_does_not_look_into_a_later_part(tmp_path, edge):
    """A gap at the end of the training part was filled from the values behind it, by which inputs are then scaled."""
    rows, found = np.arange(300), []
    for far in (0, 10**6):
        x = np.where(rows >= edge, far, 0) + np.sin(rows / 5)
        columns = {"t": rows, "x": np.where((rows > edge - 8) & (rows < edge + 3), np.nan, x), "y": np.cos(rows / 5)}
        path = write(tmp_path / f"{far}.csv", **{name: ["" if v != v else v for v in c] for name, c in columns.items()})
        task = Regress(data=path, target="y", time="t", every_step=True, missing="interpolate")
        assert task.table().data.observed.all()
        found.append((task, task.table().data.features[:edge, 0]))
    assert [at for _, at, _ in task.table().split.stretches] == [0, 210, 255]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    np.testing.assert_array_equal(*(task.table().data.mean for task, _ in found))
    np.testing.assert_allclose(found[0][1][edge - 7 :], np.sin((edge - 8) / 5))  # the last value before the gap


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_part_without_a_share_is_an_error(tmp_path, columns, part):
    """It got one sequence, and the metric of that was reported."""
    path, options = write(tmp_path / "a.csv", **columns), {f"{part}_share": 0.0}
    with pytest.raises(ArgumentError, match=f"Expected {part}_share, --{part}-share, above 0, .* but got 0"):
        Classify(data=path, target="label", sequence="id", **options).table()
    with pytest.raises(ArgumentError, match=f"Expected {part}_share"):
        _ = (
            Regress(data=path, target="x", inputs="x", sequence="id", every_step=True, split_by="time", **options)
            .table()
            .split.pieces
        )
    said = Classify(data=path, target="label", sequence="id", split="part", **options)
    assert set(said.table().split.pieces) == {"train", "validation", "test"}
    own = {f"{part}_data": write(tmp_path / "b.csv", **columns)}
    assert (
        len(Classify(data=path, target="label", sequence="id", **own, **options).table().split.pieces[part])
        == SEQUENCES
    )


def test_what_is_too_short_or_too_few_is_named(tmp_path, columns):
    columns["subject"] = each(np.arange(SEQUENCES) % 2)
    path = write(tmp_path / "a.csv", **columns)
    with pytest.raises(
        DataError, match=r"3 group\(s\) in the column 'subject', .* holds 2\. Name a column of more groups"
    ):
        Classify(data=path, target="label", sequence="id", group="subject").table()
    rows = [at for at in range(SEQUENCES * STEPS) if not 4 * STEPS < at < 5 * STEPS]
    path = write(tmp_path / "b.csv", **{name: [values[at] for at in rows] for name, values in columns.items()})
    with pytest.raises(
        DataError, match=r"at least 3 steps to divide .* but got 1 of '4' in .*b\.csv\. Leave that sequence out"
    ):
        _ = (
            Regress(data=path, target="x", inputs="x", sequence="id", every_step=True, split_by="time")
            .table()
            .split.pieces
        )


def test_a_meaning_of_missing_values_is_for_a_column_that_is_read(tmp_path, columns):
    path = write(tmp_path / "a.csv", **columns, other=columns["x"])
    options = {"data": path, "target": "x", "sequence": "id", "inputs": "other"}
    with pytest.raises(
        ArgumentError, match="to name inputs or the target, but got 'subject', which the network does not"
    ):
        Regress(missing="subject=hold", **options).table()
    assert Regress(missing="x=hold,other=indicator", **options).table().data.channels
