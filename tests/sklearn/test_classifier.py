"""Classes of sequences."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.base import clone

from orthornn.sklearn import OrthogonalClassifier
from support.sequences import SMALL, X, Y


def test_a_classifier_learns_and_its_probabilities_add_up():
    at_the_end = {"pool": "last", "dropout": 0.0}  # where the answer is
    found = OrthogonalClassifier(model="lstm", hidden_size=8, steps=80, lr=2e-2, options=at_the_end).fit(X, Y)
    assert found.score(X, Y) > 0.85
    probabilities = found.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (found.classes_[probabilities.argmax(1)] == found.predict(X)).all()
    assert list(found.classes_) == ["down", "up"]


def test_the_default_learns_what_is_in_the_whole_sequence():
    kinds = np.arange(40) % 2
    phases = np.random.default_rng(1).uniform(0, 6, 40)
    waves = np.sin(np.where(kinds, 0.9, 0.4)[:, None] * np.arange(30) + phases[:, None])
    assert OrthogonalClassifier(steps=60).fit(waves[:30], kinds[:30]).score(waves[30:], kinds[30:]) > 0.85


def test_a_classifier_decides_by_a_threshold():
    random = np.random.default_rng(4)
    rare = np.arange(120) % 8 == 0
    series = random.standard_normal((120, 6, 1)) + 0.8 * rare[:, None, None]
    options = {"model": "lstm", "hidden_size": 4, "steps": 30, "lr": 1e-2, "validation_share": 0.4}
    usual = OrthogonalClassifier(**options).fit(series, rare)
    found = OrthogonalClassifier(**options, threshold="balanced_accuracy").fit(series, rare)
    probabilities = found.predict_proba(series)
    np.testing.assert_array_equal(probabilities, usual.predict_proba(series))
    assert usual.threshold_ is None
    assert ((probabilities[:, 1] >= found.threshold_) == found.predict(series)).all()
    assert found.predict(series)[rare].mean() > usual.predict(series)[rare].mean()
    assert clone(found).get_params()["threshold"] == "balanced_accuracy"
    assert OrthogonalClassifier(**options, threshold=0.999).fit(series, rare).predict(series).sum() == 0
    with pytest.raises(ValueError, match="Expected 2 classes for threshold"):
        OrthogonalClassifier(**SMALL, threshold="f1").fit(X, np.arange(48) % 3)
    with pytest.raises(ValueError, match="Expected a number between 0 and 1"):
        OrthogonalClassifier(**SMALL, threshold="recall").fit(X, Y)


def test_classes_that_were_rounded_before_are_an_error():
    ids = np.array([2**60 + label for label in range(2)])[np.arange(len(X)) % 2]
    assert OrthogonalClassifier(**SMALL).fit(X, ids).classes_.tolist() == [2**60, 2**60 + 1]
    rounded = np.where(np.arange(len(X)) % 3 == 0, 0.0, ids.astype(np.float64))
    with pytest.raises(
        ValueError, match=rf"no rounding can make equal, but got {2**60} as y\[1\] as float64, in which"
    ):
        OrthogonalClassifier(**SMALL).fit(X, rounded)


def test_a_fit_that_fails_leaves_the_classifier_of_the_fit_before():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((20, 6, 2)), np.arange(20) % 2
    classifier = OrthogonalClassifier(steps=3, hidden_size=4).fit(X, y)
    before = classifier.predict_proba(X)
    for other, classes in ((X, np.zeros(20)), (np.full_like(X, np.nan), y)):
        with pytest.raises(ValueError):
            classifier.fit(other, classes)
        assert classifier.classes_.tolist() == [0, 1]
        np.testing.assert_array_equal(classifier.predict_proba(X), before)
    unfitted = OrthogonalClassifier(steps=3)
    with pytest.raises(ValueError, match="at least 2 classes"):
        unfitted.fit(X, np.zeros(20))
    assert not hasattr(unfitted, "classes_")
