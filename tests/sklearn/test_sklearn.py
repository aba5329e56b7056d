"""The package as a whole: what it needs, and where estimators that were stored are found again."""

from __future__ import annotations

import builtins
import importlib
import pickle
import sys

import numpy as np
import pytest

from orthornn.errors import MissingPackageError


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    def no_sklearn(name, *arguments, **options):
        if name.partition(".")[0] == "sklearn" and not (len(arguments) > 3 and arguments[3]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    real = builtins.__import__
    for name in [name for name in sys.modules if name.startswith("orthornn.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", no_sklearn)
    with pytest.raises(MissingPackageError, match=r"scikit-learn for orthornn.sklearn.*\[baselines\]"):
        importlib.import_module("orthornn.sklearn")


@pytest.mark.parametrize("name", ["OrthogonalClassifier", "OrthogonalForecaster", "OrthogonalRegressor"])
def test_estimators_of_when_the_package_was_one_file_are_loaded(name):
    pytest.importorskip("sklearn.base")
    kind = getattr(importlib.import_module("orthornn.sklearn"), name)
    options = {} if name == "OrthogonalForecaster" else {"batch_size": 8}
    found = kind("lstm", hidden_size=4, steps=2, **options)
    series = np.random.default_rng(3).standard_normal((24, 5))
    X = {"y": series[:, 0]} if name == "OrthogonalForecaster" else {"X": series, "y": np.arange(24) % 2}
    now = pickle.dumps(found.fit(**X), protocol=0)  # names as text
    then = now.replace(f"c{kind.__module__}\n{name}\n".encode(), f"corthornn.sklearn\n{name}\n".encode())
    assert then.count(b"corthornn.sklearn\n") == 1
    arguments = () if name == "OrthogonalForecaster" else (series,)
    np.testing.assert_array_equal(pickle.loads(then).predict(*arguments), found.predict(*arguments))
    # the module that a pickle names from now on stays where it is
    assert kind.__module__ == f"orthornn.sklearn.{name.removeprefix('Orthogonal').lower()}"
