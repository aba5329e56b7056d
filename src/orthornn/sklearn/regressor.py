"""Numbers of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin

from .estimator import SequenceEstimator
from .sequences import sequences_of, targets_of


class OrthogonalRegressor(RegressorMixin, SequenceEstimator):
    """A regressor of sequences: one number, or O numbers, for each; the parameters are those of OrthogonalClassifier.

    Example::

        >>> X = np.random.default_rng(0).standard_normal((20, 7, 2))
        >>> OrthogonalRegressor(steps=3, hidden_size=4).fit(X, X[:, -1, 0]).predict(X).shape
        (20,)
    """

    def fit(self, X: Any, y: Any) -> OrthogonalRegressor:
        """Train on sequences X and their targets y, (n,) or (n, O); return self."""
        sequences = sequences_of(X, self.layout)
        targets = targets_of(sequences, y).astype(np.float64)
        if not np.isfinite(targets).all():
            raise ValueError("Expected finite numbers, but got NaN or infinity in y. Leave such sequences out.")
        self.flat_ = targets.ndim == 1
        columns = targets.reshape(len(targets), -1)
        self.target_mean_ = columns.mean(0)
        deviation = columns.std(0)
        self.target_deviation_ = np.where(deviation > 0, deviation, 1.0)
        standard = ((columns - self.target_mean_) / self.target_deviation_).astype(np.float32)
        self._remember_width(X)
        self._fit(sequences, torch.from_numpy(standard), columns.shape[1])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return numbers, (n,) or (n, O) as y in fit."""
        outputs = self._outputs(X)
        found = outputs * self.target_deviation_ + self.target_mean_
        return found[:, 0] if self.flat_ else found
