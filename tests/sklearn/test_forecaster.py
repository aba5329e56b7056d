"""The next steps of a series."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.base import clone

from orthornn.sklearn import OrthogonalForecaster


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
        (lambda: found.predict(), "Expected X where fit had one"),
        (lambda: blind.predict(X=price[:4]), "Expected X where fit had one"),
        (lambda: found.predict(X=price[:5]), r"\(4,\) or \(4, K\).*the steps to forecast"),
        (lambda: found.predict(X=price[:4, :1]), r"Expected 2 column\(s\) in X"),
        (lambda: found.predict(y[:120], price[:120]), r"124.*those of y and the steps"),
        (lambda: OrthogonalForecaster(**small).fit(y, price[:-1]), r"130.*those of y"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
