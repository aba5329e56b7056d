"""Backtests: where the origins are, that no forecast knows what comes after its origin, and numbers found by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from orthornn.cli import main
from orthornn.errors import ArgumentError, DataError, MissingPackageError
from orthornn.learn.systems import build
from orthornn.learn.tasks import Forecast, backtest
from orthornn.learn.tasks.backtest import METHODS, ets, origins_of, persistence, seasonal_naive, theta
from orthornn.learn.tasks.forecast import backtested

METRICS = ("loss", "mse", "mae")


def written(path, series, names=None):
    """Write series of numbers (T,), one below the other."""
    rows = [f"{value:.6f},s{place}" for place, one in enumerate(series) for value in one]
    path.write_text("\n".join(["value,name", *rows]) + "\n")
    return str(path)


def wave(steps, seed=0, period=12):
    noise = np.random.default_rng(seed).standard_normal(steps)
    return 5 + np.sin(np.arange(steps) * 2 * np.pi / period) + 0.1 * noise


def of_wave(folder, **options):
    return Forecast(data=written(folder / "wave.csv", [wave(240)]), target="value", inputs="value", **options)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_origins_are_spread_over_the_test_steps_that_have_forecasts(count, tmp_path):
    task = of_wave(tmp_path, horizons=5, skipped=8)
    data = task.table().data
    (found,) = origins_of(data, count)
    test = data.parts["test"]
    own = np.unique(test.rows[test.counted])
    assert {*found.rows} <= {*own}
    assert len(found.rows) == count
    assert found.rows[-1] == own[-1] == 240 - 1 - 5
    if count > 1:
        assert found.rows[0] == own[0]
        gaps = np.diff(found.rows)
        assert gaps.min() > 0
        assert gaps.max() - gaps.min() <= 1
    split = task.table().split
    assert found.rows[0] > max(at + steps for part in ("train", "validation") for at, steps in split.pieces[part]) - 2


@pytest.mark.parametrize("horizons", [None, 4])
def test_persistence_and_seasonal_naive_are_those_of_numpy(horizons, tmp_path):
    pytest.importorskip("statsmodels")
    lead = {"ahead": 3} if horizons is None else {"horizons": horizons}
    task = of_wave(tmp_path, skipped=8, backtest=5, **lead)
    found = backtested(task, {})
    values = np.loadtxt(task.data, delimiter=",", skiprows=1, usecols=0)
    (origins,) = found.origins
    leads = np.array([3] if horizons is None else range(1, horizons + 1))
    wanted = values[origins.rows[:, None] + leads]
    naive = values[origins.rows[:, None] + leads - 12]
    for name, forecasts in (("persistence", values[origins.rows][:, None]), ("seasonal naive", naive)):
        errors = found.errors[name]
        assert errors["mae"] == pytest.approx(np.abs(wanted - forecasts).mean(), rel=1e-5)
        assert errors["mse"] == pytest.approx(np.square(wanted - forecasts).mean(), rel=1e-5)
    assert {*found.errors} == {*METHODS}
    for name in ("ETS", "theta", "seasonal naive"):  # which know the season
        assert found.errors[name]["mae"] < 0.5 * found.errors["persistence"]["mae"]
    assert not found.notes


def forecasts_of(task, network, monkeypatch):
    """Return what the errors are computed of, by method: (K, H C), standardized."""
    seen = []
    objective = type(task.objective())
    monkeypatch.setattr(objective, "errors", lambda own, found, wanted: seen.append((found, wanted)) or {"loss": 0.0})
    names = list(backtested(task, {"network": network}).errors)
    return dict(zip(names, seen))


@pytest.mark.parametrize("quantiles", [None, "0.1,0.5,0.9"])
def test_what_comes_after_an_origin_changes_none_of_its_forecasts(quantiles, tmp_path, monkeypatch):
    pytest.importorskip("statsmodels")
    options = {"target": "value", "inputs": "value", "horizons": 3, "skipped": 8, "backtest": 4, "quantiles": quantiles}
    series = wave(200)
    first = Forecast(data=written(tmp_path / "first.csv", [series]), **options)
    torch.manual_seed(0)
    sizes = (first.problem().schema[name] for name in ("input_size", "output_size"))
    network = build("blocks", *sizes, hidden_size=4, output="all", lags=5).eval()
    before = forecasts_of(first, network, monkeypatch)
    (origins,) = origins_of(first.table().data, 4)
    for place, row in enumerate(origins.rows.tolist()):
        other = series.copy()
        other[row + 1 :] = 10 - other[row + 1 :]
        path = written(tmp_path / f"other{place}.csv", [other])
        after = forecasts_of(Forecast(data=path, **options), network, monkeypatch)
        assert {*after} == {*before} == {"network", *METHODS}
        for name, (found, wanted) in after.items():
            assert found.shape == wanted.shape == (4, 3)
            np.testing.assert_array_equal(found[: place + 1], before[name][0][: place + 1], err_msg=name)
            assert not np.array_equal(wanted[place], before[name][1][place])
            if (
                place + 1 < 4 and name != "seasonal naive"
            ):  # later origins know it, but perhaps not in the season before
                assert not np.array_equal(found[place + 1], before[name][0][place + 1])


def test_a_network_forecasts_what_it_forecasts_of_the_series_up_to_the_origin(tmp_path, monkeypatch):
    pytest.importorskip("statsmodels")
    task = of_wave(tmp_path, ahead=2, skipped=8, backtest=3)
    torch.manual_seed(0)
    sizes = (task.problem().schema[name] for name in ("input_size", "output_size"))
    network = build("gru", *sizes, hidden_size=4, output="all").eval()
    found, _ = forecasts_of(task, network, monkeypatch)["network"]
    data = task.table().data
    for place, row in enumerate(origins_of(data, 3)[0].rows.tolist()):
        with torch.no_grad():
            alone = network(data.standardized(np.arange(row + 1)).unsqueeze(1))[-1, 0]
        np.testing.assert_allclose(found[place], alone.numpy(), rtol=1e-4, atol=1e-5)


def test_several_series_have_origins_of_their_own(tmp_path):
    pytest.importorskip("statsmodels")
    path = written(tmp_path / "many.csv", [wave(80, seed) + seed for seed in range(6)])
    task = Forecast(data=path, target="value", inputs="value", sequence="name", ahead=1, split_by="time", backtest=2)
    found = backtested(task, {})
    assert [one.series for one in found.origins] == list(range(6))
    assert all(one.start == 80 * one.series and len(one.rows) == 2 for one in found.origins)
    values = np.loadtxt(path, delimiter=",", skiprows=1, usecols=0)
    rows = np.concatenate([one.rows for one in found.origins])
    assert found.errors["persistence"]["mae"] == pytest.approx(np.abs(values[rows + 1] - values[rows]).mean(), rel=1e-5)


@pytest.mark.parametrize("method", [ets, theta])
def test_statistical_methods_continue_a_season(method):
    pytest.importorskip("statsmodels")
    season = np.sin(np.arange(96) * 2 * np.pi / 12) + 3
    np.testing.assert_allclose(method(season[:84], 12, 12), season[84:], atol=0.02)


def test_ets_continues_a_line():
    pytest.importorskip("statsmodels")
    line = 2.0 * np.arange(40) + 1e-3 * np.random.default_rng(0).standard_normal(40)
    np.testing.assert_allclose(ets(line, 5, None), 2.0 * np.arange(40, 45), atol=0.05)


def test_what_cannot_be_fitted_has_no_forecast():
    pytest.importorskip("statsmodels")
    assert ets(np.array([1.0, 2.0]), 3, None) is None  # two values have no first level
    assert theta(np.array([]), 3, None) is None


def test_naive_methods():
    values = np.arange(10.0)
    np.testing.assert_array_equal(persistence(values, 3, 4), [9, 9, 9])
    np.testing.assert_array_equal(seasonal_naive(values, 6, 4), [6, 7, 8, 9, 6, 7])
    assert seasonal_naive(values, 3, None) is None


def test_a_method_without_a_forecast_is_named(tmp_path, monkeypatch):
    pytest.importorskip("statsmodels")
    monkeypatch.setitem(METHODS, "ETS", lambda values, steps, period: None)
    found = backtested(of_wave(tmp_path, ahead=1, backtest=3), {})
    assert "ETS" not in found.errors
    assert found.notes == ["ETS is left out: it has no forecast at 3 of 3 origins"]


def test_series_that_are_too_short_are_refused_before_the_training(tmp_path):
    pytest.importorskip("statsmodels")
    with pytest.raises(DataError, match=r"at least 40 step.* but got \d+\. Ask for fewer"):
        of_wave(tmp_path, ahead=1, backtest=40).summary_lines()
    short = written(tmp_path / "short.csv", [wave(10)])
    task = Forecast(data=short, target="value", inputs="value", ahead=1, skipped=0, backtest=1, test_share=0.4)
    with pytest.raises(DataError, match="at least 10 steps of a series"):
        task.summary_lines()
    with pytest.raises(ArgumentError, match="backtest"):
        of_wave(tmp_path, ahead=1, backtest=0)


def test_without_statsmodels_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(backtest, "import_optional", lambda package, extra, use: missing(package, extra, use))

    def missing(package, extra, use):
        raise MissingPackageError.named(use, package, extra)

    with pytest.raises(MissingPackageError, match=r"statsmodels for a backtest.*extra baselines"):
        of_wave(tmp_path, ahead=1, backtest=2).summary_lines()


def test_the_command_prints_stores_and_reports_it(tmp_path, capsys):
    pytest.importorskip("statsmodels")
    path, run = written(tmp_path / "wave.csv", [wave(150)]), tmp_path / "run"
    words = ["train", path, "--target", "value", "--inputs", "value", "--ahead", "1", "--backtest", "3"]
    assert main([*words, "--steps", "2", "--hidden-size", "4", "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "backtest: 3 origins in the test part" in printed
    assert "backtest from 3 origins in the test part" in printed
    stored = json.loads((run / "backtest.json").read_text())
    assert {*stored["errors"]} == {"blocks", *METHODS} - ({"seasonal naive"} if stored["notes"] else set())
    assert len(stored["origins"][0]["steps"]) == 3
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "backtest from 3 origins" in page
    assert f"{stored['errors']['theta']['loss']:.4g}" in page
    assert "fitted at every origin" in page
