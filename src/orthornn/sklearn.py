"""scikit-learn estimators: sequences in, classes or numbers out.

X is an array (n, T, C), or (n, T) for one channel; a list of arrays (T_i, C) or (T_i,) of unequal lengths; or a table
of any library that narwhals knows (pandas, polars), one row a sequence, one column a step. With ``layout="nct"``, the
order of aeon and sktime, arrays are (n, C, T).

The inputs are standardized by the training part. The weights of the best validation are used; the validation part is a
share of the sequences, chosen by `random_state`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ._checks import check_choice, check_integer, check_number
from .errors import MissingPackageError
from .lab.systems import model_named
from .lab.tasks import Batch, Task
from .lab.tasks.sequences import Ragged
from .lab.tasks.splits import divided
from .lab.tasks.task import batch_rows
from .lab.training import OptimizerConfig, RunConfig
from .lab.training.trainer import Trainer

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingPackageError.named("orthornn.sklearn", "scikit-learn", "baselines") from error

__all__ = ["OrthogonalClassifier", "OrthogonalRegressor"]

_EVALUATED = 256  # sequences at once


def sequences_of(X: Any, layout: str = "ntc") -> list[np.ndarray]:
    """Return X as a list of float64 arrays (T_i, C). Raises ValueError if it is none of the forms above."""
    check_choice("layout", layout, ("ntc", "nct"))
    if hasattr(X, "__dataframe__") or hasattr(X, "columns"):
        X = _of_frame(X)
    if hasattr(X, "toarray"):
        raise TypeError("Expected dense sequences, but got a sparse matrix. Convert it with X.toarray().")
    if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) >= 1:
        found = [_numbers(one) for one in X]
        if all(one.ndim == 1 for one in found):
            found = [one[:, None] for one in found]
        elif layout == "nct":
            found = [one.T for one in found]
    else:
        array = _numbers(X)
        if array.ndim == 2:
            array = array[:, None] if layout == "nct" else array[:, :, None]
        if array.ndim != 3:
            raise ValueError(
                f"Expected 2D array or 3D array (n, T, C), but got shape {array.shape}. Reshape your data: one "
                f"sequence is X[None]."
            )
        found = list(array if layout == "ntc" else array.transpose(0, 2, 1))
    if not found:
        raise ValueError(
            "Expected at least one sequence, but found array with 0 sample(s) while a minimum of 1 is required."
        )
    if any(one.ndim != 2 for one in found) or len({one.shape[1] for one in found}) != 1:
        shapes = sorted({one.shape[1:] for one in found})
        raise ValueError(f"Expected sequences (T, C) with one number of channels, but got {shapes[:5]}.")
    if found[0].shape[1] == 0 or min(len(one) for one in found) == 0:
        raise ValueError(
            f"Expected at least one step and one channel, but found array with 0 feature(s) "
            f"(shape={np.shape(found[0])}) while a minimum of 1 is required."
        )
    if not all(np.isfinite(one).all() for one in found):
        raise ValueError("Expected finite numbers, but got NaN or infinity in X. Fill them in; see docs/your_data.md.")
    return found


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers. Give two channels.")
    return array.astype(np.float64)


def _of_frame(frame: Any) -> np.ndarray:
    """Return a table as an array, one row a sequence."""
    try:
        import narwhals
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("tables as X", "narwhals", "baselines") from error
    return np.asarray(narwhals.from_native(frame, eager_only=True).to_numpy())


@dataclass(frozen=True)
class _Arrays(Task):
    """Sequences in memory, standardized, in training and validation; `kind` is that of the targets."""

    name: ClassVar[str] = "arrays"
    input: ClassVar[Literal["tokens", "real"]] = "real"
    output: ClassVar[Literal["all", "last"]] = "last"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    trivial_formula: ClassVar[str] = ""

    rows: Any
    lengths: Any
    targets: Any
    parts: Any
    outputs: int

    @property
    def input_size(self) -> int:
        return self.rows.shape[1]

    @property
    def output_size(self) -> int:
        return self.outputs

    @property
    def steps(self) -> int:
        return int(self.lengths.max())

    @property
    def trivial_loss(self) -> float:
        return 1.0

    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        which = self.parts["train"]
        return self._batch(which[batch_rows(step, batch_size, len(which), seed).numpy()])

    def validation(self, batch_size: int) -> Iterator[Batch]:
        which = self.parts["validation"]
        for start in range(0, len(which), batch_size):
            yield self._batch(which[start : start + batch_size])

    test = validation

    def _batch(self, which: np.ndarray) -> Batch:
        inputs = Ragged(self.lengths).steps(which).take(self.rows)
        return Batch(inputs, self.targets[torch.from_numpy(which)])

    def loss(self, prediction: Tensor, targets: Any) -> Tensor:
        if targets.is_floating_point():
            return (prediction - targets).square().mean()
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Any) -> dict[str, tuple[float, float]]:
        return {"loss": (float(self.loss(prediction, targets)) * len(targets), len(targets))}


class _Estimator(BaseEstimator):
    """The common part of the estimators, and their parameters."""

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
        random_state: int | None = 0,
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

    def _fit(self, sequences: list[np.ndarray], targets: Tensor, outputs: int, strata: list[int] | None) -> None:
        check_integer("steps", self.steps, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_number("validation_share", self.validation_share, 0, 0.9)
        seed = int(np.random.randint(2**31)) if self.random_state is None else int(self.random_state)  # noqa: NPY002
        held = round(self.validation_share * len(sequences))
        which = np.arange(len(sequences))
        parts = {"train": which, "validation": which}
        if held >= 2 and len(sequences) - held >= 2:
            parts = divided(which, {"train": len(which) - held, "validation": held}, seed, strata)
        stacked = np.concatenate([sequences[i] for i in parts["train"]])
        self.mean_ = stacked.mean(0)
        deviation = stacked.std(0)
        self.deviation_ = np.where(deviation > 0, deviation, 1.0)
        lengths = np.array([len(one) for one in sequences])
        rows = self._scaled(np.concatenate(sequences))
        task = _Arrays(rows=rows, lengths=lengths, targets=targets, parts=parts, outputs=outputs)
        batch = min(self.batch_size, len(parts["train"]))
        every = max(10, len(parts["train"]) // batch)
        config = RunConfig(
            task=task,
            model=model_named(self.model, hidden_size=self.hidden_size or 64, **(self.options or {})),
            optimizer=OptimizerConfig(lr=self.lr, clip_norm=self.clip_norm),
            steps=self.steps,
            batch_size=batch,
            seed=seed,
        )
        state = torch.get_rng_state()
        try:
            trainer = Trainer(config)
            best, stale, kept = float("inf"), 0, None
            for step in range(1, self.steps + 1):
                trainer.update()
                if step % every and step != self.steps:
                    continue
                loss = trainer.evaluate(task.validation(_EVALUATED))["loss"]
                stale += 1
                if loss < best:
                    best, stale, kept = loss, 0, copy.deepcopy(trainer.model.state_dict())
                if self.patience is not None and stale >= self.patience:
                    break
        finally:
            torch.set_rng_state(state)
        if kept is not None:
            trainer.model.load_state_dict(kept)
        self.network_ = trainer.model.eval()
        self.validation_loss_ = best
        self.n_iter_ = trainer.step
        self.n_channels_in_ = rows.shape[1]

    def _scaled(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(((rows - self.mean_) / self.deviation_).astype(np.float32))

    @torch.no_grad()
    def _outputs(self, X: Any) -> np.ndarray:
        """Return the network's outputs for each sequence, (n, O) float64."""
        check_is_fitted(self, "network_")
        sequences = sequences_of(X, self.layout)
        self._check_width(X)
        if sequences[0].shape[1] != self.n_channels_in_:
            raise ValueError(
                f"Expected {self.n_channels_in_} channels, as in fit, but got {sequences[0].shape[1]}. Give those of "
                f"fit."
            )
        found = []
        lengths = np.array([len(one) for one in sequences])
        for start in range(0, len(sequences), _EVALUATED):
            own = slice(start, start + _EVALUATED)
            index = Ragged(lengths[own]).steps(np.arange(len(lengths[own])))
            found.append(self.network_(index.take(self._scaled(np.concatenate(sequences[own])))))
        return torch.cat(found).double().numpy()

    def _remember_width(self, X: Any) -> None:
        """Set scikit-learn's own count of features where X is a matrix: then all sequences have one length."""
        self.n_features_in_ = int(np.shape(X)[1]) if not isinstance(X, (list, tuple)) and np.ndim(X) == 2 else None

    def _check_width(self, X: Any) -> None:
        width = getattr(self, "n_features_in_", None)
        if width is not None and not isinstance(X, (list, tuple)) and np.ndim(X) == 2 and np.shape(X)[1] != width:
            raise ValueError(
                f"X has {np.shape(X)[1]} features, but {type(self).__name__} is expecting {width} features as input. "
                f"Give sequences of other lengths as a list."
            )


