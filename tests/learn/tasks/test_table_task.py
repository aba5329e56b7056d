from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.tasks.abilities import baselines
from orthornn.learn.tasks.table_sequences import sequences_of
from orthornn.learn.tasks.table_source import read_source
from orthornn.learn.tasks.task_choice import choose_task

RANDOM = np.random.default_rng(5)
SEQUENCES = 20


def write(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def labeled(path, extra=lambda label, steps: {}):
    """Sequences of 3 to 6 steps, the label tells the mean of x; y is their number."""
    columns: dict[str, list] = {"id": [], "x": [], "z": [], "label": [], "y": []}
    for number in range(SEQUENCES):
        steps, label = 3 + number % 4, "abc"[number % 3]
        columns["id"] += [f"s{number}"] * steps
        columns["x"] += (10 * (number % 3) + RANDOM.random(steps)).tolist()
        columns["z"] += [number] * steps
        columns["label"] += [label] * steps
        columns["y"] += [number + 0.5] * steps
    return write(path, **columns)


@pytest.fixture
def sequences(tmp_path):
    return labeled(tmp_path / "data.csv")


@pytest.fixture
def series(tmp_path):
    return write(tmp_path / "series.csv", value=np.arange(200.0) + 1000)


def all_batches(task):
    return {
        "train": [task.problem().train(step, 1, 0) for step in range(task.steps_per_epoch(1))],
        "validation": list(task.problem().validation(1)),
        "test": list(task.problem().test(1)),
    }


def test_whole_sequences_are_in_one_part_alone(sequences):
    task = Classify(data=sequences, target="label", sequence="id", inputs="x,z")
    schema = task.problem().schema
    assert (schema["input_size"], schema["output_size"], task.table().classes) == (2, 3, ["a", "b", "c"])
    parts = all_batches(task)
    assert [len(part) for part in parts.values()] == [14, 3, 3]
    mean, deviation = task.table().data.mean, task.table().data.deviation
    numbers = {}
    for part, batches in parts.items():
        for inputs, targets in batches:
            (number,) = set((inputs[:, 0, 1] * deviation[1] + mean[1]).round().int().tolist())
            numbers.setdefault(part, set()).add(number)
            assert len(inputs) == 3 + number % 4
            assert targets.tolist() == [number % 3]
    assert set.union(*numbers.values()) == set(range(SEQUENCES))
    assert sum(map(len, numbers.values())) == SEQUENCES
    other = Classify(data=sequences, target="label", sequence="id", inputs="x,z", split_seed=1)
    assert other.table().data.parts["test"].rows.tolist() != task.table().data.parts["test"].rows.tolist()


def test_only_the_training_part_sets_the_scale(sequences):
    task = Regress(data=sequences, target="y", sequence="id")
    parts = all_batches(task)
    train = torch.cat([batch.inputs[:, 0] for batch in parts["train"]])
    # float32 sums over about 60 rows of size 1
    torch.testing.assert_close(train.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    targets = torch.cat([batch.targets for batch in parts["train"]])
    torch.testing.assert_close(targets.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert task.objective().trivial_loss == pytest.approx(1, rel=1e-6)
    objective = task.objective()
    assert float(objective.loss(torch.zeros_like(targets), targets)) == pytest.approx(objective.trivial_loss, rel=1e-5)
    in_training = [
        n + 0.5 for n in range(SEQUENCES) if n in task.table().data.features[task.table().data.parts["train"].rows, 1]
    ]
    assert sorted(task.objective().in_units(targets).flatten().round(decimals=3).tolist()) == in_training


def test_the_errors_own_units(sequences):
    task = Regress(data=sequences, target="y", sequence="id")
    batch = next(task.problem().test(3))
    mse = task.objective().metrics(torch.zeros(3, 1), batch.targets)["mse"]
    expected = (task.objective().in_units(torch.zeros(3, 1)) - task.objective().in_units(batch.targets)).square()
    assert mse == (pytest.approx(float(expected.sum()), rel=1e-5), 3)


def test_class_weights_and_an_ignored_label(sequences):
    options = {"data": sequences, "target": "label", "sequence": "id", "inputs": "x"}
    weighted = Classify(**options, class_weights="a=2, c=0.5")
    prediction, targets = torch.randn(4, 3), torch.tensor([0, 1, 2, 2])
    nll = torch.nn.functional.cross_entropy(prediction, targets, reduction="none")
    weight = torch.tensor([2, 1, 0.5, 0.5])
    assert float(weighted.objective().loss(prediction, targets)) == pytest.approx(
        float((nll * weight).sum() / 4), rel=1e-5
    )
    total, mass = weighted.objective().metrics(prediction, targets)["loss"]
    assert total / mass == pytest.approx(float(weighted.objective().loss(prediction, targets)), rel=1e-5)
    balanced = Classify(**options, class_weights="balanced")
    assert balanced.objective().trivial_loss == pytest.approx(math.log(3), rel=1e-6)
    ignoring = Classify(**options, ignore="b")
    assert ignoring.table().classes == ["a", "c"]
    assert all(int(batch.targets) in (0, 1) for part in all_batches(ignoring).values() for batch in part)
    for text in ("a=x", "q=1", "a=-1", "half", "a=1e39", "a=1e-39", "a=2,a=5"):
        with pytest.raises(ArgumentError, match=r"class[ _]weight"):
            Classify(**options, class_weights=text).objective().trivial_loss  # noqa: B018


def test_an_ignored_step_enters_neither_loss_nor_accuracy(tmp_path):
    path = write(tmp_path / "d.csv", id=[n // 5 for n in range(30)], x=range(30), y=[n % 3 for n in range(30)])
    task = Classify(data=path, target="y", sequence="id", every_step=True, ignore="2")
    batch = task.problem().train(0, 2, 0)
    assert batch.targets.shape == (5, 2)
    prediction = torch.randn(5, 2, 2)
    kept = batch.targets != -100
    assert 0 < int(kept.sum()) < 10
    expected = torch.nn.functional.cross_entropy(prediction[kept], batch.targets[kept])
    assert float(task.objective().loss(prediction, batch.targets)) == pytest.approx(float(expected), rel=1e-5)
    assert task.objective().metrics(prediction, batch.targets)["accuracy"][1] == int(kept.sum())


def test_frequencies_have_the_trivial_loss(sequences):
    task = Classify(data=sequences, target="label", sequence="id")
    targets = torch.cat([batch.targets for batch in all_batches(task)["train"]])
    frequencies = torch.bincount(targets).double() / len(targets)
    loss = task.objective().loss(frequencies.log().expand(len(targets), 3), targets)
    assert float(loss) == pytest.approx(task.objective().trivial_loss)
    assert task.objective().trivial_metric == float(frequencies.max())


@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize("skipped", [0, 3])
@pytest.mark.parametrize("history", [False, True])
def test_a_series_is_divided_by_time_and_every_test_step_is_foreseen_once(series, ahead, skipped, history):
    task = Forecast(data=series, target="value", ahead=ahead, skipped=skipped, window=20, history=history)
    mean, deviation = task.table().data.mean, task.table().data.deviation
    own_mean, own_deviation = task.table().data.targets.mean, task.table().data.targets.deviation
    seen = {}
    for part, batches in all_batches(task).items():
        for inputs, targets in batches:
            now = (inputs[:, 0, 0].double() * deviation[0] + mean[0]).round() - 1000
            wanted = (targets[:, 0, 0].double() * own_deviation[0] + own_mean[0]).round() - 1000
            counted = ~wanted.isnan()
            assert counted.tolist() == [step >= skipped for step in range(len(now))]
            assert torch.equal(wanted[counted], now[counted] + ahead)
            seen.setdefault(part, []).extend(wanted[counted].int().tolist())
    before = 0 if history else skipped + ahead  # the steps before a part are known when it is foreseen
    assert sorted(seen["validation"]) == list(range(140 + before, 170))
    assert sorted(seen["test"]) == list(range(170 + before, 200))
    assert set(seen["train"]) <= set(range(140))
    assert mean[0] == pytest.approx(1000 + 139 / 2)


def test_baselines_of_a_line_that_rises(series):
    task = Forecast(data=series, target="value", ahead=4, skipped=3, window=20, history=False)
    answers = baselines(task)
    deviation = task.table().data.targets.deviation[0]
    assert answers["persistence"] == pytest.approx((4 / deviation) ** 2, rel=1e-4)
    assert answers["linear autoregression of order 3"] == pytest.approx(0, abs=1e-6)
    test = [step - task.table().data.targets.mean[0] + 1000 for step in range(177, 200)]
    expected = np.mean(np.square(test)) / deviation**2
    # the mean answered is that of the counted training targets, the first seven steps are in none
    assert answers["mean of the training targets"] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("with_mask", [False, True])
def test_missing_steps_hold_the_state(tmp_path, with_mask):
    value = np.sin(np.arange(300) / 5)
    gone = RANDOM.random(300) < 0.3
    columns = {"value": np.where(gone, 99.0, value) if with_mask else ["" if g else v for g, v in zip(gone, value)]}
    if with_mask:
        columns |= {"seen": (~gone).astype(int)}
    path = write(tmp_path / "gaps.csv", **columns)
    options = {"mask": "seen", "inputs": "value"} if with_mask else {"missing": "hold"}
    task = Forecast(data=path, target="value", ahead=1, skipped=4, window=30, **options)
    part = task.table().data.parts["train"]
    assert not gone[part.rows].any()
    batch = task.problem().train(0, 5, 0)
    assert isinstance(batch.inputs, PackedSequence)
    mean, deviation = task.table().data.mean, task.table().data.deviation
    padded, lengths = pad_packed_sequence(batch.inputs)
    for column, length in enumerate(lengths.tolist()):
        back = padded[:length, column, 0].double().numpy() * deviation[0] + mean[0]
        # each is one of the observed values; float32, standardized and back
        assert np.abs(back[:, None] - value[~gone]).min(1).max() < 1e-6
    if not with_mask:
        assert all(not gone[row + 1] for row in part.rows[part.counted])
        with pytest.raises(
            DataError, match=r"column\(s\) value, but got \[nan\] in row .* missing='hold', --missing hold"
        ):
            Forecast(data=path, target="value", skipped=4, window=30).objective().trivial_loss  # noqa: B018
        assert all(math.isfinite(loss) for loss in baselines(task).values())


def test_steps_are_put_in_order_by_time_and_sequences_need_not_be_together(tmp_path):
    when = RANDOM.permutation(40)
    path = write(tmp_path / "d.csv", when=when, id=when % 4, x=when + 0.25, y=(when % 4) + 0.5)
    task = Regress(data=path, target="y", sequence="id", time="when")
    assert task.table().roles.inputs == ["x"]
    assert task.table().data.features[:, 0].tolist() == [n + 0.25 for i in range(4) for n in range(i, 40, 4)]


ARRAYS = {"x": RANDOM.random((9, 6, 2)), "y": np.arange(9) % 2, "lengths": np.array([6, 5, 4, 3, 2, 1, 6, 6, 6])}


def test_arrays_are_the_same_table(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS)
    task = Classify(data=str(tmp_path / "a.npz"), target="y")
    assert task.table().roles.inputs == ["x0", "x1"]
    assert task.table().data.rows.lengths.tolist() == ARRAYS["lengths"].tolist()
    np.testing.assert_array_equal(
        task.table().data.features, np.concatenate([x[:n] for x, n in zip(ARRAYS["x"], ARRAYS["lengths"])])
    )
    np.save(tmp_path / "a.npy", ARRAYS["x"])
    forecast = Forecast(data=str(tmp_path / "a.npy"), target="x1", skipped=1)
    assert forecast.table().data.rows.lengths.tolist() == [6] * 9
    np.savez(tmp_path / "flat.npz", x=np.arange(50.0), label=np.arange(50) % 2)
    assert Forecast(data=str(tmp_path / "flat.npz"), target="x", window=20, skipped=2).table().roles.inputs == [
        "x",
        "label",
    ]


def test_parquet_is_the_same_table(tmp_path, sequences):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    table = csv.read_csv(sequences)
    parquet.write_table(table, tmp_path / "data.parquet")
    first, second = (
        Classify(data=str(path), target="label", sequence="id") for path in (sequences, tmp_path / "data.parquet")
    )
    both = [(data.features, data.targets.values, data.observed) for data in (first.table().data, second.table().data)]
    for one, other in zip(*both):
        np.testing.assert_array_equal(one, other)
    gap = pyarrow.table({"v": pyarrow.array([1.0, None, 3.0]), "w": pyarrow.array(["a", None, "b"])})
    parquet.write_table(gap, tmp_path / "gap.parquet")
    with pytest.raises(DataError, match="row 2"):
        Forecast(data=str(tmp_path / "gap.parquet"), target="v", window=3).objective().trivial_loss  # noqa: B018


def test_the_kind_of_a_file(tmp_path):
    path = tmp_path / "d.csv"
    write(path, n=[1, 2], f=[0.5, 2], t=["a", "b"])
    assert [choose_task(path, name, ())[0] for name in ("n", "f", "t", "n,f")] == [
        "classify",
        "regress",
        "classify",
        "regress",
    ]
    assert choose_task(path, "f", ["ahead", "known"]) == ("forecast", "--ahead and --known were given")
    assert choose_task(path, "f", ["ahead"]) == ("forecast", "--ahead was given")


WRONG = {
    "x,y\n1,2\n3\n": "Expected 2 cells, one per name, but .* line 3, has 1. The file may be truncated",
    "1,2\n3,4\n": "to begin with a line of names",
    "x,x\n3,4\n": "to begin with a line of names, all different",
    "": "has no rows",
    "x,value\n1,2\n\n3,4\n": "Expected 2 cells, one per name, but .* line 3, has 0",
    "x,y\n": "has no rows",
    "x,value\n1,2\n3,4\n": "Expected at least 3 steps to divide .* but got 2 in .* longer series",
    "x,value\na,2\n3,4\n5,6\n7,8\n": r"column 'x', but got 'a' in row 1, line 2 of the file \(1 of 4 cells",
    "x,vale\n1,2\n": "Expected a column 'value' for target in .*, but got x, vale. Did you mean 'vale'",
    "value\n" + "1\n" * 99: "Expected targets that differ .* value is the same in all of it",
    "value\n" + "0.1\n" * 99: "Expected targets that differ",  # their mean is not .1
    "value\n" + "1e300\n2e300\n" * 99: "Expected values whose squares are float64 numbers, but .* column 'value'",
    "x,value\n" + "1e300,1\n-1e300,2\n" * 99: "Expected values whose squares are float64 numbers, but .* column 'x'",
    "value\n"
    + "1\ninf\n" * 99: r"Expected finite numbers in .*, column\(s\) value, but got \[inf\] in row 2, .*, as in 99 row",
    'value,name\n1,"a\n' + "2,b\n" * 99: "unexpected end of data",  # else the rest is one cell
    "x;value\n1;2,500\n2;3,500\n": r"Expected numbers for target in .*, but got '2,500' in row 1, .* two meanings",
    "x;value\n1.500;2,5\n2.250;3,5\n": r"what the points in .* column 'x', mean",
}


@pytest.mark.parametrize("content", WRONG)
def test_a_wrong_table_is_one_clear_error(tmp_path, content):
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=WRONG[content]):
        Forecast(data=str(path), target="value").objective().trivial_loss  # noqa: B018


def test_a_constant_input_is_left_as_wide_as_it_is(tmp_path):
    """Its mean is off by rounding, which must not count as its width."""
    data = write(tmp_path / "data.csv", x=[0.1] * 170 + [0.2] * 30, value=np.arange(200))
    task = Forecast(data=data, target="value")
    with pytest.warns(OrthornnWarning, match=r"data\.csv: x is constant in the training part.* leave it out of inputs"):
        assert task.problem().schema["scale"][0] == 1
    assert max(float(batch.inputs.data[..., 0].abs().max()) for batch in task.problem().test(1)) < 3


@pytest.mark.parametrize(("unit", "found"), [(1e300, "larger"), (1e-300, "smaller"), (1e-160, "smaller")])
@pytest.mark.parametrize("column", ["x", "value"])
def test_numbers_whose_squares_are_none_need_another_unit(unit, found, column, tmp_path):
    """Small ones were said to be constant."""
    wave = np.sin(np.arange(200) / 5)
    data = write(tmp_path / "data.csv", **{"x": wave, "value": wave, column: unit * wave})
    task = Forecast(data=data, target="value")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=rf"column '{column}', has {found} ones\. Give it in another unit"):
            task.problem()


def test_an_infinity_is_no_missing_value(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("value\n" + "1\n2\n" * 99 + "inf\n")
    with pytest.raises(DataError, match=r"An infinity is never taken for a missing value\. Replace it"):
        Forecast(data=str(path), target="value", missing="hold").objective().trivial_loss  # noqa: B018


def test_one_class_is_refused_with_advice(tmp_path):
    for label, got in (("a", "only 'a'"), ("", "no label")):
        data = write(tmp_path / "data.csv", id=np.arange(30) // 3, x=np.arange(30), y=[label] * 30)
        with pytest.raises(DataError, match=rf"column 'y', has {got}\. Add sequences of another class"):
            Classify(data=data, target="y", sequence="id", missing="hold").objective().trivial_loss  # noqa: B018


def test_inputs_that_vary_and_categories_bring_no_warning(tmp_path):
    data = write(tmp_path / "data.csv", id=np.arange(30) // 3, x=np.arange(30), c=["u"] * 30, y=["a", "b", "a"] * 10)
    task = Classify(data=data, target="y", sequence="id", categories="c", every_step=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(task.problem().test(1))


def test_long_keys_stay_apart(tmp_path):
    """Numbers that no float64 holds, within int64 and beyond."""
    for first in (2**60, 10**20):
        path = tmp_path / f"{first}.csv"
        rows = [f"{first + i},{i},{i % 2}" for i in range(6) for _ in range(3)]
        path.write_text("\n".join(["key,x,label", *rows]))
        task = Classify(data=str(path), target="label", sequence="key")
        assert task.table().data.rows.lengths.tolist() == [3] * 6


@pytest.mark.parametrize(
    "dates", [["2020-01-02", "2020-01-10", "2019-12-31"], ["2020-01-01 09:00", "2020-01-01T10:00", ""]]
)
def test_steps_are_put_in_order_by_dates(tmp_path, dates):
    path = tmp_path / "data.csv"
    path.write_text(
        "\n".join(["id,when,x,y", *(f"{i},{when},{x},1.5" for i in range(3) for x, when in enumerate(dates))])
    )
    task = Regress(data=str(path), target="y", sequence="id", time="when", inputs="x")
    if "" in dates:
        with pytest.raises(DataError, match=r"column 'when', but got none in row 3, line 4 of the file\. Fill it in"):
            task.table()
        return
    source = read_source(task)
    assert source.table.columns["x"][sequences_of(task, *source).order].tolist() == [2, 0, 1] * 3
    path.write_text(path.read_text().replace("2020-01-10", "10.1.2020"))
    with pytest.raises(DataError, match="Expected numbers, or dates such as 2020-12-31"):
        Regress(data=str(path), target="y", sequence="id", time="when", inputs="x").table()


def test_arrays_that_are_no_real_numbers(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(50, np.complex64))
    with pytest.raises(DataError, match=r"Expected real numbers .* column 'x0', is complex"):
        Forecast(data=str(tmp_path / "a.npy"), target="x0", inputs="x0").objective().trivial_loss  # noqa: B018
    np.save(tmp_path / "b.npy", np.array(["a", "b"] * 25))
    with pytest.raises(DataError, match="column 'x0', but got 'a' in row 1"):
        Forecast(data=str(tmp_path / "b.npy"), target="x0", inputs="x0").objective().trivial_loss  # noqa: B018


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.parquet"])
def test_damaged_files_are_named(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    for content in (b"", b"nothing of the kind", b"PK\x03\x04 and then nothing", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} is truncated, corrupt or another file"):
            Forecast(data=str(path), target="x").objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match=r"the file .*none.csv does not exist"):
        Forecast(data=str(tmp_path / "none.csv"), target="x").objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match=r"Expected a file \(\.csv, .* but got 'a.xlsx'"):
        Forecast(data=str(tmp_path / "a.xlsx"), target="x").objective().trivial_loss  # noqa: B018


def test_what_does_not_fit_is_said(sequences, series, tmp_path):
    with pytest.raises(DataError, match="target to name a column"):
        Classify(data=sequences).objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match=r"at least 3 sequence.*holds 1.*sequence, --sequence"):
        Regress(data=series, target="value", inputs="value").objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match="Expected one label in all rows of a sequence"):
        Classify(data=sequences, target="x", sequence="id").objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match=r"Expected window to be at least .*10 leaves nothing to predict"):
        Forecast(data=series, target="value", window=10).objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match="column 'label', but got 'a' in row 1"):
        Regress(data=sequences, target="y", sequence="id", inputs="label").objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match="inputs to name a column"):
        Regress(data=sequences, target="y", sequence="id", inputs=" ").objective().trivial_loss  # noqa: B018
    weighted = Classify(data=sequences, target="label", sequence="id")
    weighted = dataclasses.replace(weighted, class_weights=f"{weighted.table().classes[0]}=0")
    with pytest.raises(
        ArgumentError, match=r"class weight of '.*' to be positive, .*but got 0.0. To leave a class out, use ignore"
    ):
        weighted.objective()
    with pytest.raises(DataError, match="Expected ignore to be a label of 'label', but got 'q'"):
        Classify(data=sequences, target="label", sequence="id", ignore="q").objective().trivial_loss  # noqa: B018
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2, 1)), y=np.zeros(4))
    with pytest.raises(DataError, match=r"Expected y in .* like x \(3, 2, 1\), but got \(4,\)"):
        Regress(data=str(tmp_path / "a.npz"), target="y").objective().trivial_loss  # noqa: B018


def test_the_order_of_classes_is_the_same_in_every_process(tmp_path):
    """7 and 007 are the same number: their order was that of a set, which differs by process."""
    names = ["7", "007", "07", "+7", "10", "7e0", "9"]
    path = write(tmp_path / "d.csv", id=[n // 2 for n in range(42)], x=range(42), y=[names[n // 6] for n in range(42)])
    expected = ["+7", "007", "07", "7", "7e0", "9", "10"]
    assert list(Classify(data=path, target="y", sequence="id", stratified=False).table().classes) == expected
    program = (
        "from orthornn.learn.tasks import Classify\n"
        f"print(Classify(data={path!r}, target='y', sequence='id', stratified=False).table().classes)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # whatever that of this process is
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(expected)
