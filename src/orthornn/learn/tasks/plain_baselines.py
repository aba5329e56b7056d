"""Plain methods next to a network, on the same parts of the data: from scikit-learn and aeon, and exponential smoothing.

For one answer per sequence: logistic or ridge regression on summary features (mean, deviation, extremes, ends, mean
change and length of every input), the same on the sequence flattened at a fixed number of steps, and gradient boosting
on the summary features. For one class per sequence also, if the package aeon is installed, ridge classification on the
features of random convolutions: MiniRocket (Dempster et al., 2021), and Hydra with MultiRocket (Dempster et al., 2023;
Tan et al., 2022), for which sequences are stretched to the length of the longest. For an answer at every step: the same
methods on the last steps, flattened. For a forecast also the seasonal naive answer and exponential smoothing
(Holt-Winters, its parameters from statsmodels).

Each is fitted on the training part; the ridge strength is chosen within it. Neither validation nor test enters.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._optional_packages import import_optional

FLAT_STEPS = 32  # of a flattened sequence
LAST_STEPS = 16  # that an answer at a step is from
SERIES = "series"  # the kind of features that are the sequences themselves
_SHORTEST = 10  # steps, of whose differences MultiRocket has convolutions of 9
_MOST_NUMBERS = 50_000_000  # of all sequences, for random convolutions
_MOST_ROWS = 20_000  # of the training part
_MOST_FEATURES = 4096
_ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)


class Baseline(NamedTuple):
    """A plain method and its metrics on validation and test."""

    name: str
    validation: dict[str, float]
    test: dict[str, float]


class Samples(NamedTuple):
    """The data of a method: one feature matrix per kind of features, and targets (rows,) or (rows, O)."""

    features: dict[str, np.ndarray]
    targets: np.ndarray


def summary_features(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return (sequences, 8 I + 1): mean, deviation, minimum, maximum, first, last, mean and mean absolute change,
    length.

    rows: (R, I), a sequence after the other.
    """
    starts = lengths.cumsum() - lengths
    rows = rows.astype(np.float64)
    mean = np.add.reduceat(rows, starts) / lengths[:, None]
    centered = rows - np.repeat(mean, lengths, 0)
    deviation = np.sqrt(np.add.reduceat(centered**2, starts) / lengths[:, None])
    change = np.diff(rows, axis=0, prepend=rows[:1])
    change[starts] = 0
    steps = (lengths - 1).clip(1)[:, None]
    parts = [mean, deviation, np.minimum.reduceat(rows, starts), np.maximum.reduceat(rows, starts)]
    parts += [rows[starts], rows[starts + lengths - 1], np.add.reduceat(change, starts) / steps]
    parts += [np.add.reduceat(np.abs(change), starts) / steps, np.log(lengths)[:, None]]
    return np.concatenate(parts, 1)


def flattened(rows: np.ndarray, lengths: np.ndarray, steps: int) -> np.ndarray:
    """Return (sequences, steps * I): every sequence at this many equally distant steps, between which it is a line."""
    starts = lengths.cumsum() - lengths
    places = np.linspace(0, 1, steps)[None] * (lengths[:, None] - 1)
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, lengths[:, None] - 1)
    share = (places - low)[..., None]
    found = rows[starts[:, None] + low] * (1 - share) + rows[starts[:, None] + high] * share
    return found.reshape(len(lengths), -1)


def stretched(rows: np.ndarray, lengths: np.ndarray, steps: int) -> np.ndarray:
    """Return (sequences, I, T): every sequence as long as this, or as the shortest that can be convolved."""
    steps = max(_SHORTEST, steps)
    found = flattened(rows, lengths, steps).reshape(len(lengths), steps, rows.shape[1])
    return np.ascontiguousarray(found.transpose(0, 2, 1))


def can_convolve(sequences: int, inputs: int, steps: int) -> bool:
    """Return whether random convolutions are among the plain classifiers: aeon is there, and the data are not too large."""
    return importlib.util.find_spec("aeon") is not None and sequences * inputs * steps <= _MOST_NUMBERS


def last_steps(rows: np.ndarray, lengths: np.ndarray, steps: int, later: int = 0) -> np.ndarray:
    """Return (R, steps * I): at every step the last ones, the first of the sequence where there are not so many.

    later: How many of the last inputs are values of later steps, which the steps before the newest do not repeat.
    """
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    places, own = np.arange(len(rows)), rows[:, : rows.shape[1] - later]
    return np.concatenate([rows, *(own[np.maximum(places - back, starts)] for back in range(1, steps))], 1)


def classifiers() -> Iterator[tuple[str, str, Any]]:
    """Yield (name, kind of features, estimator) of the plain classifiers."""
    linear = import_optional("sklearn.linear_model", "baselines", "the plain baselines")
    for kind in ("summary features", "flattened steps"):
        yield f"logistic regression on {kind}", kind, _scaled(linear.LogisticRegression(C=1.0, max_iter=300))
    ensemble = importlib.import_module("sklearn.ensemble")
    boosted = ensemble.HistGradientBoostingClassifier(
        max_iter=60, min_samples_leaf=5, early_stopping=False, random_state=0
    )
    yield "gradient boosting on summary features", "summary features", boosted
    if importlib.util.find_spec("aeon") is not None:
        convolutions = importlib.import_module("aeon.classification.convolution_based")
        yield "MiniRocket", SERIES, convolutions.MiniRocketClassifier(random_state=0)
        yield "Hydra with MultiRocket", SERIES, convolutions.MultiRocketHydraClassifier(random_state=0)


