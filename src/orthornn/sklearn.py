"""scikit-learn estimators: sequences in, classes or numbers out.

X is an array (n, T, C), or (n, T) for one channel; a list of arrays (T_i, C) or (T_i,) of unequal lengths; or a table of any
library that narwhals knows (pandas, polars), one row a sequence, one column a step. A table of pandas with an index of two
levels, sequence and time, is one row a step, one column a channel. With ``layout="nct"``, the order of aeon and sktime,
arrays are (n, C, T), and those of a list (C, T_i).

The inputs are standardized by the training part. The weights of the best validation are used; the validation part is a
share of the sequences, chosen by `random_state`.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ._checks import check_choice, check_integer, check_number
from .errors import MissingPackageError
from .lab.systems import Model, model_named
from .lab.tasks import Batch, Task
from .lab.tasks.decision_threshold import best_threshold, decided, read_threshold
from .lab.tasks.linear_start import start_linear
from .lab.tasks.sequences import Ragged
from .lab.tasks.splits import divided
from .lab.tasks.task import batch_rows
from .lab.training import OptimizerConfig, RunConfig, ScheduleConfig
from .lab.training.trainer import Trainer

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingPackageError.named("orthornn.sklearn", "scikit-learn", "baselines") from error

__all__ = ["OrthogonalClassifier", "OrthogonalForecaster", "OrthogonalRegressor"]

_EVALUATED = 256  # sequences at once
_BUDGET = 12_000  # parameters, where no width is given
_OPTIONS: dict[str, Any] = {"pool": "mean"}  # of any network; see docs/results/own_data.md
_OWN_OPTIONS: dict[str, dict[str, Any]] = {"blocks": {"decay": True}}


def sequences_of(X: Any, layout: str = "ntc") -> list[np.ndarray]:
    """Return X as a list of float64 arrays (T_i, C). Raises ValueError if it is none of the forms above."""
    check_choice("layout", layout, ("ntc", "nct"))
    if hasattr(X, "__dataframe__") or hasattr(X, "columns"):
        X = _of_frame(X, layout)
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
        raise ValueError(
            "Expected finite numbers, but got NaN or infinity in X. Fill them in; see docs/how_to/your_data.md."
        )
    return found


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers. Give two channels.")
    return array.astype(np.float64)


def _of_frame(frame: Any, layout: str) -> Any:
    """Return a table as an array, one row a sequence; or as a list, one sequence for each value of an index of two levels."""
    if getattr(getattr(frame, "index", None), "nlevels", 1) == 2:
        found = [_numbers(own.to_numpy()) for _, own in frame.groupby(level=0, sort=False)]
        return [one.T for one in found] if layout == "nct" else found
    try:
        import narwhals
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("tables as X", "narwhals", "baselines") from error
    table = narwhals.from_native(frame, eager_only=True)
    words = [name for name, kind in table.schema.items() if not (kind.is_numeric() or kind == narwhals.Boolean)]
    if words and not all(_is_number(cell) for name in words for cell in table[name].to_list()):
        raise ValueError(
            f"Expected columns of numbers in X, one for each step, but got {words[0]!r}. A table with one row per step and "
            f"columns for names is for orthornn.train."
        )
    return np.asarray(table.to_numpy())


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float, np.number))


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
    known: int = 0  # how many of the channels, the last ones, are values of later steps
    past: Any = ()  # for each output the channel that is its own past, and the factor between their standardized values

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

    def preprocessing(self) -> dict[str, Any]:
        own = self.input_size - self.known
        return {"leads": [0] * own + [1] * self.known} if self.known else {}

    def train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        which = self.parts["train"]
        return self._batch(which[batch_rows(step, batch_size, len(which), seed).numpy()])

    def validation(self, batch_size: int) -> Iterator[Batch]:
        which = self.parts["validation"]
        for start in range(0, len(which), batch_size):
            yield self._batch(which[start : start + batch_size])

    test = validation

    def warm_start(self, model: Any) -> bool:
        """Start from linear regression where the model reads the last steps."""
        if model.recent is None:
            return False
        rows, ends = self.rows.double().numpy(), np.cumsum(self.lengths) - 1
        places = np.maximum(ends[:, None] - np.arange(model.recent.lags), ends[:, None] + 1 - self.lengths[:, None])
        own = rows[places[:, 1:], : rows.shape[1] - self.known].reshape(len(ends), -1)
        lagged, targets = np.concatenate([rows[ends], own], 1), self.targets.double().numpy()
        train, validation = ((lagged[own], targets[own]) for own in (self.parts["train"], self.parts["validation"]))
        start_linear(model, train, validation, self.past)
        return True

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

    _in_order: ClassVar[bool] = False  # the last sequences are those for validation
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

    def _fit(
        self,
        sequences: list[np.ndarray],
        targets: Tensor,
        outputs: int,
        strata: list[int] | None = None,
        *,
        known: int = 0,
        past: Sequence[int] = (),
    ) -> np.ndarray:
        """Train, and return which sequences were for validation.

        past: For each output the channel that is its own past; see _Arrays for `known`.
        """
        check_integer("steps", self.steps, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_number("validation_share", self.validation_share, 0, 0.9)
        seed = int(np.random.randint(2**31)) if self.random_state is None else int(self.random_state)  # noqa: NPY002
        held = round(self.validation_share * len(sequences))
        which = np.arange(len(sequences))
        parts = {"train": which, "validation": which}
        if held >= 2 and len(sequences) - held >= 2 and self._in_order:
            parts = {"train": which[: len(which) - held], "validation": which[len(which) - held :]}
        elif held >= 2 and len(sequences) - held >= 2:
            parts = divided(which, {"train": len(which) - held, "validation": held}, seed, strata)
        stacked = np.concatenate([sequences[i] for i in parts["train"]])
        self.mean_ = stacked.mean(0)
        deviation = stacked.std(0)
        self.deviation_ = np.where(deviation > 0, deviation, 1.0)
        lengths = np.array([len(one) for one in sequences])
        rows = self._scaled(np.concatenate(sequences))
        factors = [(place, float(self.deviation_[place] / self.target_deviation_[place])) for place in past]
        task = _Arrays(rows, lengths, targets, parts, outputs, known, factors)
        batch = min(self.batch_size, len(parts["train"]))
        every = max(10, len(parts["train"]) // batch)
        config = RunConfig(
            task=task,
            model=self._model(),
            optimizer=OptimizerConfig("adamw", lr=self.lr, decoupled_decay=0.05, clip_norm=self.clip_norm),
            schedule=ScheduleConfig("cosine", warmup=min(50, self.steps // 10)),
            steps=self.steps,
            batch_size=batch,
            seed=seed,
        )
        state = torch.get_rng_state()
        try:
            trainer = Trainer(config)
            best, stale, kept = float("inf"), 0, None
            if trainer.warm:
                best = trainer.evaluate(task.validation(_EVALUATED))["loss"]
                kept = copy.deepcopy(trainer.model.state_dict())
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
        return parts["validation"]

    def _model(self) -> Model:
        """The network: the given options before those of the default."""
        size = {"parameters": _BUDGET} if self.hidden_size is None else {"hidden_size": self.hidden_size}
        usual = {**_OPTIONS, **({} if self._dropout is None else {"dropout": self._dropout})}
        return model_named(self.model, **{**size, **usual, **_OWN_OPTIONS.get(self.model, {}), **(self.options or {})})

    def _scaled(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(((rows - self.mean_) / self.deviation_).astype(np.float32))

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
        hidden_size: Its width. Default: None, the largest with at most 12000 parameters.
        options: More options of the network, such as ``{"depth": 3}``. Default: None, those of ``orthornn train FILE``: the
            mean of all outputs is read, dropout 0.2 for classes, and blocks forget.
        steps: Updates.
        lr: Learning rate.
        batch_size: Sequences per update.
        clip_norm: Bound of the gradient's norm; None for no bound.
        validation_share: Share of the sequences by which the best weights are chosen.
        patience: Stop after so many validations without a better one; None to use all steps.
        layout: "ntc" or "nct": the order of the axes of X.
        random_state: Of the initial values, the batches and the validation part.
        threshold: With two classes, the probability of the second, in the order of `classes_`, from which on it is
            predicted; or ``"accuracy"``, ``"balanced_accuracy"`` or ``"f1"``, by which the validation part chooses it.
            Default: None, the likelier class.

    Attributes:
        classes_: The classes.
        threshold_: The threshold, or None.
        network_: The trained torch module.

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
        random_state: int | None = 0,
        threshold: str | float | None = None,
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
        asked = None if self.threshold is None else read_threshold(str(self.threshold))
        if asked is not None and len(self.classes_) != 2:
            raise ValueError(
                f"Expected 2 classes for threshold={self.threshold!r}, but got {len(self.classes_)}. Leave the threshold out."
            )
        self._remember_width(X)
        codes = codes.ravel()
        held = self._fit(sequences, torch.from_numpy(codes), len(self.classes_), codes.tolist())
        self.threshold_ = asked if isinstance(asked, float) else None
        if isinstance(asked, str):
            outputs = torch.from_numpy(self._outputs_of([sequences[place] for place in held]))
            self.threshold_ = best_threshold(outputs.softmax(1)[:, 1].numpy(), codes[held] == 1, asked)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, classes)."""
        outputs = self._outputs(X)
        exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return classes (n,)."""
        outputs = self._outputs(X)
        return self.classes_[decided(torch.from_numpy(outputs), self.threshold_).numpy()]


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
        self._fit(sequences, torch.from_numpy(standard), columns.shape[1])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return numbers, (n,) or (n, O) as y in fit."""
        outputs = self._outputs(X)
        found = outputs * self.target_deviation_ + self.target_mean_
        return found[:, 0] if self.flat_ else found


