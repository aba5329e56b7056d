"""Numbers of sequences."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from orthornn.sklearn import OrthogonalRegressor, estimator
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
