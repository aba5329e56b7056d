"""The time between steps as networks read it: from the table through training to predictions and streams."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

import orthornn
from orthornn.errors import ArgumentError, DataError
from orthornn.export import to_c, to_onnx
from orthornn.learn.tasks import Classify, Forecast, Regress

pandas = pytest.importorskip("pandas")
START = np.datetime64("2024-03-01T12:00:00")


def table(count=24, seed=0, missing=0.0):
    """Sequences of 4 to 9 steps at irregular times, in whole seconds since START; `kind` and `rate` are theirs."""
    random, rows = np.random.default_rng(seed), []
    for number in range(count):
        seconds = np.cumsum(random.integers(1, 40, 4 + number % 6))
        values = random.normal(size=len(seconds))
        values[random.random(len(seconds)) < missing] = np.nan
        rows += [(f"s{number}", at, value, "ab"[number % 2], number / 7) for at, value in zip(seconds, values)]
    return pandas.DataFrame(rows, columns=["sequence", "second", "x", "kind", "rate"])


def as_dates(frame):
    return frame.assign(second=START + frame["second"].to_numpy().astype("timedelta64[s]"))


def training_pieces(task):
    for step in range(task.steps_per_epoch(1)):
        inputs = task.problem().train(step, 1, 0).inputs
        yield from unpack_sequence(inputs) if isinstance(inputs, PackedSequence) else inputs.unbind(1)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("form", ["numbers", "dates", "text"])
def test_the_last_input_is_the_time_since_the_step_before_in_units_of_its_median(form, missing, tmp_path):
    frame = table(missing=missing).groupby("sequence").filter(lambda own: own["x"].notna().any())
    data = frame if form == "numbers" else as_dates(frame)
    if form == "text":
        data.to_csv(tmp_path / "data.csv", index=False)
        data = str(tmp_path / "data.csv")
    task = Classify(data=data, target="kind", inputs="x", time="second", irregular=True, missing="hold")
    assert task.problem().schema["input_size"] == 2
    seen = frame[frame["x"].notna()]
    expected = {name: np.diff(own["second"].to_numpy()) for name, own in seen.groupby("sequence", sort=False)}
    pieces = list(training_pieces(task))
    unit = task.problem().schema["time_unit"]
    values = {tuple(np.round(own["x"].to_numpy(), 3)): name for name, own in seen.groupby("sequence", sort=False)}
    mean, deviation = task.table().data.mean[0], task.table().data.deviation[0]
    found = []
    for piece in pieces:
        name = values[tuple(np.round(piece[:, 0].numpy() * deviation + mean, 3))]
        np.testing.assert_allclose(piece[1:, 1].numpy() * unit, expected[name], rtol=1e-6)
        assert piece[0, 1] == 1
        found += expected[name].tolist()
    assert unit == np.median(found)


def test_the_unit_of_the_column_changes_nothing():
    frame = table()
    tasks = [
        Regress(data=data, target="rate", inputs="x", time="second", irregular=True)
        for data in (frame, frame.assign(second=frame["second"] / 60), as_dates(frame))
    ]
    first, *others = [torch.cat(list(training_pieces(task))) for task in tasks]
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-6, atol=0)
    assert tasks[2].problem().schema["time_unit"] == tasks[0].problem().schema["time_unit"]
    assert any(f"in units of {tasks[2].problem().schema['time_unit']:g} s" in line for line in tasks[2].summary_lines())


@pytest.mark.parametrize("given", [{"target": "kind"}, {"target": "rate"}, {"target": "x", "ahead": 1, "skipped": 2}])
def test_a_run_predicts_streams_and_is_loaded_with_its_times(given, tmp_path):
    frame = as_dates(table())
    columns = ["sequence", "second", "x", *({given["target"]} - {"x"})]
    net = orthornn.train(
        frame[columns], **given, time="second", irregular=True, steps=3, hidden_size=6, out=tmp_path / "run"
    )
    assert net.description["channels"][-1] == ["second", "elapsed", None]
    loaded = orthornn.load(tmp_path / "run")
    one = frame[frame["sequence"] == "s5"]
    ((series, said),) = loaded.tables.predict(one[columns])
    unit = loaded.description["time_unit"]
    seconds = np.diff(one["second"].to_numpy()).astype("timedelta64[s]").astype(float)
    np.testing.assert_allclose(series.values[:, -1], [unit, *seconds])
    ((_, again),) = net.tables.predict(one[columns])
    np.testing.assert_array_equal(again.scores, said.scores)
    streamed = np.stack(list(loaded.stream(series.values)))
    wanted = streamed if said.scores.shape[0] > 1 else streamed[-1:]
    np.testing.assert_allclose(wanted, said.scores, rtol=1e-4, atol=1e-5)
    slower = series.values * [*[1] * (series.values.shape[1] - 1), 3]
    assert np.abs(loaded.predict(slower[None]).scores[0] - said.scores).max() > 1e-6
    with pytest.raises(DataError, match="Expected the time since the step before, above 0"):
        loaded.predict(-series.values[None])


def test_time_passes_while_a_stream_holds_the_state(tmp_path):
    frame = table(missing=0.3)
    net = orthornn.train(
        frame[["sequence", "second", "x", "rate"]],
        target="rate", time="second", irregular=True, missing="hold", steps=2, hidden_size=6, pool="last",
        out=tmp_path / "run",
    )  # fmt: skip
    held = list(net.stream([[0.5, 2.0], [np.nan, 3.0], [np.nan, 1.5], [0.1, 4.0]]))
    alone = list(net.stream([[0.5, 2.0], [0.1, 8.5]]))
    np.testing.assert_array_equal(held[-1], alone[-1])
    np.testing.assert_array_equal(held[1], held[0])


def test_gaps_are_no_longer_taken_for_neighbors():
    seconds = np.delete(np.arange(300), [30, 31, 90, 200])
    frame = pandas.DataFrame({"second": seconds, "v": np.sin(seconds / 5)})
    plain, irregular = (
        " ".join(Forecast(data=frame, target="v", time="second", irregular=irregular).summary_lines())
        for irregular in (False, True)
    )
    assert "3 gap(s)" in plain
    assert "neighbors" in plain
    assert "3 gap(s)" in irregular
    assert "neighbors" not in irregular


def test_what_it_refuses(tmp_path):
    frame = table()
    given = {"data": frame, "target": "kind", "irregular": True}
    with pytest.raises(ArgumentError, match=r"Expected time, --time, with irregular.*Name the column"):
        Classify(**given)
    with pytest.raises(ArgumentError, match=r"Expected no embedding with irregular"):
        Forecast(data=frame, target="x", time="second", irregular=True, embedding=2)
    twice = frame.assign(second=frame["second"] // 1000)
    with (
        pytest.warns(orthornn.errors.OrthornnWarning, match="have the time of the step before"),
        pytest.raises(DataError, match=r"Expected times that grow within a sequence for irregular.*the first in"),
    ):
        _ = Classify(**{**given, "data": twice}, time="second", inputs="x").problem().schema["input_size"]
    single = frame.groupby("sequence").head(1)
    with pytest.raises(DataError, match="Expected a training sequence of two steps for irregular"):
        _ = Classify(**{**given, "data": single}, time="second", inputs="x").problem().schema["input_size"]
    options = {"target": "kind", "inputs": "x", "time": "second", "irregular": True, "steps": 1}
    for name in ("lstm", "ornn-rotations"):
        with pytest.raises(
            ArgumentError, match=rf"Expected model='blocks', --model blocks, with irregular.*got {name}"
        ):
            orthornn.train(frame, model=name, out=tmp_path / name, **options)
    with pytest.raises(ArgumentError, match=r"Expected dt only for a linear recurrence.*stride=2"):
        orthornn.train(frame, model="blocks", stride=2, out=tmp_path / "stride", **options)
    net = orthornn.train(frame, hidden_size=4, out=tmp_path / "run", **options)
    for export in (to_onnx, to_c):
        with pytest.raises(ArgumentError, match=r"Expected a network with equal time steps.*--irregular"):
            export(net.model, tmp_path / "exported")