def _same_count(sequences: list[np.ndarray], y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None. Give one target for each sequence.")
    targets = np.asarray(y)
    if targets.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers as y.")
    if len(targets) != len(sequences):
        raise ValueError(f"Expected {len(sequences)} targets, one for each sequence, but got {len(targets)}.")
    return targets


class OrthogonalClassifier(ClassifierMixin, _Estimator):
    """A classifier of sequences.

    Args:
        model: Name of a network, as on the command line: "blocks", "ornn-rotations", "lstm", "gru", ...
        hidden_size: Its width. Default: 64.
        options: More options of the network, such as ``{"depth": 3}``.
        steps: Updates.
        lr: Learning rate.
        batch_size: Sequences per update.
        clip_norm: Bound of the gradient's norm; None for no bound.
        validation_share: Share of the sequences by which the best weights are chosen.
        patience: Stop after so many validations without a better one; None to use all steps.
        layout: "ntc" or "nct": the order of the axes of X.
        random_state: Of the initial values, the batches and the validation part.

    Attributes:
        classes_: The classes.
        network_: The trained torch module.

    Example::

        >>> X, y = np.random.default_rng(0).standard_normal((20, 7, 2)), np.arange(20) % 2
        >>> OrthogonalClassifier(steps=3, hidden_size=4).fit(X, y).predict(X).shape
        (20,)
    """

    def fit(self, X: Any, y: Any) -> OrthogonalClassifier:
        """Train on sequences X and their classes y (n,); return self."""
        sequences = sequences_of(X, self.layout)
        targets = _same_count(sequences, y)
        check_classification_targets(targets)
        if targets.ndim == 2 and targets.shape[1] == 1:
            import warnings

            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Change it to y.ravel().",
                DataConversionWarning,
                stacklevel=2,
            )
            targets = targets.ravel()
        self.classes_, codes = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Expected at least 2 classes, but got one class, {self.classes_[0]!r}. Add another class."
            )
        self._remember_width(X)
        self._fit(sequences, torch.from_numpy(codes.ravel()), len(self.classes_), codes.ravel().tolist())
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, classes)."""
        outputs = self._outputs(X)
        exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return classes (n,)."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]


class OrthogonalRegressor(RegressorMixin, _Estimator):
    """A regressor of sequences: one number, or O numbers, for each; the parameters are those of OrthogonalClassifier.

    Example::

        >>> X = np.random.default_rng(0).standard_normal((20, 7, 2))
        >>> OrthogonalRegressor(steps=3, hidden_size=4).fit(X, X[:, -1, 0]).predict(X).shape
        (20,)
    """

    def fit(self, X: Any, y: Any) -> OrthogonalRegressor:
        """Train on sequences X and their targets y, (n,) or (n, O); return self."""
        sequences = sequences_of(X, self.layout)
        targets = _same_count(sequences, y).astype(np.float64)
        if not np.isfinite(targets).all():
            raise ValueError("Expected finite numbers, but got NaN or infinity in y. Leave such sequences out.")
        self.flat_ = targets.ndim == 1
        columns = targets.reshape(len(targets), -1)
        self.target_mean_ = columns.mean(0)
        deviation = columns.std(0)
        self.target_deviation_ = np.where(deviation > 0, deviation, 1.0)
        standard = ((columns - self.target_mean_) / self.target_deviation_).astype(np.float32)
        self._remember_width(X)
        self._fit(sequences, torch.from_numpy(standard), columns.shape[1], None)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return numbers, (n,) or (n, O) as y in fit."""
        outputs = self._outputs(X)
        found = outputs * self.target_deviation_ + self.target_mean_
        return found[:, 0] if self.flat_ else found
