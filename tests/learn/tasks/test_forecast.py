"""Forecasts of several steps at once, with quantiles, and the start from linear autoregression."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

from orthornn import export
from orthornn.cli import main
from orthornn.errors import ArgumentError, CheckpointError, DataError, OrthornnWarning
from orthornn.learn.predict import load
from orthornn.learn.raw_sequences import prepared
from orthornn.learn.score_files import write_anomalies
from orthornn.learn.systems import build, model_named
from orthornn.learn.tasks import Forecast
from orthornn.learn.tasks.abilities import baselines, plain_baselines, whole_series
from orthornn.learn.tasks.forecast import output_names
from orthornn.learn.training import OptimizerConfig, RunConfig, read_config, resume, train
from orthornn.learn.training.trainer import Trainer

STEPS = 240


@pytest.fixture(scope="module")
def wave(tmp_path_factory):
    path = tmp_path_factory.mktemp("wave") / "wave.csv"
    value = 5 + np.sin(np.arange(STEPS) * 2 * np.pi / 12) + 0.01 * np.random.default_rng(0).standard_normal(STEPS)
    rows = [f"{value[t]:.6f},{t}" for t in range(STEPS)]
    path.write_text("\n".join(["value,t", *rows]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "two.csv"
    path.write_text("\n".join(["a,b", *(f"{t},{1000 - t * t}" for t in range(100))]) + "\n")
    return str(path)


def test_several_steps_at_once_are_those_that_come(two):
    task = Forecast(data=two, target="a,b", horizons=3, skipped=2, window=10)
    assert output_names(task) == ["a+1", "b+1", "a+2", "b+2", "a+3", "b+3"]
    mean, deviation = task.objective().mean, task.objective().deviation
    for batches in (task.problem().validation(1), task.problem().test(1)):  # one by one: the last piece is shorter
        for inputs, targets in batches:
            now = inputs[:, :, 0].double() * task.table().data.deviation[0] + task.table().data.mean[0]
            wanted = targets.double() * torch.from_numpy(deviation) + torch.from_numpy(mean)
            for lead in (1, 2, 3):
                a, b = (wanted[2:, :, 2 * (lead - 1) + place] for place in (0, 1))
                torch.testing.assert_close(a, now[2:] + lead, atol=1e-3, rtol=0)
                torch.testing.assert_close(b, 1000 - (now[2:] + lead) ** 2, atol=1e-1, rtol=0)
            assert bool(wanted[:2].isnan().all())
    described = task.problem().schema
    assert described["labels"] == output_names(task)
    assert len(described["target_scale"]) == task.problem().schema["output_size"] == 6


def test_the_quantiles_of_the_targets_have_the_trivial_loss(wave):
    task = Forecast(data=wave, target="value", horizons=2, quantiles="0.1,0.5,0.9", skipped=4, window=30)
    assert task.problem().schema["output_size"] == 6
    assert output_names(task)[:3] == ["value+1 q0.1", "value+1 q0.5", "value+1 q0.9"]
    targets = task.objective().known
    levels = torch.tensor(task.levels, dtype=torch.float64)
    answer = torch.quantile(targets, levels, dim=0).T.reshape(1, -1).expand(len(targets), -1)
    found = float(task.objective().loss(answer.unsqueeze(1), targets.unsqueeze(1)))
    assert found == pytest.approx(task.objective().trivial_loss, rel=1e-6)
    total, count = task.objective().metrics(answer.unsqueeze(1), targets.unsqueeze(1))["coverage"]
    assert total / count == pytest.approx(0.8, abs=0.02)
    total, count = task.objective().metrics(answer.unsqueeze(1), targets.unsqueeze(1))["loss"]
    assert total / count == pytest.approx(found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("quantiles", [None, "0.1,0.5,0.9"])
def test_a_model_with_lags_starts_from_linear_autoregression(wave, quantiles):
    task = Forecast(data=wave, target="value", inputs="value", horizons=2, quantiles=quantiles, skipped=12, window=60)
    config = RunConfig(task=task, model=model_named("gru", hidden_size=4, lags=12), steps=1, batch_size=4)
    trainer = Trainer(config)
    assert trainer.warm
    loss = trainer.evaluate(task.problem().test(50))["loss"]
    assert loss < 0.2 * task.objective().trivial_loss
    plain = {one.name: one.test["loss"] for one in plain_baselines(task)}
    assert loss == pytest.approx(plain["ridge regression on flattened steps"], rel=0.5)
    assert not Trainer(RunConfig(task=task, model=model_named("gru", hidden_size=4), steps=1)).warm


def test_training_never_chooses_worse_weights_than_those_it_starts_from(wave):
    task = Forecast(data=wave, target="value", inputs="value", skipped=12, window=60)
    config = RunConfig(task=task, model=model_named("gru", hidden_size=4, lags=12), steps=2, batch_size=4)
    first = Trainer(config).evaluate(task.problem().validation(50))["loss"]
    result = train(config)
    assert result.best["loss"] <= first * (1 + 1e-6)
    assert any(record["kind"] == "validation" and record["step"] == 0 for record in result.records)


@pytest.mark.parametrize("name", ["gru", "ornn", "blocks"])
def test_lags_of_packed_sequences_are_those_of_each_sequence(name):
    torch.manual_seed(0)
    sequences = [torch.randn(length, 2) for length in (4, 7, 1)]
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    for output in ("all", "last"):
        model = build(name, 2, 3, hidden_size=4, lags=3, output=output).eval()
        torch.nn.init.normal_(model.recent.weight)
        together = model(packed)
        alone = [model(one.unsqueeze(1)) for one in sequences]
        if output == "last":
            torch.testing.assert_close(together, torch.cat(alone))
        else:
            expected = torch.nn.utils.rnn.pack_sequence([one[:, 0] for one in alone], enforce_sorted=False).data
            torch.testing.assert_close(together, expected)
        before = None
        for x, whole in zip(sequences[1], model.recent(sequences[1].unsqueeze(1), "all")):
            added, before = model.recent.step(x.unsqueeze(0), before)
            torch.testing.assert_close(added, whole)


def test_new_data_are_forecast_and_measured(wave, tmp_path):
    task = Forecast(data=wave, target="value", inputs="value", horizons=3, quantiles="0.1,0.9", skipped=4, window=30)
    config = RunConfig(task=task, model=model_named("gru", hidden_size=4, lags=4), steps=2, batch_size=4)
    train(config, tmp_path / "run")
    loaded = load(tmp_path / "run")
    ((_, prediction),) = loaded.tables.predict(wave)
    assert prediction.scores.shape == (STEPS, 6)
    found = loaded.tables.evaluate(wave)
    assert set(found) == {"loss", "mse", "mae", "mape", "smape", "coverage", "coverage_q0.1", "coverage_q0.9"}
    streamed = list(loaded.stream([[float(line.split(",")[0])] for line in Path(wave).read_text().splitlines()[1:30]]))
    np.testing.assert_allclose(streamed, prediction.scores[:29], atol=1e-5)


def test_forecasts_carry_the_times_of_their_steps(tmp_path):
    days = [f"2024-{1 + t // 28:02d}-{1 + t % 28:02d}" for t in range(120)]
    rows = [f"{day},{t % 5}.5" for t, day in enumerate(days)]
    (tmp_path / "days.csv").write_text("\n".join(["day,v", *rows]) + "\n")
    task = Forecast(data=str(tmp_path / "days.csv"), target="v", time="day", horizons=2, skipped=4, window=20)
    train(RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=1, batch_size=4), tmp_path / "run")
    out = tmp_path / "scores.csv"
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "days.csv"), "--every-step", "--out", str(out)]) == 0
    written = [line.split(",") for line in out.read_text().splitlines()]
    assert written[0] == ["sequence", "step", "time", "score v+1", "score v+2"]
    assert [row[2] for row in written[1:]] == days


def test_what_nobody_foresaw_has_the_highest_score(wave, tmp_path):
    task = Forecast(data=wave, target="value", inputs="value", horizons=2, quantiles="0.1,0.5", skipped=12, window=60)
    train(
        RunConfig(task=task, model=model_named("gru", hidden_size=4, lags=12), steps=1, batch_size=4), tmp_path / "run"
    )
    lines = Path(wave).read_text().splitlines()
    lines[101] = "9.5,100"  # step 100
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    loaded = load(tmp_path / "run")
    ((_, scores),) = loaded.tables.anomalies(tmp_path / "new.csv")
    assert scores.shape == (STEPS,)
    assert int(np.nanargmax(scores)) == 100
    assert np.isnan(scores[:13]).all()
    assert not np.isnan(scores[13:]).any()
    out = tmp_path / "scores.csv"
    words = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--anomalies", "--out", str(out)]
    assert main(words) == 0
    written = out.read_text().splitlines()
    assert written[:2] == ["sequence,step,score of the anomaly", "0,0,"]
    assert float(written[101].split(",")[2]) == pytest.approx(scores[100], rel=1e-6)
    ((one, _),) = found = loaded.tables.anomalies(tmp_path / "new.csv")
    write_anomalies(out, [(one._replace(times=np.array([f"t{step}" for step in range(STEPS)], object)), found[0][1])])
    timed = out.read_text().splitlines()
    assert timed[:2] == ["sequence,step,time,score of the anomaly", "0,0,t0,"]
    assert timed[101].startswith("0,100,t100,")


def test_a_configuration_is_read_as_it_was_written(wave, tmp_path):
    config = RunConfig(task=Forecast(data=wave, target="value", history=False), model=model_named("gru", hidden_size=4))
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert read_config(tmp_path / "config.json") == config


def test_what_a_forecast_cannot_be(wave):
    for text in ("0.5,0.1", "0", "1.0", "x", "0.5,0.5", ","):
        with pytest.raises(ArgumentError, match="Expected ascending quantiles"):
            Forecast(data=wave, target="value", quantiles=text)
    with pytest.raises(ArgumentError, match="horizons or ahead"):
        Forecast(data=wave, target="value", horizons=3, ahead=2)
    with pytest.raises(ArgumentError, match="lags only with inputs of numbers"):
        build("gru", 5, 2, hidden_size=3, lags=2, tokens=True)
    assert math.isfinite(Forecast(data=wave, target="value", horizons=1).objective().trivial_loss)


def priced(path, rows=160, more=0, word=False):
    """demand = 10 + 3 price, which no past can tell. more: rows of the future, without demand."""
    price = np.random.default_rng(3).choice([1.0, 2.0, 3.0, 4.0], rows + more)
    shown = [f"p{p:.0f}" if word else f"{p}" for p in price]
    lines = [f"{10 + 3 * p if t < rows else ''},{cell},{t}" for t, (p, cell) in enumerate(zip(price, shown))]
    path.write_text("\n".join(["demand,price,t", *lines]) + "\n")
    return str(path), 10 + 3 * price


@pytest.mark.sampled(5)
@pytest.mark.parametrize("options", [{}, {"ahead": 4}, {"horizons": 3}, {"horizons": 2, "quantiles": "0.1,0.9"}])
@pytest.mark.parametrize("word", [False, True])
def test_what_is_known_ahead_is_all_that_is_needed_where_the_target_depends_on_it_alone(tmp_path, options, word):
    path, _ = priced(tmp_path / "data.csv", word=word)
    common = {"data": path, "target": "demand", "inputs": "demand", "skipped": 3, "window": 30, **options}
    without, task = Forecast(**common), Forecast(**common, known="price", categories="price" if word else None)
    leads = task.forecasting.leads
    if not word:
        assert task.problem().schema["columns"] == ["demand", *(f"price+{lead}" for lead in leads)]
    model = model_named("blocks", hidden_size=4, lags=3)
    losses = []
    for own in (task, without):
        trainer = Trainer(RunConfig(task=own, model=model, steps=1, batch_size=4))
        assert trainer.warm
        losses.append(trainer.evaluate(own.problem().test(50))["loss"])
    assert losses[0] < 1e-4
    assert losses[1] > 0.3
    if not task.levels:
        linear = baselines(task)
        assert linear["linear autoregression of order 3"] < 1e-9 < 0.3 < linear["persistence"]


def test_rows_of_the_future_say_only_what_is_known(tmp_path):
    path, _ = priced(tmp_path / "data.csv")
    task = Forecast(data=path, target="demand", known="price", inputs="demand,price", horizons=3, skipped=3, window=30)
    assert "known 1 to 3 steps ahead: price" in task.summary_lines()[1]
    assert "hold the state" not in task.summary_lines()[0]
    train(
        RunConfig(task=task, model=model_named("blocks", hidden_size=4, lags=3), steps=1, batch_size=4),
        tmp_path / "run",
    )
    loaded = load(tmp_path / "run")
    new, demand = priced(tmp_path / "new.csv", rows=20, more=5)
    ((one, said),) = loaded.tables.predict(new)
    assert one.steps.tolist() == list(range(20))
    wanted = np.stack([demand[t + 1 : t + 4] for t in range(20)])
    np.testing.assert_allclose(said.scores, wanted, atol=0.2)
    assert loaded.tables.evaluate(new)["mae"] < 0.2
    raw = np.concatenate([one.values[:, :2], *(one.values[:, 2 + lead : 3 + lead] for lead in range(3))], 1)
    assert raw.shape == (20, 5)  # demand, price, and price in the next three steps
    np.testing.assert_allclose(list(loaded.stream(raw)), said.scores, atol=1e-4)
    short, _ = priced(tmp_path / "short.csv", rows=20, more=1)
    with pytest.warns(OrthornnWarning, match=r"the last 2 step\(s\) of 1 sequence\(s\) have no forecast.*Append 3 row"):
        ((one, said),) = loaded.tables.predict(short)
    assert one.steps.tolist() == list(range(18))
    assert len(said.scores) == 18
    (tmp_path / "gap.csv").write_text((tmp_path / "new.csv").read_text().replace(",22\n", "x,22\n"))
    with pytest.raises(DataError, match=r"column 'price'.*but got '.*x' in row 23"):
        loaded.tables.predict(tmp_path / "gap.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()
    lines[22] = ",,21"
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        DataError,
        match=r"Expected finite numbers in .*, column 'price', but got nan in row 22, line 23 .*, as in",
    ):
        loaded.tables.predict(tmp_path / "gap.csv")
    (tmp_path / "end.csv").write_text("demand,price\n1,2\n2,3\n")
    with pytest.raises(DataError, match=r"Expected a step in .*followed by 3 row\(s\) with price, but got none"):
        loaded.tables.predict(tmp_path / "end.csv")


def test_what_is_known_ahead_is_that_of_its_own_sequence(tmp_path):
    rows = [f"s{s},{100 * s + t},{t}.5" for s in range(3) for t in range(20)]
    (tmp_path / "many.csv").write_text("\n".join(["sequence,a,v", *rows]) + "\n")
    common = {"data": str(tmp_path / "many.csv"), "target": "v", "known": "a", "skipped": 1}
    for options in ({"horizons": 2, "split_by": "time", "window": 6}, {"ahead": 3}):
        task = Forecast(**common, **options)
        mean, deviation = task.table().data.mean, task.table().data.deviation
        names = task.problem().schema["columns"]
        seen = 0
        for batches in (task.problem().validation(1), task.problem().test(1), [task.problem().train(0, 1, 0)]):
            for inputs, _ in batches:
                raw = inputs.double().numpy() * deviation + mean
                for lead in task.forecasting.leads:
                    np.testing.assert_allclose(raw[..., names.index(f"a+{lead}")], raw[..., 0] + lead, atol=1e-4)
                    seen += 1
        assert seen >= 3


def test_columns_that_cannot_be_known_ahead(tmp_path):
    path, _ = priced(tmp_path / "data.csv", word=True)
    for known, message in [
        ("prise", "Expected a column 'prise' for known.*Did you mean 'price'"),
        ("demand", "Expected known to name columns whose values are known ahead.*'demand'"),
        ("t", "with another part"),
        ("price,price", "each once"),
        (",", "Expected known to name columns"),
        ("price", "name it in categories too"),
    ]:
        task = Forecast(data=path, target="demand", inputs="demand", time="t", known=known)
        with pytest.raises(DataError, match=message):
            _ = task.problem().schema["input_size"]
    task = Forecast(data=path, target="demand", known="t", inputs="demand", horizons=5000, window=6000)
    with pytest.raises(ArgumentError, match="at most 4096 inputs, but got 1 for each of 5000"):
        _ = task.problem().schema["input_size"]


@pytest.mark.parametrize("lags", [1, 2, 4])
def test_the_matrix_over_the_last_steps_reads_later_values_once(lags):
    torch.manual_seed(0)
    model = build("gru", 5, 3, hidden_size=4, lags=lags, known_inputs=2, output="all").eval()
    recent = model.recent
    torch.nn.init.normal_(recent.weight)
    assert recent.weight.shape == (3, 3 * lags + 2)
    x = torch.randn(6, 2, 5)
    whole, before = recent(x, "all"), None
    for t in range(6):
        added, before = recent.step(x[t], before)
        torch.testing.assert_close(added, whole[t])
    padded = torch.cat([x[:1].expand(lags - 1, -1, -1), x])
    steps = torch.cat([padded[lags - 1 - back : lags - 1 - back + 6] for back in range(lags)], -1)
    torch.testing.assert_close(steps @ recent.matrix().mT, whole)


def levels(path, names="abcd", steps=60):
    """Each series has a level of its own, which nothing but its name tells; demand = level + price."""
    random, lines = np.random.default_rng(5), ["store,price,demand"]
    for name in names:
        level = 10 * (ord(name) - ord("a"))
        lines += [f"{name},{p:.3f},{level + p:.3f}" for p in random.standard_normal(steps)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_vector_for_each_series_learns_what_only_its_name_tells(tmp_path):
    data = levels(tmp_path / "data.csv")
    common = {"data": data, "target": "demand", "sequence": "store", "inputs": "price", "known": "price", "skipped": 1}
    task = Forecast(**common, window=10, embedding=3)
    assert "vectors: 3 numbers for each of 4 series" in task.summary_lines()
    assert task.problem().schema["columns"] == ["price", "price+1", "store"]
    assert task.problem().schema["series"] == ["a", "b", "c", "d"]
    for inputs, _ in task.problem().validation(50):
        rows = inputs.data if isinstance(inputs, torch.nn.utils.rnn.PackedSequence) else inputs
        assert set(rows[..., -1].flatten().tolist()) == {0, 1, 2, 3}
    options = {"steps": 150, "batch_size": 8, "optimizer": OptimizerConfig(lr=0.03), "validate_every": 50}
    result = train(RunConfig(task=task, model=model_named("gru", hidden_size=8), **options), tmp_path / "run")
    assert result.best_test["loss"] < 0.05
    blind = Forecast(**common, window=10, split_by="time")
    assert train(RunConfig(task=blind, model=model_named("gru", hidden_size=8), **options)).best_test["loss"] > 0.5
    assert {one.name for one in plain_baselines(task)} == {one.name for one in plain_baselines(blind)}
    assert baselines(task) == baselines(blind)  # plain methods do not take a number for a quantity
    loaded = load(tmp_path / "run")
    new = levels(tmp_path / "new.csv", "db", steps=30)
    for one, said in loaded.tables.predict(new):
        level = 10 * (ord(one.name) - ord("a"))
        price = one.values[:, 1]
        assert np.abs(said.scores[5:, 0] - level - price[5:]).max() < 5
        np.testing.assert_allclose(list(loaded.stream(one.values)), said.scores, atol=1e-3)
    with pytest.raises(DataError, match=r"but got others, for which there is no vector: e, f\. Leave them out"):
        loaded.tables.predict(levels(tmp_path / "more.csv", "aef", steps=20))
    with pytest.raises(DataError, match="Expected the number of a series as the last input, 0 to 3"):
        loaded.predict([[[1.0, 2.0, 5.0]]])


def test_a_new_series_has_the_mean_of_all_vectors_if_asked_for(tmp_path):
    task = Forecast(
        data=levels(tmp_path / "data.csv"), target="demand", sequence="store", embedding=2, new_series="mean", skipped=2
    )
    train(RunConfig(task=task, model=model_named("gru", hidden_size=4), steps=1, batch_size=4), tmp_path / "run")
    loaded = load(tmp_path / "run")
    new = levels(tmp_path / "more.csv", "ae", steps=20)
    with pytest.warns(OrthornnWarning, match=r"mean of the vectors of all 4: e\. To silence"):
        (_, known), (other, unknown) = loaded.tables.predict(new)
    assert set(other.values[:, -1]) == {4}
    model = loaded.model
    with torch.no_grad():
        model.series.weight.copy_(model.series.weight.mean(0, keepdim=True).expand(4, -1).clone())
    with pytest.warns(OrthornnWarning, match="mean of the vectors"):
        (_, same), (_, still) = loaded.tables.predict(new)
    np.testing.assert_allclose(still.scores, unknown.scores, atol=1e-4)
    assert not np.allclose(same.scores, known.scores, atol=1e-4)


def test_what_has_no_vectors(wave, tmp_path):
    with pytest.raises(DataError, match=r"Expected several series for embedding=2.*--sequence"):
        _ = Forecast(data=wave, target="value", embedding=2).problem().schema["input_size"]
    for wrong in (0, 5000):
        with pytest.raises(ArgumentError, match="Expected embedding to be"):
            Forecast(data=wave, target="value", embedding=wrong)
    with pytest.raises(ArgumentError, match="Expected new_series to be"):
        Forecast(data=wave, target="value", new_series="zero")
    whole = Forecast(
        data=levels(tmp_path / "d.csv"), target="demand", sequence="store", embedding=2, split_by="sequences", skipped=2
    )
    with pytest.raises(DataError, match="got others, for which there is no vector"):
        _ = whole.objective().trivial_loss


@pytest.mark.parametrize("horizons", [2, 12])
@pytest.mark.parametrize("skipped", [0, 16])
def test_no_part_predicts_a_step_that_another_part_predicts(tmp_path, horizons, skipped):
    path = tmp_path / "series.csv"
    path.write_text("\n".join(["value", *map(str, range(400))]))
    task = Forecast(data=str(path), target="value", inputs="value", horizons=horizons, skipped=skipped)
    steps = {}
    for name in ("train", "validation", "test"):
        part = task.table().data.parts[name]
        steps[name] = {row + lead for row in part.rows[part.counted].tolist() for lead in task.forecasting.leads}
    assert max(steps["train"]) + 1 == min(steps["validation"])
    assert max(steps["validation"]) + 1 == min(steps["test"])
    assert max(steps["test"]) == 399


def crossing(wave, out, **options):
    """A run of two horizons and three quantiles, the highest of which its weights make the lowest."""
    task = Forecast(
        data=wave, target="value", inputs="value", horizons=2, quantiles="0.1,0.5,0.9", skipped=4, window=30
    )
    model = model_named("ornn-rotations", hidden_size=4, **options)
    train(RunConfig(task=task, model=model, steps=1, batch_size=4), out)
    loaded = load(out)
    with torch.no_grad():
        loaded.model.head.bias.copy_(torch.tensor([0.3, 0.1, -0.2, 2.0, 3.0, 1.0]))
    return loaded


def test_quantiles_never_cross_where_they_are_predicted(wave, tmp_path):
    loaded = crossing(wave, tmp_path / "run")
    ((series, said),) = loaded.tables.predict(wave)
    with torch.no_grad():
        outputs = loaded.model(prepared(series.values[None], loaded.description))[:, 0].reshape(-1, 2, 3)
    assert bool((outputs.diff(dim=-1) < 0).any())
    found = said.scores.reshape(-1, 2, 3)
    assert (np.diff(found) >= 0).all()
    deviation, mean = (np.array(loaded.description[f"target_{name}"]).reshape(2, 3) for name in ("scale", "offset"))
    np.testing.assert_allclose(found, np.sort(outputs.double().numpy() * deviation + mean))
    np.testing.assert_allclose(np.stack(list(loaded.stream(series.values[:9]))), said.scores[:9], rtol=1e-6)
    frame = loaded.predict_frame(wave)
    assert (frame["score value+2 q0.1"] <= frame["score value+2 q0.5"]).all()
    table = loaded.tables.evaluate(wave)
    values = np.array([float(line.split(",")[0]) for line in Path(wave).read_text().splitlines()[1:]])
    rows = np.arange(4, STEPS - 2)
    inside = [
        (found[rows, lead, 0] <= values[rows + lead + 1]) & (values[rows + lead + 1] <= found[rows, lead, 2])
        for lead in (0, 1)
    ]
    assert table["coverage"] == pytest.approx(np.mean(inside))


def test_graphs_sort_quantiles_and_c_says_that_it_does_not(wave, tmp_path):
    loaded = crossing(wave, tmp_path / "run")
    ((series, said),) = loaded.tables.predict(wave)
    _, sequence, *_ = export.graphs.prepare(loaded.model, loaded.description)
    x = torch.from_numpy(series.values).float().unsqueeze(1)
    np.testing.assert_allclose(sequence(x)[:, 0].detach(), said.scores, rtol=1e-5)
    export.to_torch_export(loaded.model, tmp_path / "graphs", loaded.description)
    program = torch.export.load(tmp_path / "graphs" / "model.pt2").module()
    np.testing.assert_allclose(program(x)[:, 0].detach(), said.scores, rtol=1e-5)
    with pytest.warns(OrthornnWarning, match="does not sort the 3 quantiles of a forecast"):
        export.to_c(loaded, tmp_path / "c")


def test_a_run_from_before_quantiles_were_described_has_them_sorted_and_resumes(wave, tmp_path):
    expected = crossing(wave, tmp_path / "run").description["quantiles"]
    assert expected == [0.1, 0.5, 0.9]
    file = tmp_path / "run" / "description.json"
    plain = json.loads(file.read_text())
    for name in ("quantiles", "sha256"):
        plain.pop(name)
    file.write_text(json.dumps(plain))
    assert load(tmp_path / "run").description["quantiles"] == expected
    assert resume(tmp_path / "run", steps=2).steps == 2
    file.write_text(json.dumps({**plain, "quantiles": [0.1, 0.3, 0.5, 0.9]}))
    with pytest.raises(CheckpointError, match=r"description.json to be what a run holds"):
        load(tmp_path / "run")


@pytest.mark.parametrize("most", [1 << 15, 30])
def test_the_test_of_whole_series_is_of_the_same_steps_with_all_before_them(tmp_path, monkeypatch, most):
    path = tmp_path / "levels.csv"
    rows = [f"{name},{100 * place + t},{t % 7}" for place, name in enumerate("ab") for t in range(80 - 9 * place)]
    rows[20] = "a,,3"
    path.write_text("\n".join(["id,value,day", *rows]) + "\n")
    monkeypatch.setattr("orthornn.learn.tasks.table_data.MOST_STEPS", most)
    options = {"data": str(path), "target": "value", "sequence": "id", "missing": "hold", "skipped": 3, "window": 12}
    task = Forecast(**options)
    mean, deviation = task.table().data.mean[0], task.table().data.deviation[0]

    def pairs(batches):
        return [
            (round(float(now * deviation + mean)), round(float(wanted), 5))
            for inputs, targets in batches
            for inputs, targets in [(getattr(inputs, "data", inputs), getattr(targets, "data", targets))]
            for now, wanted in zip(inputs.reshape(-1, 2)[:, 0].tolist(), targets.reshape(-1).tolist())
            if not math.isnan(wanted)
        ]

    whole = list(whole_series(task, 4))
    assert sorted(pairs(whole)) == sorted(pairs(task.problem().test(4)))
    lengths = [len(getattr(one.inputs, "batch_sizes", one.inputs)) for one in whole]
    assert max(lengths) == (
        78 if most > 100 else most + 12
    )  # of 80, one is missing, and the last has nothing to forecast


def test_the_test_of_whole_series_is_what_predict_finds(wave, tmp_path):
    task = Forecast(data=wave, target="value", inputs="value", skipped=4, window=20)
    config = RunConfig(task, model_named("gru", hidden_size=5), steps=4, validate_every=2)
    result = train(config, tmp_path / "run")
    found = load(tmp_path / "run").tables.predict(wave)[0][1].scores[:, 0]
    values = np.array([float(line.split(",")[0]) for line in Path(wave).read_text().split()[1:]])
    rows = task.table().data.parts["test"].rows[task.table().data.parts["test"].counted]
    assert 0 < len(rows) < STEPS
    mse = np.square(found[rows] - values[rows + 1]).mean()
    assert result.whole_test["mse"] == pytest.approx(mse, rel=1e-5)
    assert result.whole_test["mse"] != pytest.approx(result.best_test["mse"], rel=1e-5)
    assert json.loads((tmp_path / "run/result.json").read_text())["whole_test"] == result.whole_test


@pytest.mark.parametrize(("factor", "warned"), [(1.0, False), (1e4, True)])
def test_a_network_that_is_far_worse_on_whole_series_is_warned_of(wave, monkeypatch, recwarn, factor, warned):
    def swollen(task, batch_size):
        return (batch._replace(inputs=_times(factor, batch.inputs)) for batch in task.problem().test(batch_size))

    monkeypatch.setattr("orthornn.learn.runs.run.whole_series", swollen)
    task = Forecast(data=wave, target="value", inputs="value", skipped=4, window=20)
    result = train(RunConfig(task, model_named("ornn", hidden_size=8), steps=2))
    found = [str(one.message) for one in recwarn if "if a series is processed as a whole" in str(one.message)]
    assert bool(found) == warned
    assert (result.whole_test["loss"] > 1.25 * result.best_test["loss"]) == warned
    if warned:
        assert f"{result.best_test['loss']:.4g} in windows, but {result.whole_test['loss']:.4g}" in found[0]


def _times(factor, inputs):
    return inputs._replace(data=inputs.data * factor) if isinstance(inputs, PackedSequence) else inputs * factor


def test_what_is_not_cut_into_windows_has_no_test_of_whole_series(tmp_path):
    data = levels(tmp_path / "levels.csv")
    task = Forecast(data=data, target="demand", sequence="store", skipped=4, split_by="sequences")
    result = train(RunConfig(task, model_named("gru", hidden_size=4), steps=1, batch_size=2))
    assert result.best_test
    assert result.whole_test == {}


@pytest.mark.parametrize("quantiles", [None, "0.1,0.5,0.9"])
def test_a_forecast_that_overflows_on_whole_series_is_warned_of(wave, monkeypatch, quantiles):
    """NaN is no missing value: it does not leave the steps out at which it is predicted."""

    def overflowing(task, batch_size):
        return (batch._replace(inputs=_times(math.nan, batch.inputs)) for batch in task.problem().test(batch_size))

    monkeypatch.setattr("orthornn.learn.runs.run.whole_series", overflowing)
    task = Forecast(data=wave, target="value", inputs="value", skipped=4, window=20, quantiles=quantiles)
    with pytest.warns(OrthornnWarning, match="but nan if a series is processed as a whole"):
        result = train(RunConfig(task, model_named("ornn", hidden_size=8), steps=2))
    assert result.whole_test == {}
