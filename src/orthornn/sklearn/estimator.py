"""The base of the estimators: their parameters, training, and the outputs of the trained network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._checks import check_integer, check_number
from .._recording import recording
from .._warnings import warn
from ..learn.in_memory import train_in_memory
from ..learn.systems import Model, model_named
from ..learn.tasks.sequences import Ragged
from ..learn.tasks.splits import divided
from .arrays_task import ArraysTask, ClassesTask
from .sequences import names_of, sequences_of
from .weights import scaled

_EVALUATED = 256  # sequences at once
_SHOWN = 5  # names in a message
_BUDGET = 12_000  # parameters, where no width is given
_SMOOTHING = 0.1  # of classes
_OPTIONS: dict[str, Any] = {"pool": "mean"}  # of any network; see docs/results/own_data.md
_OWN_OPTIONS: dict[str, dict[str, Any]] = {"blocks": {"decay": True}, "lstm": {"forget_bias": 1.0}}


def whole(value: Any) -> Any:
    """Return a NumPy integer, as a grid search over an array passes them, as an int; return anything else unchanged."""
    return int(value) if isinstance(value, np.integer) else value


@contextlib.contextmanager
def restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """On an error, restore the estimator: its attributes of an earlier fit, or none.

    Gradients are recorded even if the caller has disabled them.
    """
    before = dict(vars(estimator))
    try:
        with recording():
            yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class SequenceEstimator(BaseEstimator):
    """The base of the estimators, with their parameters."""

    _dropout: ClassVar[float | None] = None

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
    ) -> None:
        self.model = model
        self.hidden_size = hidden_size
        self.options = options
        self.steps = steps
        self.lr = lr
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.validation_share = validation_share
        self.patience = patience
        self.layout = layout
        self.random_state = random_state

    def _fit(
        self,
        sequences: list[np.ndarray],
        targets: np.ndarray,
        outputs: int,
        strata: list[int] | None = None,
        *,
        known: int = 0,
        past: Sequence[int] = (),
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Train, and return which sequences were used for validation.

        targets: Class numbers (n,), or numbers (n, O) in the units of the data.
        past: For each output, the channel that contains its past; see ArraysTask for `known`.
        weights: Weights of the sequences in the loss and in the scale of the inputs, (n,), all above 0. Default: None,
            1.
        """
        steps = check_integer("steps", whole(self.steps), 1)
        if self.patience is not None:
            check_integer("patience", whole(self.patience), 1)
        batch_size = check_integer("batch_size", whole(self.batch_size), 1)
        check_number("validation_share", self.validation_share, 0, 0.9)
        seed = self._seed()
        parts = self._divided(len(sequences), seed, strata)
        if weights is not None and weights.min() == weights.max():
            weights = None
        standard = torch.from_numpy(self._standardized(targets, parts["train"], weights))
        stacked = np.concatenate([sequences[i] for i in parts["train"]])
        lengths = np.array([len(one) for one in sequences])
        own = None if weights is None else np.repeat(weights[parts["train"]], lengths[parts["train"]])
        self.mean_, self.deviation_ = moments(stacked, "X", own)
        rows = self._scaled(np.concatenate(sequences))
        factors = [(place, float(self.deviation_[place] / self.target_deviation_[place])) for place in past]
        scale = None if weights is None else scaled(weights, parts)
        kind = ArraysTask if standard.is_floating_point() else ClassesTask
        task = kind(rows, lengths, standard, parts, outputs, scale, known, factors)
        batch = min(batch_size, len(parts["train"]))
        options = {
            **{"optimizer": "adamw", "lr": self.lr, "decoupled_decay": 0.05, "clip_norm": self.clip_norm},
            **{"schedule": "cosine", "warmup": min(50, steps // 10), "steps": steps, "batch_size": batch, "seed": seed},
            **{"label_smoothing": _SMOOTHING if kind is ClassesTask else 0.0, "patience": self.patience},
            **{"validate_every": max(10, len(parts["train"]) // batch), "evaluation_batch": _EVALUATED},
        }
        smaller = "Lower lr, or set clip_norm=1." if self.clip_norm is None else "Lower lr."
        fitted = train_in_memory(task, self._model(), options, smaller)
        self.network_, self.n_iter_, self.validation_loss_ = fitted.model, fitted.steps, fitted.best["loss"]
        self.n_channels_in_ = rows.shape[1]
        return parts["validation"]

    def _divided(self, count: int, seed: int, strata: list[int] | None) -> dict[str, np.ndarray]:
        """Divide the sequences into training and validation; if there are too few, use all for both."""
        which, held = np.arange(count), round(self.validation_share * count)
        if held >= 2 and count - held >= 2:
            return divided(which, {"train": count - held, "validation": held}, seed, strata)
        if self.validation_share > 0:
            warn(
                f"The weights are chosen on the sequences that they are trained on: validation_share="
                f"{self.validation_share:g} leaves {count - held} of {count} sequences for training and {held} for "
                f"validation, fewer than 2. Pass more sequences, or another validation_share (0 if this is intended). To "
                f"silence this, use warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
            )
        return {"train": which, "validation": which}

    def _standardized(self, targets: np.ndarray, train: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return targets in the form that the network predicts; numbers are scaled by the training targets.

        train: Which targets are for training. weights: Weights of all sequences, or None.
        """
        return targets

    def _model(self) -> Model:
        """The network; given options take precedence over defaults."""
        own = {name: whole(value) for name, value in (self.options or {}).items()}
        if self.hidden_size is None:
            size = {} if {"hidden_size", "parameters"} & {*own} else {"parameters": _BUDGET}
        else:
            size = {"hidden_size": whole(self.hidden_size)}
            self._refuse("hidden_size", "hidden_size", "parameters")
        usual = {**_OPTIONS, **({} if self._dropout is None else {"dropout": self._dropout})}
        return model_named(self.model, **{**size, **usual, **_OWN_OPTIONS.get(self.model, {}), **own})

    def _refuse(self, parameter: str, *options: str) -> None:
        """Raise ValueError if an option repeats a parameter of the estimator."""
        given = [name for name in options if name in (self.options or {})]
        if given:
            raise ValueError(
                f"Expected {parameter} once, but got {parameter}={getattr(self, parameter)!r} and options with {given[0]!r}. "
                f"Leave it out of options."
            )

    def _seed(self) -> int:
        """Return random_state, or a number drawn from it if it is a generator or None, as scikit-learn does."""
        if isinstance(self.random_state, (int, np.integer)):
            return check_integer("random_state", int(self.random_state), 0)
        return int(check_random_state(self.random_state).randint(2**31))

    def _scaled(self, rows: np.ndarray) -> Tensor:
        with np.errstate(over="ignore"):
            scaled = ((rows - self.mean_) / self.deviation_).astype(np.float32)
        if not np.isfinite(scaled).all():
            raise ValueError(
                "Expected numbers about as large as in fit, but got larger ones than float32 holds, in units of their "
                "standard deviation. Scale X as in fit."
            )
        return torch.from_numpy(scaled)

    def _outputs(self, X: Any) -> np.ndarray:
        """Return the network's outputs for each sequence, (n, O) float64."""
        check_is_fitted(self, "network_")
        self._check_names(names_of(X))
        sequences = sequences_of(X, self.layout)
        self._check_width(X)
        if sequences[0].shape[1] != self.n_channels_in_:
            raise ValueError(
                f"Expected {self.n_channels_in_} channels, as in fit, but got {sequences[0].shape[1]}. Pass the same "
                f"channels."
            )
        return self._outputs_of(sequences)

    @torch.no_grad()
    def _outputs_of(self, sequences: list[np.ndarray]) -> np.ndarray:
        found = []
        lengths = np.array([len(one) for one in sequences])
        for start in range(0, len(sequences), _EVALUATED):
            own = slice(start, start + _EVALUATED)
            index = Ragged(lengths[own]).steps(np.arange(len(lengths[own])))
            found.append(self.network_(index.take(self._scaled(np.concatenate(sequences[own])))))
        return torch.cat(found).double().numpy()

    def _remember_width(self, X: Any) -> None:
        """Set scikit-learn's count of features if X is a matrix, in which all sequences have equal length, and the
        names.
        """
        self.n_features_in_ = _width(X)
        names = names_of(X)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_width(self, X: Any) -> None:
        width, found = getattr(self, "n_features_in_", None), _width(X)
        if width is not None and found not in (None, width):
            raise ValueError(
                f"X has {found} features, but {type(self).__name__} is expecting {width} features as input. "
                f"Pass sequences of other lengths as a list."
            )

    def _check_names(self, names: list[str] | None) -> None:
        """Raise ValueError if columns have other names than in fit, or another order, as scikit-learn does."""
        fitted = None if not hasattr(self, "feature_names_in_") else self.feature_names_in_.tolist()
        kind = type(self).__name__
        if names is None or fitted is None:
            if names is not None:
                warn(f"X has feature names, but {kind} was fitted without feature names", UserWarning)
            elif fitted is not None:
                said = f"X does not have valid feature names, but {kind} was fitted with feature names"
                warn(said, UserWarning)
            return
        if names == fitted:
            return
        lines = ["The feature names should match those that were passed during fit."]
        for head, found in (
            ("Feature names unseen at fit time:", sorted(set(names) - set(fitted))),
            ("Feature names seen at fit time, yet now missing:", sorted(set(fitted) - set(names))),
        ):
            if found:
                lines += [head, *(f"- {name}" for name in found[:_SHOWN]), *(["- ..."] if len(found) > _SHOWN else [])]
        if len(lines) == 1:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise ValueError("\n".join(lines) + "\n")


def moments(columns: np.ndarray, which: str, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of columns (R, C), 1 for a constant. Raise ValueError if they
    overflow.

    weights: Weights of the rows (R,), above 0. Default: None, equal weights.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if weights is None or weights.min() == weights.max():
            mean, deviation = columns.mean(0), columns.std(0)
        else:
            own = weights / weights.max()
            mean = np.average(columns, 0, own)
            deviation = np.sqrt(np.average(np.square(columns - mean), 0, own))
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise ValueError(
            f"Expected numbers in {which} whose squares float64 holds, but got larger ones. Divide {which} by a constant."
        )
    # of a constant such as 0.1 rounding leaves a deviation that is not 0
    return mean, np.where((deviation > 0) & (columns.min(0) < columns.max(0)), deviation, 1.0)


def _width(X: Any) -> int | None:
    """Return the number of columns of a matrix, or of an object that can be converted to an array; otherwise None."""
    if isinstance(X, (list, tuple)):
        return None
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    return int(shape[1]) if len(shape) == 2 else None
