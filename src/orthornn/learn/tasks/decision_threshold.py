"""The probability of the second of two classes from which on it is predicted.

It is a number, or the one with the best value of a metric on the validation part: accuracy, balanced_accuracy, or f1, the
mean of both classes (classification_metrics.py). Between two probabilities that are there it is in the middle; among equally
good ones it is 1/2, or the one that is nearest to 1/2.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...errors import ArgumentError

METRICS = ("accuracy", "balanced_accuracy", "f1")
USUAL = 0.5


def read_threshold(text: str) -> str | float:
    """Return the metric that an option names, or its number. ArgumentError if it is neither."""
    if text in METRICS:
        return text
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not 0 < found < 1:
        raise ArgumentError(
            f"Expected a number between 0 and 1 or one of {', '.join(METRICS)} for threshold, but got {text!r}. Name the "
            f"metric by which validation is to choose."
        )
    return found


def best_threshold(
    probabilities: np.ndarray, second: np.ndarray, metric: str, weights: np.ndarray | None = None
) -> float:
    """Return the threshold with the best value of a metric.

    Args:
        probabilities: Of the second class, (rows,).
        second: Whether the row is of that class, bool (rows,).
        metric: One of METRICS.
        weights: How often each row counts, (rows,), above 0. Default: None, once.
    """
    order = np.argsort(probabilities, kind="stable")
    sorted_ = probabilities[order].astype(np.float64)
    counts = np.ones(len(order), np.int64) if weights is None else weights[order]
    positive, negative = counts * second[order], counts * ~second[order]
    edges = np.flatnonzero(np.diff(sorted_) > 0) + 1  # before which row a threshold can be
    below = np.array([0, *edges, len(sorted_)])
    ends = np.concatenate([[0.0], sorted_, [1.0]])
    between = (ends[below] + ends[below + 1]) / 2
    missed = np.concatenate([[0], positive.cumsum()])[below]  # of the second class, below the threshold
    rejected = np.concatenate([[0], negative.cumsum()])[below]
    scores = _scores(missed, rejected, positive.sum(), negative.sum(), metric)
    possible = (between > ends[below]) & (between < 1)  # else it is not between them, as near probabilities of 0 and 1
    between, scores = between[possible], scores[possible]
    usual = int(np.searchsorted(sorted_, USUAL))
    gone, away = positive[:usual].sum(), negative[:usual].sum()
    own = _scores(np.array([gone]), np.array([away]), positive.sum(), negative.sum(), metric)[0]
    if not len(scores) or own >= scores.max():
        return USUAL
    best = between[scores == scores.max()]
    return float(best[np.abs(best - USUAL).argmin()])


def decided(outputs: Tensor, threshold: float | None) -> Tensor:
    """Return the classes (...) of outputs (..., K): the largest, or with a threshold the second from it on."""
    if threshold is None:
        return outputs.argmax(-1)
    return (outputs.double().softmax(-1)[..., 1] >= threshold).long()


def decided_of(probabilities: np.ndarray, threshold: float | None) -> np.ndarray:
    """Return the same from probabilities (rows, K)."""
    return probabilities.argmax(1) if threshold is None else (probabilities[:, 1] >= threshold).astype(np.int64)


def _scores(missed: np.ndarray, rejected: np.ndarray, positives: float, negatives: float, metric: str) -> np.ndarray:
    """Return the metric of each threshold. missed: Of the second class below it. rejected: Of the first class below it."""
    hits = positives - missed
    if metric == "accuracy":
        return (hits + rejected) / (positives + negatives)
    if metric == "balanced_accuracy":
        return np.mean([own / count for own, count in ((hits, positives), (rejected, negatives)) if count], 0)
    said = hits + negatives - rejected
    parts = [
        2 * own / (count + there)
        for own, count, there in ((hits, positives, said), (rejected, negatives, missed + rejected))
        if count
    ]
    return np.mean(parts, 0)
