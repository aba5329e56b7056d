"""Forecasts of a series."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from .._checks import check_integer
from .._masked import as_array
from .._warnings import warn
from ..learn.systems import Model
from .estimator import SequenceEstimator, moments, restore_on_error, whole
from .sequences import names_of, rounded
from .times import times_of, warn_of_steps


class OrthogonalForecaster(SequenceEstimator):
    """A forecaster of series that predicts all of the next steps at once, from the steps before them.

    Training starts from linear autoregression on the last `lags` steps, and the weights with the best forecasts of the
    last part of the series are used; no training window predicts a step of that part. Pass values that are known ahead,
    such as prices or a calendar, as X: in `fit` it has a row per step of the series, and in `predict` a row per step to
    forecast. The other parameters are the same as for OrthogonalClassifier.

    `fit` does not take weights of sequences: there is one series, with overlapping windows.

    Args:
        horizon: Number of steps to forecast.
        lags: Number of steps that linear autoregression reads; at least one period of the series.
        window: Number of steps that the network reads, at least `lags`. Default: None, four times `lags`.

    Example::

        >>> y = np.sin(np.arange(200) * 2 * np.pi / 12)
        >>> forecaster = OrthogonalForecaster(horizon=6, lags=12, steps=3, hidden_size=4).fit(y)
        >>> error = forecaster.predict() - np.sin(np.arange(200, 206) * np.pi / 6)
        >>> error.shape, bool(np.abs(error).max() < 0.01)
        ((6,), True)
    """

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
        random_state: int | np.random.RandomState | None = 0,
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
        """Train on a series (T,), or (T, C) with C channels, and return self. X: Values known ahead, (T,) or (T, K)."""
        with restore_on_error(self):
            check_integer("horizon", whole(self.horizon), 1)
            check_integer("lags", whole(self.lags), 1)
            series = self._series(y)
            window = (
                4 * self.lags if self.window is None else check_integer("window", whole(self.window), whole(self.lags))
            )
            count = len(series) - self.horizon - self.lags + 1
            if count < 4:
                raise ValueError(
                    f"Expected at least {self.horizon + self.lags + 3} steps for horizon={self.horizon} and "
                    f"lags={self.lags}, but got {len(series)}{_if_several(y)}. Lower them."
                )
            self.flat_ = np.ndim(y) == 1
            self.window_, self.last_, self.times_ = window, series, times_of(y)
            self.names_ = {"y": names_of(y), "X": names_of(X)}
            _check_times(y, X)
            self.known_ = None if X is None else self._known(X, len(series), "y")
            _warn_of_steps(y, X)
            inputs = self._inputs(series, self.known_)
            ends = np.arange(self.lags, self.lags + count)
            targets = np.stack([series[end : end + self.horizon].ravel() for end in ends])
            sequences = [inputs[max(0, end - window) : end] for end in ends]
            later = 0 if self.known_ is None else self.horizon * self.known_.shape[1]
            past = [*range(series.shape[1])] * self.horizon
            self._fit(sequences, targets, targets.shape[1], known=later, past=past)
            return self

    def predict(self, y: Any = None, X: Any = None) -> np.ndarray:
        """Return the next steps (horizon,), or (horizon, C), after a series y like the one in fit. Default: after that
        series.

        X: Values known ahead, if fit had some: (horizon, K) for the steps to forecast, or with y (T + horizon, K),
            which includes the steps of y.
        """
        check_is_fitted(self, "network_")
        self._check_columns(y, "y")
        self._check_columns(X, "X")
        if (X is None) != (self.known_ is None):
            got = "some" if self.known_ is None else "none"
            raise ValueError(
                f"Expected X in both fit and this call, or in neither, but got {got}. Pass X to both, or to neither."
            )
        series, known = self.last_ if y is None else self._series(y), None
        if len(series) < self.lags:
            raise ValueError(
                f"Expected at least {self.lags} steps, as many as lags={self.lags}, but got {len(series)}. "
                f"Pass a longer series."
            )
        if X is not None:
            assert self.known_ is not None
            if y is None:
                coming = self._known(X, self.horizon, "the steps to forecast", self.known_.shape[1])
                known = np.concatenate([self.known_, coming])
                _check_later(getattr(self, "times_", None), times_of(X))
            else:
                rows = len(series) + self.horizon
                known = self._known(X, rows, "y and the steps to forecast", self.known_.shape[1])
                _check_times(y, X)
                _check_later(times_of(y), times_of(X), len(series))
        _warn_of_steps(y, None if y is None else X)
        found = self._outputs([self._inputs(series, known)[-self.window_ :]]).reshape(self.horizon, -1)
        forecast = found * self.target_deviation_ + self.target_mean_
        return forecast[:, 0] if self.flat_ else forecast

    def score(self, y: Any, X: Any = None) -> float:
        """Return the coefficient of determination of a forecast of the last `horizon` steps of y from the earlier ones.

        y: (T,) or (T, C), T > horizon. X: Values known ahead, with a row for each step of y, if fit had some.
        """
        check_is_fitted(self, "network_")
        self._check_columns(y, "y")
        series = self._series(y)
        if len(series) <= self.horizon:
            raise ValueError(
                f"Expected more than {self.horizon} steps, the horizon, but got {len(series)}. Pass a longer series."
            )
        found = self.predict(getattr(y, "iloc", y)[: -self.horizon], X)
        wanted = series[-self.horizon :]
        return float(r2_score(wanted, found.reshape(wanted.shape)))

    def _divided(self, count: int, seed: int, strata: list[int] | None) -> dict[str, np.ndarray]:
        """Return which windows are for training and which, the last ones, for validation.

        horizon - 1 windows between them belong to neither part, since they predict steps of the validation part.
        """
        which, held = np.arange(count), round(self.validation_share * count)
        train = count - held - (self.horizon - 1)
        if held >= 2 and train >= 2:
            return {"train": which[:train], "validation": which[-held:]}
        left = (
            f"{held} of {count} windows for the last part of the series"
            if held < 2
            else f"{max(0, train)} of {count} windows whose forecasts end before the last part of the series"
        )
        warn(
            f"The weights are chosen on the steps that they are trained on: horizon={self.horizon} leaves {left}, fewer than "
            f"2. Pass a longer series, or lower horizon or lags. To silence this, use warnings.filterwarnings('ignore', "
            f"category=orthornn.errors.OrthornnWarning)."
        )
        return {"train": which, "validation": which}

    def _standardized(self, targets: np.ndarray, train: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return targets, scaled by all steps before the first step of the validation part."""
        last = self.lags + train[-1] + self.horizon
        self.target_mean_, self.target_deviation_ = moments(self.last_[:last], "y")
        steps = targets.reshape(len(targets), self.horizon, -1)
        standard = (steps - self.target_mean_) / self.target_deviation_
        return standard.reshape(targets.shape).astype(np.float32)

    def _model(self) -> Model:
        self._refuse("lags", "lags")
        return super()._model().replace(lags=whole(self.lags))

    def _inputs(self, series: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        """Return the network's input at each step: the series, the values known of this step, and of the next steps."""
        if known is None:
            return series
        steps = len(known) - self.horizon
        later = [known[lead : lead + steps] for lead in range(self.horizon + 1)]
        return np.concatenate([series[:steps], *later], 1)

    def _known(self, X: Any, steps: int, which: str, width: int | None = None) -> np.ndarray:
        """Return X as an array (T, K). which: Description of its rows. width: K, if known."""
        known = _numbers(X, "X")
        known = known[:, None] if known.ndim == 1 else known
        if known.ndim != 2 or len(known) != steps or not known.shape[1] or not np.isfinite(known).all():
            raise ValueError(
                f"Expected finite numbers X ({steps},) or ({steps}, K), with rows for {which}, but got an array of shape "
                f"{np.shape(X)}, or NaN in it."
            )
        if width is not None and known.shape[1] != width:
            raise ValueError(
                f"Expected {width} column(s) in X, as in fit, but got {known.shape[1]}. Pass the same columns."
            )
        return known

    def _check_columns(self, table: Any, which: str) -> None:
        """Raise ValueError if a table has other columns than in fit, or another order."""
        names, fitted = names_of(table), getattr(self, "names_", {}).get(which)
        if names is not None and fitted is not None and names != fitted:
            raise ValueError(
                f"Expected the columns of {which} in fit, {fitted}, but got {names}. Put them in that order."
            )

    def _series(self, y: Any) -> np.ndarray:
        series = _numbers(y, "y")
        series = series[:, None] if series.ndim == 1 else series
        if series.ndim != 2 or not np.isfinite(series).all():
            raise ValueError(
                f"Expected finite numbers (T,) or (T, C), but got an array of shape {np.shape(y)}, or NaN in it. Fill it in."
            )
        return series


def _numbers(values: Any, which: str) -> np.ndarray:
    """Return an array of float64.

    Raise ValueError for complex numbers, dates, text, lists of unequal lengths, a table whose times are not sorted, and
    a series of integers that float64 cannot distinguish.
    """
    times = times_of(values)
    if times is not None and not times.is_monotonic_increasing:
        raise ValueError(
            f"Expected {which} in the order of its times, but got an index that is not sorted. Sort it with "
            f"{which}.sort_index()."
        )
    array, got = None, type(values).__name__
    try:
        array = as_array(values)
        if array.dtype.kind not in "cmM":
            found = array.astype(np.float64)
            return rounded(array) if which == "y" else found
        got = str(array.dtype)
    except (TypeError, ValueError) as error:
        sizes = _sizes(values if array is None else array.tolist())
        if len(set(sizes)) > 1:
            raise ValueError(
                f"Expected one series as {which}, (T,) or (T, C), but got {len(sizes)} of {min(sizes)} to {max(sizes)} "
                f"steps. Fit one forecaster per series, or one network for all of them with orthornn.train, which reads a "
                f"table with a column that identifies the series: sequence='NAME'."
            ) from None
        if array is not None and array.ndim:
            got = str(error)
    raise ValueError(f"Expected real numbers as {which}, but got {got}. Convert them to numbers.")


def _sizes(parts: Any) -> list[int]:
    """Return the lengths of the arrays or lists in a list."""
    several = parts if isinstance(parts, (list, tuple)) else ()
    return [len(part) for part in several if hasattr(part, "__len__") and not isinstance(part, (str, bytes))]


def _warn_of_steps(y: Any, X: Any) -> None:
    """Warn if times are missing or duplicated in the series, or in X if the series has no times."""
    table, which = (X, "X") if times_of(y) is None and times_of(X) is not None else (y, "y")
    index = getattr(table, "index", None)
    if index is not None and getattr(index, "nlevels", 1) == 1 and hasattr(index, "dtype"):
        warn_of_steps(index, [len(index)], which)


def _if_several(y: Any) -> str:
    """Return an addition to an error about too few steps if a list contains longer arrays, which may be several
    series.
    """
    longest = max(_sizes(y), default=0)
    return (
        f" (each of {longest}: if these are several series, fit one forecaster per series)" if longest > len(y) else ""
    )


def _check_times(y: Any, X: Any) -> None:
    """Raise ValueError if X has other times than y, if both are pandas tables indexed by times of one kind.

    Rows of X after the last row of y are not read.
    """
    times, others = times_of(y), times_of(X)
    if times is None or type(times) is not type(others):
        return
    pairs = enumerate(zip(times, others))
    found = next(
        (f"{other} in row {row + 1}, where y has {time}" for row, (time, other) in pairs if time != other), None
    )
    if found is not None:
        raise ValueError(
            f"Expected X to have the times of y, but got {found}. Fit with X.loc[y.index]; in predict, the rows of the steps "
            f"to forecast follow these."
        )


def _check_later(times: Any, others: Any, rows: int = 0) -> None:
    """Raise ValueError if the values known ahead do not have the times of the steps to forecast.

    These times follow the series, at distances like those in it: at most one and a half times its longest distance,
    since months have unequal lengths.

    Args:
        times: Times of the series, or None.
        others: Times of the values known ahead, or None.
        rows: Number of ``others`` that belong to the series.
    """
    if times is None or type(times) is not type(others):
        return
    line = times[-1:].append(others[rows:])
    if line.dtype == object:  # other time zones or other lengths of the periods
        raise ValueError(
            f"Expected X with times like those of the series, {times.dtype}, but got {others.dtype}. Convert its index."
        )
    steps, usual = _steps_between(line), _steps_between(times)
    shortest, longest = (min(1, usual.min()), 1.5 * usual.max()) if len(usual) else (1, np.inf)
    wrong = (steps < shortest) | (steps > longest)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"Expected X to have the times that follow {times[-1]}, the end of the series, but got {line[row + 1]} "
            f"after {line[row]}. Pass the rows of the steps to forecast."
        )


def _steps_between(times: Any) -> np.ndarray:
    """Return the differences of neighboring pandas times, as numbers: nanoseconds, or a count of periods."""
    exact = times.as_unit("ns") if hasattr(times, "as_unit") else times
    return np.diff(exact.astype("int64"))
