"""Classification of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from .._masked import as_array
from .._warnings import warn
from ..learn.files.rounded_targets import check_names
from ..learn.tasks.decision_threshold import best_threshold, decided, read_threshold
from .estimator import SequenceEstimator, restore_on_error
from .sequences import check_order, sequences_of, targets_of
from .weights import weights_of, with_class_weights


class OrthogonalClassifier(ClassifierMixin, SequenceEstimator):
    """A classifier of sequences.

    Training works as in ``orthornn train FILE``: a tenth of each label is spread over the classes by their frequencies,
    which prevents the network from being wrong with certainty. Among validations with the best accuracy, the latest
    counts.

    Args:
        model: Name of a network, as on the command line: "blocks", "ornn-rotations", "lstm", "gru", ...
        hidden_size: Number of hidden units. Default: None, the largest width with at most 12000 parameters.
        options: More options of the network, such as ``{"depth": 3}``. Default: None, the options of
            ``orthornn train FILE``: the readout uses the mean of all outputs, dropout is 0.2 for classes, and blocks
            forget.
        steps: Number of updates.
        lr: Learning rate.
        batch_size: Sequences per update.
        clip_norm: Bound on the norm of the gradient; None for no bound.
        validation_share: Share of the sequences that choose the best weights. If it leaves fewer than 2 sequences for
            training or validation, all sequences are used for both, with a warning; 0 requests this.
        patience: Stop after this many validations without improvement; None to use all steps.
        layout: ``"ntc"`` or ``"nct"``: the order of the axes of X.
        random_state: Seed of the initial values, the batches and the validation part: an integer, a
            numpy.random.RandomState, or None for different numbers on each call.
        threshold: With two classes, the probability of the second, in the order of `classes_`, from which it is
            predicted; or ``"accuracy"``, ``"balanced_accuracy"`` or ``"f1"`` to choose it by this metric on the
            validation part. Default: None, which predicts the likelier class.
        class_weight: Weights of the classes in the loss: a dict such as ``{"rare": 10}``, with weight 1 for classes not
            in it; or ``"balanced"`` to give every class the same total weight. Default: None, the same weight for every
            sequence.

    Attributes:
        classes_: The classes.
        threshold_: The threshold, or None.
        network_: The trained torch module.
        feature_names_in_: Names of the columns, if X has names; `predict` requires the same names in the same order.

    Example::

        >>> X, y = np.random.default_rng(0).standard_normal((20, 7, 2)), np.arange(20) % 2
        >>> OrthogonalClassifier(steps=3, hidden_size=4).fit(X, y).predict(X).shape
        (20,)
    """

    _dropout: ClassVar[float | None] = 0.2

    def __init__(
        self,
        model: str = "blocks",
        *,
        hidden_size: int | None = None,
        options: dict[str, Any] | None = None,
        steps: int = 600,
        lr: float = 3e-3,
        batch_size: int = 32,
        clip_norm: float | None = 1.0,
        validation_share: float = 0.15,
        patience: int | None = 10,
        layout: Literal["ntc", "nct"] = "ntc",
        random_state: int | np.random.RandomState | None = 0,
        threshold: str | float | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
    ) -> None:
        super().__init__(
            model,
            hidden_size=hidden_size,
            options=options,
            steps=steps,
            lr=lr,
            batch_size=batch_size,
            clip_norm=clip_norm,
            validation_share=validation_share,
            patience=patience,
            layout=layout,
            random_state=random_state,
        )
        self.threshold = threshold
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OrthogonalClassifier:
        """Train on sequences X and their classes y (n,), and return self.

        sample_weight: Weights (n,) of the sequences in the loss, multiplied by those in `class_weight`; only their
            ratios matter. A sequence of weight 0 is left out, but its class stays in `classes_`. The weights also count
            in the choice of `threshold`. Default: None, equal weights.
        """
        with restore_on_error(self):
            sequences = sequences_of(X, self.layout)
            targets = targets_of(sequences, y, X)
            check_order(X, sample_weight, "sample_weight")
            _check_classes(targets)
            check_classification_targets(targets)
            if targets.ndim == 2 and targets.shape[1] == 1:
                warn(
                    "A column-vector y was passed when a 1d array was expected. Change it to y.ravel().",
                    DataConversionWarning,
                )
                targets = targets.ravel()
            self.classes_, codes = np.unique(targets, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"Expected at least 2 classes, but got one class, {self.classes_.tolist()[0]!r}. Add another class."
                )
            asked = None if self.threshold is None else read_threshold(str(self.threshold))
            if asked is not None and len(self.classes_) != 2:
                raise ValueError(
                    f"Expected 2 classes for threshold={self.threshold!r}, but got {len(self.classes_)}. Leave the "
                    f"threshold out."
                )
            codes, given = codes.ravel(), weights_of(sample_weight, len(sequences))
            weights = with_class_weights(given, self.class_weight, self.classes_, codes)
            if weights is not None:
                kept = np.flatnonzero(weights)
                sequences, codes, weights = [sequences[place] for place in kept], codes[kept], weights[kept]
                given = None if given is None else given[kept]
                if codes.min() == codes.max():
                    one = self.classes_.tolist()[codes[0]]
                    raise ValueError(
                        f"Expected at least 2 classes with a weight above 0, but got one class, {one!r}. Weight another one."
                    )
            self._remember_width(X)
            held = self._fit(sequences, codes, len(self.classes_), codes.tolist(), weights=weights)
            self.threshold_ = asked if isinstance(asked, float) else None
            if isinstance(asked, str):
                outputs = torch.from_numpy(self._outputs_of([sequences[place] for place in held]))
                own = None if given is None else given[held]
                self.threshold_ = best_threshold(outputs.softmax(1)[:, 1].numpy(), codes[held] == 1, asked, own)
            return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, classes)."""
        return torch.from_numpy(self._outputs(X)).softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return classes (n,)."""
        outputs = self._outputs(X)
        return self.classes_[decided(torch.from_numpy(outputs), self.threshold_).numpy()]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions for X; y and sample_weight are the same as in fit."""
        check_order(X, y)
        check_order(X, sample_weight, "sample_weight")
        weights = weights_of(sample_weight, len(y))
        return float(super().score(X, as_array(y), weights))


def _check_classes(targets: np.ndarray) -> None:
    """Raise ValueError unless every sequence has one class, all of one kind, with none missing or rounded."""
    if targets.ndim == 2 and targets.shape[1] != 1:
        raise ValueError(
            f"Expected y (n,), one class for each sequence, but got an array of shape {targets.shape}. Fit one classifier "
            f"for each column."
        )
    check_names(targets.ravel(), lambda row: f"as y[{row}]", ValueError)
    if targets.dtype == object:
        cells = targets.ravel().tolist()
        missing = next((place for place, cell in enumerate(cells) if _is_missing(cell)), None)
        if missing is not None:
            raise ValueError(
                f"Expected a class for each sequence, but got {cells[missing]!r} as y[{missing}]. Leave this sequence out."
            )
        kinds = sorted({type(cell).__name__ for cell in cells})
        if len(kinds) > 1 and "str" in kinds:
            raise ValueError(f"Expected classes of one kind, but got {' and '.join(kinds)} in y. Write all as text.")


def _is_missing(cell: object) -> bool:
    try:
        return cell is None or bool(cell != cell)
    except TypeError:  # NA of pandas
        return True