class OrthogonalForecaster(_Estimator):
    """A forecaster of series: all of the next steps at once, from the steps before them.

    Training starts from linear autoregression on the last `lags` steps, and the best weights on the last part of the series
    are used. What is known ahead, such as prices or a calendar, is X: its rows are those of the series, and `predict` gets
    those of the steps to forecast. The other parameters are those of OrthogonalClassifier.

    Args:
        horizon: Steps to forecast.
        lags: Steps that linear autoregression reads: at least one period of the series.
        window: Steps that the network reads. Default: None, four times `lags`.

    Example::

        >>> y = np.sin(np.arange(200) * 2 * np.pi / 12)
        >>> forecaster = OrthogonalForecaster(horizon=6, lags=12, steps=3, hidden_size=4).fit(y)
        >>> error = forecaster.predict() - np.sin(np.arange(200, 206) * np.pi / 6)
        >>> error.shape, bool(np.abs(error).max() < 0.01)
        ((6,), True)
    """

    _in_order: ClassVar[bool] = True

    def __init__(
        self,
        model: str = "blocks",
        *,
        horizon: int = 1,
        lags: int = 16,
        window: int | None = None,
        hidden_size: int | None = None,
        options: dict[str, Any] | None = None,
        steps: int = 600,
        lr: float = 3e-3,
        patience: int | None = 10,
        random_state: int | None = 0,
    ) -> None:
        super().__init__(
            model,
            hidden_size=hidden_size,
            options=options,
            steps=steps,
            lr=lr,
            patience=patience,
            random_state=random_state,
        )
        self.horizon = horizon
        self.lags = lags
        self.window = window

    def fit(self, y: Any, X: Any = None) -> OrthogonalForecaster:
        """Train on a series (T,), or (T, C) with C channels, and return self. X: What is known ahead, (T,) or (T, K)."""
        check_integer("horizon", self.horizon, 1)
        check_integer("lags", self.lags, 1)
        series = self._series(y)
        window = 4 * self.lags if self.window is None else check_integer("window", self.window, 1)
        count = len(series) - self.horizon - self.lags + 1
        if count < 4:
            raise ValueError(
                f"Expected at least {self.horizon + self.lags + 3} steps for horizon={self.horizon} and lags={self.lags}, "
                f"but got {len(series)}. Lower them."
            )
        self.flat_ = np.ndim(y) == 1
        self.window_, self.last_ = window, series
        self.known_ = None if X is None else self._known(X, len(series), "those of y")
        inputs = self._inputs(series, self.known_)
        ends = np.arange(self.lags, self.lags + count)
        self.target_mean_ = series[: ends[-1]].mean(0)
        deviation = series[: ends[-1]].std(0)
        self.target_deviation_ = np.where(deviation > 0, deviation, 1.0)
        standard = (series - self.target_mean_) / self.target_deviation_
        targets = np.stack([standard[end : end + self.horizon].ravel() for end in ends]).astype(np.float32)
        sequences = [inputs[max(0, end - window) : end] for end in ends]
        later = 0 if self.known_ is None else self.horizon * self.known_.shape[1]
        past = [*range(series.shape[1])] * self.horizon
        self._fit(sequences, torch.from_numpy(targets), targets.shape[1], known=later, past=past)
        return self

    def predict(self, y: Any = None, X: Any = None) -> np.ndarray:
        """Return the next steps (horizon,), or (horizon, C), after a series like that of fit. Default: after that one.

        X: What is known ahead, if there was some in fit: (horizon, K) for the steps to forecast, or with y
            (T + horizon, K), also for its own steps.
        """
        check_is_fitted(self, "network_")
        if (X is None) != (self.known_ is None):
            got = "some" if self.known_ is None else "none"
            raise ValueError(
                f"Expected X where fit had one, and only there, but got {got}. Give both calls an X, or none."
            )
        series, known = self.last_ if y is None else self._series(y), None
        if X is not None:
            assert self.known_ is not None
            if y is None:
                coming = self._known(X, self.horizon, "the steps to forecast", self.known_.shape[1])
                known = np.concatenate([self.known_, coming])
            else:
                rows = len(series) + self.horizon
                known = self._known(X, rows, "those of y and the steps to forecast", self.known_.shape[1])
        found = self._outputs([self._inputs(series, known)[-self.window_ :]]).reshape(self.horizon, -1)
        forecast = found * self.target_deviation_ + self.target_mean_
        return forecast[:, 0] if self.flat_ else forecast

    def score(self, y: Any, X: Any = None) -> float:
        """Return the coefficient of determination of the forecast of the last `horizon` steps of y from those before.

        y: (T,) or (T, C), T > horizon. X: What is known ahead, with a row for each of y, if there was some in fit.
        """
        metrics = importlib.import_module("sklearn.metrics")
        series = self._series(y)
        if len(series) <= self.horizon:
            raise ValueError(
                f"Expected more than {self.horizon} steps, those of the horizon, but got {len(series)}. Give a longer series."
            )
        before = series[: -self.horizon]
        found = self.predict(before[:, 0] if self.flat_ else before, X)
        wanted = series[-self.horizon :]
        return float(metrics.r2_score(wanted, found.reshape(wanted.shape)))

    def _model(self) -> Model:
        return super()._model().replace(lags=self.lags)

    def _inputs(self, series: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        """Return what the network sees at each step: the series, what is known of the step, and of the next ones."""
        if known is None:
            return series
        steps = len(known) - self.horizon
        later = [known[lead : lead + steps] for lead in range(self.horizon + 1)]
        return np.concatenate([series[:steps], *later], 1)

    def _known(self, X: Any, steps: int, which: str, width: int | None = None) -> np.ndarray:
        """Return X as an array (T, K). which: The rows that it has. width: K, if that is known."""
        known = np.asarray(X, np.float64)
        known = known[:, None] if known.ndim == 1 else known
        if known.ndim != 2 or len(known) != steps or not known.shape[1] or not np.isfinite(known).all():
            raise ValueError(
                f"Expected finite numbers X ({steps},) or ({steps}, K), the rows being {which}, but got an array of shape "
                f"{np.shape(X)}, or NaN in it."
            )
        if width is not None and known.shape[1] != width:
            raise ValueError(
                f"Expected {width} column(s) in X, as in fit, but got {known.shape[1]}. Give those of fit."
            )
        return known

    def _series(self, y: Any) -> np.ndarray:
        series = np.asarray(y, np.float64)
        series = series[:, None] if series.ndim == 1 else series
        if series.ndim != 2 or not np.isfinite(series).all():
            raise ValueError(
                f"Expected finite numbers (T,) or (T, C), but got an array of shape {np.shape(y)}, or NaN in it. Fill it in."
            )
        return series