def regressors() -> Iterator[tuple[str, str, Any]]:
    """Yield (name, kind of features, estimator) of the plain regressors."""
    linear = import_optional("sklearn.linear_model", "baselines", "the plain baselines")
    for kind in ("summary features", "flattened steps"):
        yield f"ridge regression on {kind}", kind, _scaled(linear.RidgeCV(_ALPHAS))
    ensemble = importlib.import_module("sklearn.ensemble")
    multiple = importlib.import_module("sklearn.multioutput")
    boosted = ensemble.HistGradientBoostingRegressor(
        max_iter=60, min_samples_leaf=5, early_stopping=False, random_state=0
    )
    yield "gradient boosting on summary features", "summary features", multiple.MultiOutputRegressor(boosted)


def fitted(
    methods: Iterator[tuple[str, str, Any]],
    parts: dict[str, Samples],
    metrics: Callable[[Any, np.ndarray, np.ndarray], dict[str, float]],
) -> list[Baseline]:
    """Return every method whose features there are, fitted on parts["train"].

    metrics: From the fitted method, features and targets.
    """
    found = []
    train = parts["train"]
    chosen = np.linspace(0, len(train.targets) - 1, min(len(train.targets), _MOST_ROWS)).astype(np.int64)
    if train.targets.ndim == 1 and len(np.unique(train.targets[chosen])) < 2:
        return []
    for name, kind, method in methods:
        if kind not in train.features or train.features[kind].shape[1] > _MOST_FEATURES:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence: a baseline is what it is after so many iterations
            method.fit(train.features[kind][chosen], train.targets[chosen])
        scores = {
            part: metrics(method, parts[part].features[kind], parts[part].targets) for part in ("validation", "test")
        }
        found.append(Baseline(name, **scores))
    return found


def season_of(series: np.ndarray) -> int | None:
    """Return the period of a series (T,) by its autocorrelation: the highest peak, if it is above 0.3; else None."""
    longest = min(len(series) // 3, 400)
    if longest < 3:
        return None
    series = np.ldexp(series, -int(np.frexp(np.abs(series).max())[1]))  # so that no square is too large, or nothing
    changes = (
        series
        - series.mean()
        - np.polyval(np.polyfit(np.arange(len(series)), series - series.mean(), 1), np.arange(len(series)))
    )
    power = float(changes @ changes)
    if power <= 0:
        return None
    spectrum = np.fft.rfft(changes, 2 * len(changes))
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: longest + 1] / power
    peaks = np.flatnonzero((correlation[1:-1] > correlation[:-2]) & (correlation[1:-1] >= correlation[2:])) + 1
    peaks = peaks[peaks > 1]
    if not len(peaks) or correlation[peaks].max() < 0.3:
        return None
    return int(peaks[correlation[peaks].argmax()])


def smoothed_forecasts(series: np.ndarray, train: int, leads: Sequence[int], season: int | None) -> np.ndarray | None:
    """Return the forecasts (T, leads) of exponential smoothing: at every step t, of step t + lead. None if it cannot be
    fitted, which is done once for all leads.

    series: (T,), of which the first `train` steps are for the parameters; trend and season are additive.
    """
    holt = import_optional("statsmodels.tsa.holtwinters", "baselines", "exponential smoothing")
    seasonal = season if season is not None and train >= 2 * season + 2 else None
    begin = max(0, train - 2000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = holt.ExponentialSmoothing(
                series[begin:train],
                trend="add",
                seasonal=None if seasonal is None else "add",
                seasonal_periods=seasonal,
            )
            found = model.fit().params
    except Exception:  # numpy's and statsmodels' own, of a series that it cannot fit
        return None
    alpha, beta = float(found["smoothing_level"]), float(found["smoothing_trend"])
    gamma = float(found["smoothing_seasonal"]) if seasonal else 0.0
    level, trend = float(found["initial_level"]), float(found["initial_trend"])
    seasons = [float(value) for value in found["initial_seasons"]] if seasonal else [0.0]
    if not np.isfinite([alpha, beta, level, trend, *seasons]).all():
        return None
    forecasts = np.full((len(series), len(leads)), np.nan)
    for place, value in enumerate(series[begin:].tolist()):
        old, at = level, place % len(seasons)
        level = alpha * (value - seasons[at]) + (1 - alpha) * (level + trend)
        if gamma:
            seasons[at] = gamma * (value - old - trend) + (1 - gamma) * seasons[at]
        trend = beta * (level - old) + (1 - beta) * trend
        forecasts[begin + place] = [level + lead * trend + seasons[(place + lead) % len(seasons)] for lead in leads]
    return forecasts


def _scaled(method: Any) -> Any:
    pipeline = importlib.import_module("sklearn.pipeline")
    preprocessing = importlib.import_module("sklearn.preprocessing")
    return pipeline.make_pipeline(preprocessing.StandardScaler(), method)
