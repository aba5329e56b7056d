"""A network that learns the logarithm of its targets is one that learned from a table of logarithms, in other units."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import orthornn
from orthornn import export
from orthornn.cli import main
from orthornn.errors import ArgumentError, CheckpointError, DataError
from orthornn.learn.predict import Loaded, load
from orthornn.learn.report.predictions import prediction_figures
from orthornn.learn.report.runs import read_runs
from orthornn.learn.systems import build, model_named
from orthornn.learn.tasks import Forecast, Regress
from orthornn.learn.tasks.abilities import plain_baselines
from orthornn.learn.tasks.forecast_baselines import past_of
from orthornn.learn.tasks.target_transform import check_domain, in_units, transformed
from orthornn.learn.training import Run, RunConfig, read_config, resume, train

pytestmark = pytest.mark.filterwarnings("ignore::orthornn.errors.OrthornnWarning")
FORWARD = {"log": np.log, "log1p": np.log1p}
BACK = {"log": np.exp, "log1p": np.expm1}
STEPS = 200


def table(path: Path, how: str | None = None, gone: tuple[int, ...] = (), zero: int | None = None) -> str:
    """Write sales and visits that grow, with a season, and a price; with `how`, the logarithms of the first two."""
    t, random = np.arange(STEPS), np.random.default_rng(0)
    sales = np.exp(2 + 0.01 * t + 0.5 * np.sin(t / 2) + 0.1 * random.standard_normal(STEPS))
    visits = np.exp(1 + 0.3 * np.cos(t / 3) + 0.1 * random.standard_normal(STEPS))
    price = random.standard_normal(STEPS)
    sales[list(gone)] = np.nan
    if zero is not None:
        sales[zero] = 0
    if how is not None:
        sales, visits = FORWARD[how](sales), FORWARD[how](visits)
    np.savez(path, sales=sales, visits=visits, price=price)
    return str(path)


def trained(task, out, **options):
    model = model_named("gru", hidden_size=4, **options)
    return train(RunConfig(task=task, model=model, steps=3, batch_size=2, validate_every=1, seed=3), out)


@pytest.fixture(params=["log", "log1p"])
def how(request):
    return request.param


KINDS = {
    "forecast": lambda **o: Forecast(target="sales", inputs="price,sales", skipped=4, window=40, **o),
    "horizons": lambda **o: Forecast(target="sales,visits", horizons=3, skipped=4, window=40, **o),
    "quantiles": lambda **o: Forecast(
        target="sales,visits", horizons=2, quantiles="0.1,0.5", skipped=4, window=40, **o
    ),
    "known": lambda **o: Forecast(target="sales", inputs="sales", known="price", skipped=4, window=40, **o),
    "no past": lambda **o: Forecast(target="sales", inputs="price", skipped=4, window=40, **o),
    "regress": lambda **o: Regress(target="sales", inputs="price", every_step=True, window=40, **o),
    "its own input": lambda **o: Regress(target="sales,visits", inputs="price,sales", every_step=True, window=40, **o),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("gone", [(), (20, 21, 90)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_of_transformed_targets_is_that_of_a_transformed_table(kind, gone, how, tmp_path):
    raw, logged = table(tmp_path / "raw.npz", gone=gone), table(tmp_path / "logged.npz", how, gone)
    missing = "hold" if gone else "error"
    tasks = {
        "run": KINDS[kind](data=raw, target_transform=how, missing=missing),
        "plain": KINDS[kind](data=logged, missing=missing),
    }
    lags = {"lags": 4} if isinstance(tasks["run"], Forecast) else {}
    results = {name: trained(task, tmp_path / name, **lags) for name, task in tasks.items()}
    own, plain = (load(tmp_path / name) for name in tasks)
    for name, weights in own.model.state_dict().items():
        torch.testing.assert_close(weights, plain.model.state_dict()[name], rtol=0, atol=0)
    assert results["run"].test["loss"] == results["plain"].test["loss"]
    assert results["run"].trivial_loss == results["plain"].trivial_loss
    ((series, found),) = own.tables.predict(raw)
    ((_, expected),) = plain.tables.predict(logged)
    np.testing.assert_allclose(found.scores, BACK[how](expected.scores), rtol=1e-12)
    streamed = np.stack(list(own.stream(series.values[:30])))
    np.testing.assert_allclose(streamed, found.scores[:30], rtol=1e-4)
    assert {one.name for one in plain_baselines(own.config.task)} == {
        one.name for one in plain_baselines(plain.config.task)
    }
    for one, other in zip(plain_baselines(own.config.task), plain_baselines(plain.config.task)):
        assert one.test["loss"] == pytest.approx(other.test["loss"], rel=1e-9), one.name


def test_metrics_are_in_the_units_of_the_file(how, tmp_path):
    raw = table(tmp_path / "raw.npz")
    result = trained(Forecast(data=raw, target="sales", horizons=2, skipped=4, target_transform=how), tmp_path / "run")
    loaded, sales = load(tmp_path / "run"), np.load(raw)["sales"]
    found = loaded.tables.evaluate(raw)
    ((_, said),) = loaded.tables.predict(raw)
    rows = np.arange(4, STEPS - 2)
    wanted = np.stack([sales[rows + 1], sales[rows + 2]], 1)
    errors = np.abs(said.scores[rows] - wanted)
    assert found["mae"] == pytest.approx(errors.mean(), rel=1e-9)
    assert found["mse"] == pytest.approx(np.square(errors).mean(), rel=1e-9)
    assert found["mape"] == pytest.approx((errors / wanted).mean(), rel=1e-9)
    scale = np.array(loaded.description["target_scale"])
    logs = (FORWARD[how](said.scores[rows]) - FORWARD[how](wanted)) / scale
    assert found["loss"] == pytest.approx(np.square(logs).mean(), rel=1e-9)
    first = int(loaded.config.task.table().split.pieces["test"][0][0])
    assert result.test["mse"] > np.square(errors[: first - 8]).mean()  # it grows: the test part has the largest
    task, period = loaded.config.task, past_of(loaded.config.task.table().data, loaded.config.task.table().split).season
    known = sales[task.table().split.training_rows]
    assert task.objective().usual == pytest.approx(np.abs(known[period:] - known[:-period]).mean(), rel=1e-9)


def test_mape_of_small_targets_counts_them_where_they_have_a_logarithm(tmp_path):
    values = np.exp(np.random.default_rng(0).uniform(-16, 2, 300))
    np.savez(tmp_path / "small.npz", y=values)
    task = Forecast(data=str(tmp_path / "small.npz"), target="y", skipped=2, target_transform="log")
    wanted = next(task.problem().test(50)).targets
    assert task.objective().metrics(torch.zeros_like(wanted), wanted)["mape"][1] == int((~wanted.isnan()).sum())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("output", ["last", "all"])
def test_a_regression_is_measured_in_the_units_of_the_file(output, how, tmp_path):
    random = np.random.default_rng(1)
    lengths = np.full(40, 5)
    y = np.repeat(np.exp(random.standard_normal(40) + 3), 5)
    x = np.log(y) + 0.1 * random.standard_normal(200)
    path = tmp_path / "many.npz"
    np.savez(path, x=x, y=y, sequence=np.repeat(np.arange(40), lengths))
    task = Regress(data=str(path), target="y", inputs="x", every_step=output == "all", target_transform=how)
    trained(task, tmp_path / "run")
    loaded = load(tmp_path / "run")
    pairs = loaded.tables.predict(path)
    said = np.concatenate([one.scores for _, one in pairs])[:, 0]
    wanted = y if output == "all" else y[4::5]
    found = loaded.tables.evaluate(path)
    assert found["mse"] == pytest.approx(np.square(said - wanted).mean())
    scale = loaded.description["target_scale"][0]
    assert found["loss"] == pytest.approx(np.square((FORWARD[how](said) - FORWARD[how](wanted)) / scale).mean())
    batch = next(task.problem().test(100))
    prediction = loaded.model.eval()(batch.inputs)
    guess, true = (
        task.objective().in_units(values.detach().double()).numpy().ravel() for values in (prediction, batch.targets)
    )
    total, count = task.objective().metrics(prediction, batch.targets)["mse"]
    assert total / count == pytest.approx(np.square(guess - true).mean(), rel=1e-6)
    sequences = x.reshape(40, 5, 1)
    goals = y.reshape(40, 5, 1) if output == "all" else y[4::5, None]
    assert loaded.evaluate(sequences, goals)["loss"] == pytest.approx(found["loss"], rel=1e-5)
    assert loaded.evaluate(sequences, goals)["mse"] == pytest.approx(found["mse"], rel=1e-5)
    with pytest.raises(DataError, match=r"target_transform='log.*but got -1 as target 0, the first of"):
        loaded.evaluate(sequences, np.full_like(goals, -1))
    figures, notes = prediction_figures(read_runs([tmp_path / "run"]))
    (axes,) = next(iter(figures.values())).axes
    drawn = axes.collections[0].get_offsets() if output == "last" else axes.lines[0].get_ydata()
    shown = np.asarray(drawn)[:, 0] if output == "last" else np.asarray(drawn)
    assert not notes
    assert all(np.isclose(y, value, rtol=1e-5).any() for value in shown)


def test_an_anomaly_is_far_from_its_forecast_in_logarithms(tmp_path):
    raw = table(tmp_path / "raw.npz")
    trained(Forecast(data=raw, target="sales", skipped=4, target_transform="log"), tmp_path / "run")
    loaded, sales = load(tmp_path / "run"), np.load(raw)["sales"]
    ((_, scores),) = loaded.tables.anomalies(raw)
    ((_, said),) = loaded.tables.predict(raw)
    expected = np.abs(np.log(sales[5:]) - np.log(said.scores[4:-1, 0])) / loaded.description["target_scale"][0]
    np.testing.assert_allclose(scores[5:], expected)


@pytest.mark.parametrize("missing", [[], [float("nan")]])
def test_log1p_is_advised_where_no_number_is_negative(missing):
    for values, advised in [([3.0, 0.0, *missing], True), ([3.0, 0.0, -1.0, *missing], False)]:
        with pytest.raises(DataError) as error:
            check_domain(np.array(values), "log", "in row {}".format)
        assert ("use log1p" in str(error.value)) is advised


WRONG = r"numbers above 0 for target_transform='log', --target-transform log, but got 0 in .*{}, column 'sales', row 8"


def test_targets_without_a_logarithm_are_refused_by_column_and_row(tmp_path):
    zero = table(tmp_path / "zero.npz", zero=7)
    for kind in KINDS.values():
        with pytest.raises(DataError, match=WRONG.format("zero.npz") + r".*use log1p"):
            kind(data=zero, target_transform="log").summary_lines()
        kind(data=zero, target_transform="log1p").summary_lines()
    raw = table(tmp_path / "raw.npz")
    trained(
        Forecast(data=raw, target="sales", inputs="sales,price", skipped=4, target_transform="log"), tmp_path / "run"
    )
    loaded = load(tmp_path / "run")
    for call in (loaded.tables.predict, loaded.tables.evaluate, loaded.anomalies, loaded.predict_frame):
        with pytest.raises(DataError, match=WRONG.format("zero.npz")):
            call(zero)
    with pytest.raises(DataError, match=r"but got 0 as input 'sales' of sequence 0, step 1, the first of 1"):
        loaded.predict(np.array([[[2.0, 0.0], [0.0, 0.0]]]))
    with pytest.raises(DataError, match="got -1 as input 'sales', the first of 1"):  # of no step that it could count
        list(loaded.stream([[-1.0, 0.0]]))
    trained(Forecast(data=raw, target="sales", inputs="price", skipped=4, target_transform="log"), tmp_path / "other")
    load(tmp_path / "other").tables.predict(zero)  # reads no sales
    with pytest.raises(DataError, match=WRONG.format("zero.npz")):
        load(tmp_path / "other").tables.evaluate(zero)


def test_the_first_value_outside_is_named():
    check_domain(np.array([0.5, np.nan, 3]), "log", str)
    check_domain(np.array([-1.0]), None, str)
    with pytest.raises(
        DataError, match=r"Expected no number below 0 .*log1p, but got -2 at 1, the first of 2\. Correct"
    ):
        check_domain(np.array([0.0, -2, -3]), "log1p", lambda place: f"at {place}")
    with pytest.raises(DataError, match="leave it empty; or train without"):
        check_domain(np.array([0.0, -2]), "log", lambda place: f"at {place}")
    for how in FORWARD:
        for values in (np.array([0.3, 7.0]), torch.tensor([0.3, 7.0], dtype=torch.float64)):
            np.testing.assert_allclose(in_units(transformed(values, how), how), values)
    assert in_units(values, None) is values is transformed(values, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_units(np.array([1e3]), "log") == np.inf == in_units(torch.tensor([1e3]), "log1p")


@pytest.mark.sampled(1)
def test_the_transform_is_stored_and_a_resumed_run_is_the_same(how, tmp_path):
    raw = table(tmp_path / "raw.npz")
    task = Forecast(data=raw, target="sales", inputs="sales,price", skipped=4, window=30, target_transform=how)
    config = RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=6, batch_size=2, validate_every=2)
    whole = train(config, tmp_path / "whole")
    run = Run(config, tmp_path / "parts")
    run.advance_to(3)
    run.checkpoint()
    run.close()
    assert resume(tmp_path / "parts").test == whole.test
    assert read_config(tmp_path / "parts" / "config.json") == config
    description = json.loads((tmp_path / "parts" / "description.json").read_text())
    assert (description["target_transform"], description["transformed_inputs"]) == (how, [0])
    for changed in ({"target_transform": "sqrt"}, {"transformed_inputs": [2]}, {"target_transform": None}):
        wrong = {**description, **changed}
        wrong.pop("sha256")
        (tmp_path / "parts" / "description.json").write_text(json.dumps(wrong))
        with pytest.raises(CheckpointError, match=r"description.json to be what a run holds"):
            load(tmp_path / "parts")


def test_without_a_transform_nothing_of_it_is_stored(tmp_path):
    raw = table(tmp_path / "raw.npz")
    described = Forecast(data=raw, target="sales", skipped=4).problem().schema
    assert not {"target_transform", "transformed_inputs"} & set(described)
    with pytest.raises(ArgumentError, match="target_transform to be one of 'log', 'log1p', but got 'log2'"):
        Forecast(data=raw, target="sales", target_transform="log2")


def test_the_command_trains_counts_and_predicts_them(tmp_path, capsys):
    t = np.arange(180)
    counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(t / 3)))
    rows = [f"{count},{t % 7}" for t, count in enumerate(counts)]
    (tmp_path / "counts.csv").write_text("\n".join(["count,day", *rows]) + "\n")
    data, run = str(tmp_path / "counts.csv"), str(tmp_path / "run")
    words = ["train", data, "--target", "count", "--target-transform", "log1p", "--steps", "2", "--out", run]
    assert main([*words, "--every-step"]) == 0
    said = capsys.readouterr().out
    assert "--target-transform was given, so the task is regress" in said
    assert re.search(r"in training: log1p\(count\) 1\.\d+ ±", said)
    assert read_config(Path(run) / "config.json").task.target_transform == "log1p"
    assert main(["predict", run, data, "--out", str(tmp_path / "scores.csv")]) == 0
    written = [float(line.split(",")[-1]) for line in (tmp_path / "scores.csv").read_text().splitlines()[1:]]
    assert 0 < np.median(written) < counts.max()
    assert main(["evaluate", run, data]) == 0
    assert main(["inspect", data, "--target", "count", "--target-transform", "log1p", "--every-step"]) == 0
    assert "log1p(count)" in capsys.readouterr().out
    assert main(["train", data, "--target", "count", "--target-transform", "log", "--ahead", "1", "--out", run]) == 2
    row = int(np.flatnonzero(counts == 0)[0]) + 1
    assert f"but got 0 in {data}, column 'count', row {row}" in " ".join(capsys.readouterr().err.split())


def test_an_option_of_numbers_is_refused_for_classes(tmp_path):
    raw = table(tmp_path / "raw.npz")
    with pytest.raises(
        ArgumentError, match="Expected options of `orthornn train classify`, but got 'target_transform'"
    ):
        orthornn.train(raw, "price", task="classify", target_transform="log", out=tmp_path / "run")
    assert main(["train", "classify", "--data", raw, "--target", "price", "--target-transform", "log"]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("lags", [0, 3])
def test_graphs_predict_in_the_units_of_the_file(lags, how, tmp_path):
    raw = table(tmp_path / "raw.npz")
    task = Forecast(data=raw, target="sales", horizons=2, skipped=4, quantiles="0.2,0.8", target_transform=how)
    config = RunConfig(task=task, model=model_named("ornn-rotations", hidden_size=4, lags=lags), steps=2, batch_size=2)
    train(config, tmp_path / "run")
    loaded = load(tmp_path / "run")
    ((series, said),) = loaded.tables.predict(raw)
    _, sequence, *_ = export.graphs.prepare(loaded.model, loaded.description)
    x = torch.from_numpy(series.values).float().unsqueeze(1)
    np.testing.assert_allclose(sequence(x)[:, 0].detach(), said.scores, rtol=1e-4)
    export.to_torch_export(loaded.model, tmp_path / "graphs", loaded.description)
    program = torch.export.load(tmp_path / "graphs" / "model.pt2").module()
    np.testing.assert_allclose(program(x)[:, 0].detach(), said.scores, rtol=1e-4)
    for write in (export.to_c, export.to_audio):
        with pytest.raises(ArgumentError, match=f"but got target_transform='{how}', which has no C form"):
            write(Loaded(config, build("ornn-rotations", 3, 4, hidden_size=4), loaded.description), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_first_steps_without_a_value_have_the_mean_that_the_network_reads(how, tmp_path):
    """The arithmetic mean was filled in, which is not the mean of the logarithms."""
    options = {"target": "sales", "inputs": "sales,price", "missing": "sales=indicator", "skipped": 4, "window": 40}
    gone = (0, 1, 50)
    raw = Forecast(data=table(tmp_path / "raw.npz", gone=gone), target_transform=how, **options)
    taken = Forecast(data=table(tmp_path / "taken.npz", how, gone), **options)
    np.testing.assert_allclose(raw.table().data.features, taken.table().data.features, rtol=1e-12)
