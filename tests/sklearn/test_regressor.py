"""Numbers of sequences."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.compose import TransformedTargetRegressor

from orthornn.errors import OrthornnWarning
from orthornn.sklearn import OrthogonalForecaster, OrthogonalRegressor, estimator
from support.sequences import SMALL, X


def test_a_regressor_learns_in_the_units_of_its_targets():
    wanted = 100 + 50 * X[:, -1, 0]
    at_the_end = {"pool": "last", "dropout": 0.0}
    found = OrthogonalRegressor(model="lstm", hidden_size=8, steps=120, lr=2e-2, options=at_the_end).fit(X, wanted)
    assert found.score(X, wanted) > 0.5
    both = OrthogonalRegressor(**SMALL).fit(X, np.stack([wanted, -wanted], 1))
    assert both.predict(X).shape == (48, 2)


def test_targets_are_scaled_by_those_for_training(monkeypatch):
    tasks = []
    task = estimator.ArraysTask
    monkeypatch.setattr(estimator, "ArraysTask", lambda *given: tasks.append(task(*given)) or tasks[-1])
    wanted = np.arange(48.0) ** 3
    found = OrthogonalRegressor(**SMALL).fit(X, wanted, sample_weight=1 + np.arange(48) % 3)
    (made,) = tasks
    own = made.parts["train"]
    assert 0 < len(own) < 48
    np.testing.assert_allclose(found.target_mean_, np.average(wanted[own], weights=1 + own % 3))
    np.testing.assert_allclose(
        made.targets[:, 0].numpy() * found.target_deviation_ + found.target_mean_, wanted, atol=0.1
    )


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("kind", [np.int64, object, np.uint64])
def test_whole_targets_that_float64_rounds_are_refused_or_named(kind, two):
    def targets(step):
        own = np.array([2**60 + place * step + 1 for place in range(48)], kind)
        return np.stack([np.arange(48).astype(kind), own], 1) if two else own

    place = "0, 1" if two else "0"
    message = rf"got others: {2**60 + 1} as y\[{place}\] is {2**60} in float64\. Subtract a constant from y"
    with pytest.raises(ValueError, match=message):
        OrthogonalRegressor(**SMALL).fit(X, targets(1))
    with pytest.raises(ValueError, match=message):
        OrthogonalForecaster(lags=3, hidden_size=4, steps=2).fit(targets(1))
    far = rf"Whole numbers above {2**53} are rounded: the target {2**60 + 1} as y\[{place}\] is {2**60}"
    with pytest.warns(OrthornnWarning, match=far) as told:
        OrthogonalRegressor(**SMALL).fit(X, targets(2**50))
    assert told[0].filename == __file__
    with pytest.warns(OrthornnWarning, match=far) as told:
        OrthogonalForecaster(lags=3, hidden_size=4, steps=2).fit(targets(2**50))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrthogonalRegressor(**SMALL).fit(X, targets(2**9)[:, -1] - 1 if two else targets(2**9) - 1)


def test_a_regressor_learns_logarithms_in_sklearns_wrapper():
    y = np.exp(X[:, -1, 0] + 3)
    wrapped = TransformedTargetRegressor(OrthogonalRegressor(**SMALL), func=np.log, inverse_func=np.exp).fit(X, y)
    plain = OrthogonalRegressor(**SMALL).fit(X, np.log(y))
    np.testing.assert_allclose(wrapped.predict(X), np.exp(plain.predict(X)), rtol=1e-6)
