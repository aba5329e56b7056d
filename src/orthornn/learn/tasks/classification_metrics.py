"""Metrics of a classifier beyond its accuracy, from probabilities; a class that no target has does not count.

f1                 the mean over classes of 2 hits / (predicted + there)
balanced_accuracy  the mean over classes of the share of its targets that are found
roc_auc            the mean over classes of the chance that a target of the class has a higher probability of it than
                   another target; with two classes that is the same for both
confusion          [there][predicted]: how often
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .decision_threshold import decided_of


def classification_scores(
    probabilities: np.ndarray, classes: np.ndarray, threshold: float | None = None
) -> dict[str, Any]:
    """Return f1, balanced_accuracy, roc_auc (None without two classes) and the confusion matrix as lists.

    Args:
        probabilities: (rows, K). classes: (rows,) in 0..K-1.
        threshold: Of two classes the second is predicted from this probability on. Default: the likelier one.
    """
    K = probabilities.shape[1]
    confusion = np.zeros((K, K), np.int64)
    np.add.at(confusion, (classes, decided_of(probabilities, threshold)), 1)
    there, said, hits = confusion.sum(1), confusion.sum(0), confusion.diagonal()
    known = there > 0
    f1 = 2 * hits[known] / (there + said)[known]
    areas = [_area(probabilities[:, k], classes == k) for k in range(K)]
    found = [area for area in areas if area is not None]
    return {
        "f1": float(f1.mean()),
        "balanced_accuracy": float((hits[known] / there[known]).mean()),
        "roc_auc": float(np.mean(found)) if found else None,
        "confusion": confusion.tolist(),
    }


def _area(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """The area under the curve of hits over false alarms: by ranks, equal scores sharing theirs."""
    count = int(positive.sum())
    if not 0 < count < len(scores):
        return None
    _, places, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (sizes.cumsum() - (sizes - 1) / 2)[places]
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(scores) - count)))
