"""The next steps of a series."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.base import clone

from orthornn.errors import OrthornnWarning
from orthornn.sklearn import OrthogonalForecaster, estimator


def test_a_forecast_is_at_least_linear_autoregression():
    t = np.arange(150)
    y = np.stack([np.sin(t * np.pi / 6), 100 + t], 1)
    found = OrthogonalForecaster("gru", horizon=5, lags=13, hidden_size=4, steps=2).fit(y[:140])
    np.testing.assert_allclose(found.predict(), y[140:145], rtol=1e-2, atol=0.05)
    np.testing.assert_allclose(found.predict(y[:120]), y[120:125], rtol=1e-2, atol=0.05)
    one = OrthogonalForecaster("gru", horizon=3, lags=12, hidden_size=4, steps=2).fit(y[:140, 0])
    assert one.predict().shape == (3,)
    assert one.score(y[:143, 0]) > 0.99
    assert found.score(y[:145]) > 0.99
    with pytest.raises(ValueError, match="more than 5 steps"):
        found.score(y[:5])
    again = clone(one).fit(y[:140, 0])
    np.testing.assert_array_equal(again.predict(), pickle.loads(pickle.dumps(one)).predict())
    for wrong, message in (
        (y[:10], "at least 21 steps"),
        (np.full(50, np.nan), "finite numbers"),
        (np.zeros((2, 3, 4)), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(found).fit(wrong)


def test_a_forecaster_uses_what_is_known_ahead():
    random = np.random.default_rng(8)
    price = random.standard_normal((130, 2))
    y = 7 + price @ [3.0, -2.0]
    small = {"hidden_size": 4, "lags": 3, "horizon": 4, "steps": 2}
    blind = OrthogonalForecaster(**small).fit(y[:120])
    found = OrthogonalForecaster(**small).fit(y[:120], price[:120])
    assert np.abs(found.predict(X=price[120:124]) - y[120:124]).max() < 0.2
    assert np.abs(blind.predict() - y[120:124]).max() > 1
    later = found.predict(y[:126], price)
    assert np.abs(later - y[126:130]).max() < 0.2
    np.testing.assert_allclose(pickle.loads(pickle.dumps(found)).predict(y[:126], price), later)
    assert found.score(y, price) > 0.99
    one = OrthogonalForecaster(**small).fit(np.stack([y, -y], 1)[:120], price[:120, 0])
    assert one.predict(X=price[120:124, 0]).shape == (4, 2)
    for wrong, message in [
        (lambda: found.predict(), "Expected X in both fit and this call"),
        (lambda: blind.predict(X=price[:4]), "Expected X in both fit and this call"),
        (lambda: found.predict(X=price[:5]), r"\(4,\) or \(4, K\).*the steps to forecast"),
        (lambda: found.predict(X=price[:4, :1]), r"Expected 2 column\(s\) in X"),
        (lambda: found.predict(y[:120], price[:120]), r"124.*rows for y and the steps"),
        (lambda: OrthogonalForecaster(**small).fit(y, price[:-1]), r"130.*rows for y"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


def test_what_would_be_forecast_wrongly_is_refused():
    pandas = pytest.importorskip("pandas")
    small = {"horizon": 2, "lags": 5, "hidden_size": 4, "steps": 2}
    t = np.arange(40.0)
    table = pandas.DataFrame({"up": t, "wave": np.sin(t)})
    found = OrthogonalForecaster(**small).fit(table, pandas.DataFrame({"even": t % 2, "third": t % 3}))
    ahead = pandas.DataFrame({"even": [0.0, 1.0], "third": [1.0, 2.0]})
    assert found.predict(X=ahead).shape == (2, 2)
    for wrong, message in [
        (lambda: found.predict(X=ahead[["third", "even"]]), r"columns of X in fit, \['even', 'third'\], but got"),
        (lambda: found.score(table[["wave", "up"]], table), r"columns of y in fit, \['up', 'wave'\], but got"),
        (lambda: OrthogonalForecaster(**small).fit(t).predict(t[:4]), "at least 5 steps, as many as lags=5, but got 4"),
        (lambda: OrthogonalForecaster(**small, window=4).fit(t), "window to be an integer of at least 5, but got 4"),
        (lambda: OrthogonalForecaster(**small).fit(t + 1j), "real numbers as y, but got complex128"),
        (lambda: OrthogonalForecaster(**small).fit(t.astype("datetime64[D]")), "real numbers as y.*datetime64"),
        (lambda: OrthogonalForecaster(**small).fit(t, ["x"] * 40), "real numbers as X"),
        (lambda: OrthogonalForecaster(**small).fit(t * 1e300), "numbers in y whose squares"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["D", "h", "period", "timedelta"])
def test_times_of_pandas_are_in_order_and_those_of_both_tables(kind):
    """A series with the newest value first was forecast from its past as from its future."""
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range(
        "2024-03-30", periods=60, freq="D" if kind in ("period", "timedelta") else kind, tz="Europe/Berlin"
    )
    if kind == "period":
        times = pandas.period_range("2024-01", periods=60, freq="M")
    elif kind == "timedelta":
        times = pandas.to_timedelta(np.arange(60), "s")
    y = pandas.Series(np.sin(np.arange(60) / 2), times)
    price = pandas.DataFrame({"price": np.arange(60.0)}, times)
    made = OrthogonalForecaster("gru", horizon=2, lags=4, hidden_size=4, steps=2)
    found = clone(made).fit(y, price)
    np.testing.assert_array_equal(
        found.predict(X=[1, 2]), clone(made).fit(y.to_numpy(), price.to_numpy()).predict(X=[1, 2])
    )
    for wrong in (y[::-1], y.to_frame().sample(frac=1, random_state=0)):
        for call in (clone(made).fit, clone(made).fit(y).predict, clone(made).fit(y).score):
            with pytest.raises(ValueError, match=r"y in the order of its times, .* Sort it with y\.sort_index\(\)"):
                call(wrong)
    with pytest.raises(ValueError, match="X in the order of its times"):
        clone(made).fit(y.to_numpy(), price[::-1])
    with pytest.raises(ValueError, match=r"times of y, but got .* in row 1, where y has"):
        clone(made).fit(y[:-1], price[1:])
    clone(made).fit(y.set_axis(range(60, 0, -1)))  # numbers are no times


@pytest.mark.parametrize("kind", ["MS", "D", "period", "timedelta"])
def test_what_is_known_ahead_has_the_times_of_the_steps_to_forecast(kind):
    """Prices of other days than those to forecast were taken for theirs."""
    pandas = pytest.importorskip("pandas")
    if kind == "period":
        times = pandas.period_range("2024-01", periods=50, freq="M")
    elif kind == "timedelta":
        times = pandas.to_timedelta(np.arange(50), "s")
    else:
        times = pandas.date_range("2023-02-01", periods=50, freq=kind, tz="Europe/Berlin")
    y, price = pandas.Series(np.sin(np.arange(40) / 2), times[:40]), pandas.DataFrame({"price": np.arange(50.0)}, times)
    found = OrthogonalForecaster("gru", horizon=3, lags=4, hidden_size=4, steps=2).fit(y, price[:40])
    np.testing.assert_array_equal(found.predict(X=price[40:43]), found.predict(y, price[:43]))
    assert found.predict(y[20:39], price[20:42]).shape == (3,)
    assert found.predict(y[4:8], price[4:11]).shape == (3,)
    for wrong, message in [
        (lambda: found.predict(X=price[39:42]), "times that follow .*, the end of the series, but got"),
        (lambda: found.predict(X=price[:3]), "times that follow"),
        (lambda: found.predict(X=price[41:44]), "times that follow"),
        (lambda: found.predict(X=price.iloc[[40, 41, 43]]), "times that follow"),
        (lambda: found.predict(X=price.iloc[[40, 41, 41]]), "times that follow"),
        (lambda: found.predict(y[:30], price[3:36]), "times of y, but got .* in row 1, where y has"),
        (lambda: found.predict(y[:30], pandas.concat([price[:30], price[31:34]])), "times that follow"),
        (lambda: found.score(y, price[3:43]), "times of y"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
    if kind != "timedelta":
        other = price[40:43].set_axis(pandas.period_range("2030", periods=3, freq="Y"))
        other = other if kind == "period" else price[40:43].tz_localize(None)
        with pytest.raises(ValueError, match="X with times like those of the series"):
            found.predict(X=other)


@pytest.mark.parametrize("horizon", [1, 2, 7])
def test_no_window_for_training_predicts_a_step_of_the_validation(monkeypatch, horizon):
    tasks = []
    task = estimator.ArraysTask
    monkeypatch.setattr(estimator, "ArraysTask", lambda *given: tasks.append(task(*given)) or tasks[-1])
    series = np.arange(80.0)
    found = OrthogonalForecaster("gru", horizon=horizon, lags=5, hidden_size=2, steps=1).fit(
        np.stack([series, -series], 1)
    )
    (made,) = tasks
    steps = {
        part: np.rint(made.targets[own][:, ::2].numpy() * found.target_deviation_[0] + found.target_mean_[0])
        for part, own in made.parts.items()
    }
    assert steps["train"].max() + 1 == steps["validation"].min()  # nothing is lost between them
    assert steps["validation"].max() == 79
    before = np.arange(steps["validation"].min())
    np.testing.assert_allclose(found.target_mean_, [before.mean(), -before.mean()])
    np.testing.assert_allclose(found.target_deviation_, before.std())


def test_a_series_too_short_for_a_validation_of_its_own_is_reported():
    made = OrthogonalForecaster("gru", horizon=12, lags=12, hidden_size=2, steps=1)
    with pytest.warns(OrthornnWarning, match="horizon=12 leaves 0 of 13 windows .* Pass a longer series"):
        made.fit(np.arange(36.0))
    with pytest.warns(
        OrthornnWarning, match="horizon=12 leaves 1 of 9 windows for the last part .* Pass a longer series"
    ):
        made.fit(np.arange(32.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(np.arange(60.0))


def test_several_series_are_refused_with_advice():
    """A raw error of NumPy, of inhomogeneous shapes."""
    made, s = OrthogonalForecaster(horizon=2, lags=4, steps=1, hidden_size=4), np.sin(np.arange(60) / 5)
    objects = np.empty(2, object)
    objects[:] = [s, s[:50]]
    fitted = made.fit(s)
    for several in ([s, s[:50]], (s, s[:50]), [s.tolist(), s.tolist()[:50]], [s[:, None], s[:50, None]], objects):
        for use in (lambda y: clone(made).fit(y), lambda y: fitted.predict(y), lambda y: fitted.score(y)):
            with pytest.raises(ValueError, match=r"Expected one series as y.* got 2 of 50 to 60 steps\. Fit one forec"):
                use(several)
        with pytest.raises(ValueError, match="Expected one series as X"):
            clone(made).fit(s, several)
    with pytest.raises(
        ValueError, match=r"got 2 \(each of 60: if these are several series, fit one forecaster per series"
    ):
        clone(made).fit([s, s])
    for nothing in ({1, 2}, {"a": 1}, (i for i in range(60)), "word"):
        with pytest.raises(ValueError, match=rf"real numbers as y, but got {type(nothing).__name__}\. Convert"):
            clone(made).fit(nothing)
    assert clone(made).fit([[value, -value] for value in s]).predict().shape == (2, 2)
