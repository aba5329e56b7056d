"""The estimators behave like scikit-learn's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from orthornn.sklearn import OrthogonalClassifier, OrthogonalRegressor
from support.sequences import SMALL, X, Y


def test_clones_copies_and_seeds():
    first = OrthogonalClassifier(**SMALL).fit(X, Y)
    assert clone(first).get_params() == first.get_params()
    for other in (clone(first).fit(X, Y), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(other.predict_proba(X), first.predict_proba(X))
    other = clone(first).set_params(random_state=1).fit(X, Y)
    assert not np.allclose(other.predict_proba(X), first.predict_proba(X))


def test_the_tools_of_scikit_learn():
    search = GridSearchCV(OrthogonalClassifier(**SMALL), {"lr": [1e-3, 1e-2]}, cv=2).fit(X, Y)
    assert search.best_params_["lr"] in (1e-3, 1e-2)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), OrthogonalRegressor(**SMALL))
    assert cross_val_score(pipeline, X, X[:, 0, 0], cv=2).shape == (2,)


CHECKS = [
    *("check_estimators_dtypes", "check_estimators_pickle", "check_estimators_nan_inf", "check_n_features_in"),
    *("check_dict_unchanged", "check_fit_idempotent", "check_parameters_default_constructible", "check_complex_data"),
    *("check_set_params", "check_no_attributes_set_in_init", "check_fit2d_1sample", "check_get_params_invariance"),
    *("check_estimators_fit_returns_self", "check_estimators_unfitted", "check_fit1d", "check_pipeline_consistency"),
    *("check_estimators_overwrite_params", "check_methods_subset_invariance"),
]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor])
def test_the_checks_of_scikit_learn_that_make_sense_for_sequences(kind, name):
    """A matrix is one channel there, a row a sequence."""
    from sklearn.utils import estimator_checks

    check = getattr(estimator_checks, name)
    if name == "check_parameters_default_constructible":
        check(kind.__name__, kind())
        return
    estimator = kind(**{**SMALL, "steps": 2})
    check(kind.__name__, estimator)
