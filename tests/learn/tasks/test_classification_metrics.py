"""The metrics of classifiers are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from orthornn.learn.tasks.classification_metrics import classification_scores

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("K", [2, 4])
def test_the_metrics_are_scikit_learns(K):
    probabilities = RANDOM.dirichlet(np.ones(K), 60).round(2)  # with ties
    probabilities /= probabilities.sum(1, keepdims=True)
    classes = RANDOM.integers(K, size=60)
    found = classification_scores(probabilities, classes)
    said = probabilities.argmax(1)
    assert found["f1"] == pytest.approx(metrics.f1_score(classes, said, average="macro"))
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(classes, said))
    of_each = [metrics.roc_auc_score(classes == k, probabilities[:, k]) for k in range(K)]
    assert found["roc_auc"] == pytest.approx(np.mean(of_each))
    assert found["confusion"] == metrics.confusion_matrix(classes, said).tolist()


def test_a_class_that_is_not_there_does_not_count():
    probabilities = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    found = classification_scores(probabilities, np.array([0, 1, 1]))
    assert found["balanced_accuracy"] == pytest.approx(0.75)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["roc_auc"] == pytest.approx(1.0)
    one = classification_scores(probabilities, np.zeros(3, int))
    assert one["roc_auc"] is None
    assert one["balanced_accuracy"] == pytest.approx(2 / 3)
