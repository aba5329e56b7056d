"""What the index of a table of pandas says of its steps: none is missing, or there twice, without a word."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from orthornn.errors import OrthornnWarning
from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster
from orthornn.sklearn.times import warn_of_steps

pandas = pytest.importorskip("pandas")

ROWS = 40
HOURS = pandas.date_range("2024-01-01", periods=ROWS + 5, freq="h")
COUNTED = np.r_[:20, 25 : ROWS + 5]


def told(index, lengths=None):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_steps(index, [len(index)] if lengths is None else lengths, "y")
    assert all(warning.category is OrthornnWarning and warning.filename == __file__ for warning in caught)
    return " ".join(str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    "frequency", ["h", "D", "B", "W", "MS", "ME", "BMS", "BME", "QS", "QE", "YS", "YE", "15min", "ms", "2D", "2MS"]
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_regular_times_are_nothing_to_tell(frequency, zone):
    if pandas.__version__ < "2.2" and frequency in ("h", "ME", "BME", "QE", "YS", "YE", "ms"):
        pytest.skip("other names of these frequencies")
    times = pandas.date_range("2020-01-01", periods=ROWS, freq=frequency, tz=zone)
    assert told(times) == ""
    assert zone or told(times.astype(str)) == ""
    assert "gap(s)" in told(times.delete(7))


@pytest.mark.parametrize(
    ("index", "what"),
    [
        (HOURS.delete(range(20, 25)), "every 1 h"),
        (HOURS.delete(range(20, 25)).tz_localize("UTC"), "every 1 h"),
        (HOURS.delete(range(20, 25)).astype(str), "every 1 h"),
        (HOURS[COUNTED].to_period("h"), "every 1 h"),
        (pandas.Index([time.date() for time in pandas.date_range("2024-01-01", periods=45)[COUNTED]]), "every 1 d"),
        (pandas.to_timedelta(60 * COUNTED, unit="s"), "every 60"),
        (pandas.Index(COUNTED * 0.1), "every 0.1"),
        (pandas.Index(COUNTED), "every 1"),
        (pandas.Index(1900 + COUNTED, name="year"), "every 1"),
        (pandas.Index(10 * COUNTED, name="second"), "every 10"),
    ],
    ids=["times", "UTC", "text", "periods", "days", "durations", "numbers", "rows", "years", "seconds"],
)
def test_gaps_are_told(index, what):
    said = told(index)
    assert f"in the index of y: {what}, with 1 gap(s), where steps are missing: 5 after" in said
    assert "Add rows for the missing steps. To silence this" in said


@pytest.mark.parametrize(
    "index",
    [
        pandas.Index(10 * np.arange(ROWS)),
        pandas.Index(np.arange(ROWS) ** 2),
        pandas.Index(np.r_[:20, :20]),
        pandas.Index(np.arange(ROWS)[::-1]),
        pandas.Index([f"row {row}" for row in range(ROWS)]),
        pandas.Index(["2024-02-30"] * ROWS),
        pandas.Index(np.datetime64("3000-01-01", "s") + np.arange(ROWS) * np.timedelta64(86400, "s")),
        pandas.RangeIndex(0),
        None,
    ],
    ids=["every tenth row", "ids", "two tables", "turned", "words", "no days", "far away", "none", "no index"],
)
def test_an_index_that_tells_no_times_is_not_looked_at(index):
    assert told(index, [0 if index is None else len(index)]) == ""


def test_times_that_are_there_twice_or_at_unequal_distances_are_told():
    assert "1 times are those of the step before; " in told(HOURS.insert(4, HOURS[4]))
    assert "Keep one row for each time." in told(HOURS.insert(4, HOURS[4]))
    uneven = HOURS[0] + pandas.to_timedelta(np.arange(ROWS) ** 2, unit="s")
    assert "irregular, 1 s to 1.28333 min between two steps. Resample it" in told(uneven)


def test_steps_of_two_sequences_are_no_neighbors():
    two = HOURS[:10].append(HOURS[:10])
    assert told(two, [10, 10]) == ""
    assert "1 gap(s)" in told(two.delete(14), [10, 9])
    assert told(two.delete(9), [9, 10]) == ""


def test_the_forecaster_tells_gaps_and_times_that_are_there_twice():
    y = pandas.Series(np.sin(np.arange(ROWS) / 3), HOURS[:ROWS])
    made = OrthogonalForecaster(horizon=2, lags=4, steps=1, hidden_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = made.fit(y)
        fitted.predict(y)
        fitted.score(y)
        fitted.predict(y.to_numpy())
    hole, twice = y.set_axis(HOURS.delete(range(9, 14))), y.set_axis(HOURS[:ROWS].delete(4).insert(4, HOURS[3]))
    for series in (hole, hole.to_frame("y"), twice):
        for use in (lambda s: made.fit(s), lambda s: fitted.predict(s), lambda s: fitted.score(s)):
            with pytest.warns(OrthornnWarning, match=r"in the index of y: (every 1 h, with 1 gap|1 times)"):
                use(series)
        with pytest.warns(OrthornnWarning, match="in the index of X: "):
            made.fit(series.to_numpy(), series)
    with pytest.raises(ValueError, match=r"in the order of its times, .* Sort it with y\.sort_index\(\)"):
        made.fit(y[::-1].set_axis(HOURS[:ROWS][::-1].astype(str)))


def test_the_classifier_tells_gaps_within_its_sequences():
    index = pandas.MultiIndex.from_product([range(6), HOURS[:8]])
    X, y = pandas.DataFrame({"x": np.sin(np.arange(48.0))}, index), np.arange(6) % 2
    made = OrthogonalClassifier(steps=1, hidden_size=4, validation_share=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(X, y).predict(X[::-1])
    for wrong, message in ((X.drop(X.index[10]), "1 gap"), (pandas.concat([X, X[:1]]), "1 times are those")):
        with pytest.warns(OrthornnWarning, match=f"in the index of X: .*{message}"):
            made.fit(wrong, y)
        with pytest.warns(OrthornnWarning, match=f"in the index of X: .*{message}"):
            made.predict(wrong)
