"""Regression of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from .._masked import as_array
from .estimator import SequenceEstimator, moments, restore_on_error
from .sequences import check_order, rounded, sequences_of, targets_of
from .weights import weights_of


class OrthogonalRegressor(RegressorMixin, SequenceEstimator):
    """A regressor of sequences: one number, or O numbers, per sequence. The parameters are those of
    OrthogonalClassifier.

    Attributes:
        network_: The trained torch module.
        feature_names_in_: Names of the columns, if X has names; `predict` requires the same names in the same order.

    Example::

        >>> X = np.random.default_rng(0).standard_normal((20, 7, 2))
        >>> OrthogonalRegressor(steps=3, hidden_size=4).fit(X, X[:, -1, 0]).predict(X).shape
        (20,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OrthogonalRegressor:
        """Train on sequences X and their targets y, (n,) or (n, O), and return self.

        sample_weight: Weights (n,) of the sequences in the loss; only their ratios matter. A sequence of weight 0 is
            left out. Default: None, equal weights.
        """
        with restore_on_error(self):
            sequences = sequences_of(X, self.layout)
            targets = _numbers(targets_of(sequences, y, X))
            check_order(X, sample_weight, "sample_weight")
            if not np.isfinite(targets).all():
                raise ValueError("Expected finite numbers, but got NaN or infinity in y. Leave such sequences out.")
            weights = weights_of(sample_weight, len(sequences))
            if weights is not None:
                kept = np.flatnonzero(weights)
                sequences, targets, weights = [sequences[place] for place in kept], targets[kept], weights[kept]
            self.flat_ = targets.ndim == 1
            columns = targets.reshape(len(targets), -1)
            self._remember_width(X)
            self._fit(sequences, columns, columns.shape[1], weights=weights)
            return self

    def _standardized(self, targets: np.ndarray, train: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        own = None if weights is None else weights[train]
        self.target_mean_, self.target_deviation_ = moments(targets[train], "y", own)
        return ((targets - self.target_mean_) / self.target_deviation_).astype(np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """Return numbers, (n,) or (n, O), like y in fit."""
        outputs = self._outputs(X)
        found = outputs * self.target_deviation_ + self.target_mean_
        return found[:, 0] if self.flat_ else found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination of the predictions for X; y and sample_weight are the same as in
        fit.
        """
        check_order(X, y)
        check_order(X, sample_weight, "sample_weight")
        weights = weights_of(sample_weight, len(y))
        return float(super().score(X, as_array(y), weights))


def _numbers(targets: np.ndarray) -> np.ndarray:
    """Return targets as float64. Raise ValueError for dates and text."""
    if targets.dtype.kind not in "mM":
        try:
            targets.astype(np.float64)
        except (TypeError, ValueError):
            pass
        else:
            return rounded(targets)
    raise ValueError(
        f"Expected numbers as y, but got values such as {targets.flat[0]!r}. For classes, use OrthogonalClassifier."
    )
