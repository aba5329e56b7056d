"""Numbers of sequences."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from orthornn.sklearn import OrthogonalRegressor
from support.sequences import SMALL, X


def test_a_regressor_learns_in_the_units_of_its_targets():
    wanted = 100 + 50 * X[:, -1, 0]
    at_the_end = {"pool": "last", "dropout": 0.0}
    found = OrthogonalRegressor(model="lstm", hidden_size=8, steps=120, lr=2e-2, options=at_the_end).fit(X, wanted)
    assert found.score(X, wanted) > 0.5
    both = OrthogonalRegressor(**SMALL).fit(X, np.stack([wanted, -wanted], 1))
    assert both.predict(X).shape == (48, 2)
