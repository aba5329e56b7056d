"""Plain methods learn what they can learn, from the training part alone."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import warnings

import numpy as np
import pytest

from orthornn.learn import compare
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify, Copying, Forecast, Regress
from orthornn.learn.tasks.abilities import baselines, plain_baselines
from orthornn.learn.tasks.plain_baselines import (
    Baseline,
    flattened,
    last_steps,
    season_of,
    smoothed_forecasts,
    stretched,
    summary_features,
)
from orthornn.learn.training import RunConfig, train

pytest.importorskip("sklearn.base")
pytest.importorskip("statsmodels")
RANDOM = np.random.default_rng(4)


def write(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def loud(tmp_path):
    """The deviation of x tells the class and the target: its mean does not."""
    lengths = RANDOM.integers(8, 14, 90)
    size = np.repeat(1 + 3 * (np.arange(90) % 2), lengths)
    columns = {"id": np.repeat(np.arange(90), lengths), "x": size * RANDOM.standard_normal(len(size))}
    return write(tmp_path / "a.csv", **columns, label=np.where(size > 1, "loud", "quiet"), y=size + 0.5)


def test_features_of_sequences_of_unequal_length():
    rows, lengths = RANDOM.standard_normal((9, 2)), np.array([4, 1, 4])
    summary = summary_features(rows, lengths)
    assert summary.shape == (3, 17)
    for place, own in enumerate((rows[:4], rows[4:5], rows[5:])):
        np.testing.assert_allclose(summary[place, :2], own.mean(0))
        np.testing.assert_allclose(summary[place, 2:4], own.std(0), atol=1e-12)
        np.testing.assert_allclose(summary[place, 10:12], own[-1])
        np.testing.assert_allclose(summary[place, 14:16], np.abs(np.diff(own, axis=0)).sum(0) / max(1, len(own) - 1))
        np.testing.assert_allclose(flattened(rows, lengths, 4)[place], np.resize(own, (4, 2)).ravel())
    assert last_steps(rows, lengths, 3)[:, 4:].tolist() == rows[[0, 0, 0, 1, 4, 5, 5, 5, 6]].tolist()


def test_the_methods_see_what_there_is_and_only_the_training_part(loud):
    task = Classify(data=loud, target="label", sequence="id", inputs="x")
    found = {one.name: one for one in plain_baselines(task)}
    assert len(found) == (3 if importlib.util.find_spec("aeon") is None else 5)
    assert found["logistic regression on summary features"].test["accuracy"] > 0.9
    assert found["logistic regression on flattened steps"].test["accuracy"] < 0.9  # a linear answer sees no deviation
    regress = {one.name: one for one in plain_baselines(Regress(data=loud, target="y", sequence="id", inputs="x"))}
    assert regress["ridge regression on summary features"].test["loss"] < 0.5
    changed = dataclasses.replace(task, split_seed=1)
    assert plain_baselines(changed)[0].test != found[plain_baselines(changed)[0].name].test
    assert plain_baselines(Copying()) == []


def test_sequences_are_stretched_to_one_length():
    rows, lengths = RANDOM.standard_normal((25, 2)), np.array([12, 1, 12])
    found = stretched(rows, lengths, 12)
    assert found.shape == (3, 2, 12)
    np.testing.assert_allclose(found[0], rows[:12].T)
    np.testing.assert_allclose(found[1], np.repeat(rows[12:13].T, 12, 1))
    assert stretched(rows, lengths, 3).shape == (3, 2, 10)


def test_random_convolutions_see_what_neither_summary_nor_place_tells(tmp_path):
    """A short pulse of one of two forms, anywhere, of equal mean, deviation and extremes."""
    pytest.importorskip("aeon")
    count, steps = 120, 40
    x = 0.1 * RANDOM.standard_normal((count, steps))
    for row, at in zip(x, RANDOM.integers(0, steps - 8, count)):
        row[at : at + 8] += np.repeat([1.0, -1.0], 4)
    labels = np.arange(count) % 2
    x[labels == 1] *= -1  # of a pulse that first falls
    columns = {"id": np.repeat(np.arange(count), steps), "x": x.ravel(), "label": np.repeat(labels, steps)}
    task = Classify(data=write(tmp_path / "a.csv", **columns), target="label", sequence="id", inputs="x")
    found = {one.name: one.test["accuracy"] for one in plain_baselines(task)}
    assert found["MiniRocket"] > 0.9
    assert found["Hydra with MultiRocket"] > 0.9
    assert all(
        "loss" not in one.test for one in plain_baselines(task) if "Rocket" in one.name
    )  # they name a class alone
    table, _ = compare.plain_table(task)
    assert ["", ""] in [row[-2:] for row in table.rows]
    every_step = dataclasses.replace(task, every_step=True)
    assert "MiniRocket" not in {one.name for one in plain_baselines(every_step)}


def test_an_answer_at_every_step(loud):
    task = Classify(data=loud, target="label", sequence="id", inputs="x", every_step=True)
    (one,) = plain_baselines(task)
    assert one.name == "logistic regression on flattened steps"
    assert one.test["loss"] < 1


def test_a_seasonal_series(tmp_path):
    """Period 12, with a trend: the seasonal answers beat persistence."""
    times = np.arange(300)
    series = 0.05 * times + 3 * np.sin(2 * np.pi * times / 12) + 0.1 * RANDOM.standard_normal(300)
    assert season_of(series[:200]) == 12
    assert season_of(np.ones(100)) is None
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert season_of(1e300 * series[:200]) == season_of(1e-300 * series[:200]) == 12
    assert season_of(RANDOM.standard_normal(500)) is None
    task = Forecast(data=write(tmp_path / "s.csv", value=series), target="value", ahead=3, skipped=12, window=60)
    found = {one.name: one.test["loss"] for one in plain_baselines(task)}
    assert set(found) == {
        "ridge regression on flattened steps",
        "persistence",
        "seasonal naive, period 12",
        "exponential smoothing",
    }
    assert max(found["seasonal naive, period 12"], found["exponential smoothing"]) < found["persistence"] / 4
    assert found["persistence"] == pytest.approx(baselines(task)["persistence"], rel=1e-3)
    first = smoothed_forecasts(series, 210, [3, 1], 12)
    assert first is not None
    later = series.copy()
    later[260:] += 100  # what is not yet there changes nothing
    np.testing.assert_array_equal(smoothed_forecasts(later, 210, [3, 1], 12)[:260], first[:260])
    for place, lead in enumerate((3, 1)):
        np.testing.assert_array_equal(smoothed_forecasts(series, 210, [lead], 12)[:, 0], first[:, place])


def test_smoothing_is_fitted_once_for_all_leads_of_a_column(tmp_path, monkeypatch):
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    fits, fit = [], ExponentialSmoothing.fit
    monkeypatch.setattr(ExponentialSmoothing, "fit", lambda self, **more: fits.append(self) or fit(self, **more))
    columns = {name: np.sin(np.arange(200) / 5 + k) for k, name in enumerate("ab")}
    task = Forecast(data=write(tmp_path / "s.csv", **columns), target="a,b", horizons=4, skipped=8, window=60)
    assert "exponential smoothing" in {one.name for one in plain_baselines(task)}
    assert len(fits) == 2


def test_the_first_line_says_when_a_baseline_is_better(loud, capsys):
    task = Classify(data=loud, target="label", sequence="id", inputs="x")
    config = RunConfig(task=task, model=model_named("lstm", hidden_size=2), steps=1, batch_size=4)
    results = {"lstm": train(config)}
    summaries = {"lstm": results["lstm"].summary()}
    table, found = compare.plain_table(task)
    assert len(table.rows) == len(found) >= 3
    verdict = compare.plain_verdict(task, summaries, found)
    assert verdict.startswith("A plain baseline is better: logistic regression on summary features beats lstm")
    low, high = {"accuracy": -1.0, "loss": 9.0}, {"accuracy": 2.0, "loss": 0.0}
    for seen, test, expected in [
        (low, low, "lstm is at least as good as the best plain baseline"),
        (low, high, "Undecided: lstm is at least as good as the best plain baseline"),
        (high, low, "Undecided: a plain baseline,"),
        (high, high, "A plain baseline is better: "),
    ]:
        other = [one._replace(validation=seen, test=test) for one in found]
        assert compare.plain_verdict(task, summaries, other).startswith(expected)
    own = results["lstm"].best_test["accuracy"]
    near = [one._replace(validation=low, test={"accuracy": 1.01 * own, "loss": 0.0}) for one in found]
    assert compare.plain_verdict(task, summaries, near).startswith("lstm is at least as good")
    assert "added nothing" not in verdict
    unknown = {**high, "accuracy": math.nan}
    for seen, test in [(unknown, low), (high, unknown), ({"loss": 0.0}, low)]:
        lost = found[0]._replace(validation=seen, test=test)
        assert compare.plain_verdict(task, summaries, [lost]) == ""
        assert "baseline, plain (" in compare.plain_verdict(task, summaries, [lost, Baseline("plain", low, low)])
    lost = {"lstm": summaries["lstm"] | {"best": unknown}}
    assert compare.plain_verdict(task, lost, found) == ""
    at_first = {"lstm": summaries["lstm"] | {"best": {**results["lstm"].best, "step": 0}}}
    for other in (found, near):
        verdict = compare.plain_verdict(task, at_first, other)
        assert verdict.endswith(" lstm is best before its first update: its training added nothing.")
    from orthornn.learn.plain_results import show_all, with_baselines

    show_all(*with_baselines([compare.table(results)], results))
    assert capsys.readouterr().out.startswith("A plain baseline is better")
