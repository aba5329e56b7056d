"""Weights of sequences and of classes: the law of the weighted loss, what weights leave out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn.base")
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from orthornn.learn.tasks.linear_start import start_linear
from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster, OrthogonalRegressor
from orthornn.sklearn.arrays_task import ArraysTask, ClassesTask
from orthornn.sklearn.estimator import moments
from orthornn.sklearn.weights import scaled, weights_of, with_class_weights
from support.sequences import SMALL, X, Y

NUMBERS = X[:, -1, 0] + 0.3 * X[:, 2, 1]
CASES = [(OrthogonalClassifier, Y), (OrthogonalRegressor, NUMBERS), (OrthogonalRegressor, X[:, :2, 0])]
QUICK = {**SMALL, "steps": 3}
COUNTS = np.random.default_rng(2).integers(1, 5, len(X))


def outputs(found, sequences=X):
    return found.predict_proba(sequences) if hasattr(found, "predict_proba") else found.predict(sequences)


def task_of(targets, weights=None, sequences=X):
    """The task of these sequences, all for training and for validation."""
    rows = torch.from_numpy(sequences.reshape(-1, sequences.shape[2]).astype(np.float32))
    which = np.arange(len(sequences))
    parts = {"train": which, "validation": which}
    scale = None if weights is None else scaled(weights, parts)
    kinds = targets.shape[1] if targets.ndim == 2 else 2
    kind = ArraysTask if targets.is_floating_point() else ClassesTask
    return kind(rows, np.full(len(sequences), sequences.shape[1]), targets, parts, kinds, scale)


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("batch", [48, 16, 6])
def test_integer_weights_are_copies_in_the_mean_loss_of_an_epoch(numbers, batch):
    """The mean of the losses of the batches that make an epoch, with their gradients, is the loss of all copies."""
    targets = torch.from_numpy(X[:, :2, 0].astype(np.float32) if numbers else (Y == "up").astype(np.int64))
    copies = np.repeat(np.arange(len(X)), COUNTS)
    network = nn.Linear(2, 2)

    def loss(task, drawn):
        return task.objective().loss(network(drawn.inputs.mean(0)), drawn.targets)

    weighted, repeated = task_of(targets, COUNTS.astype(float)), task_of(targets[copies], None, X[copies])
    epoch = torch.stack(
        [loss(weighted, weighted.problem().train(step, batch, 0)) for step in range(48 // batch)]
    ).mean()
    (whole,) = [loss(repeated, one) for one in repeated.problem().validation(len(copies))]
    mine, theirs = (torch.autograd.grad(each, [*network.parameters()]) for each in (epoch, whole))
    for found, expected in zip((epoch, *mine), (whole, *theirs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    (batch_,) = weighted.problem().validation(48)
    total, count = weighted.objective().metrics(network(batch_.inputs.mean(0)).detach(), batch_.targets)["loss"]
    assert total / count == pytest.approx(whole.item(), rel=1e-5)
    assert count == pytest.approx(48, rel=1e-5)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("kind", "y"), CASES)
@pytest.mark.parametrize("weights", [1.0, np.full(48, 0.1), np.full(48, 1e300), [3] * 48, np.ones(48, bool)])
def test_equal_weights_are_no_weights(kind, y, weights):
    plain, found = kind(**QUICK).fit(X, y), kind(**QUICK).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(outputs(found), outputs(plain))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "y"), CASES)
def test_only_ratios_count_and_they_do(kind, y):
    weights = np.random.default_rng(3).uniform(0.1, 5, 48)
    given = weights.copy()
    found = kind(**QUICK).fit(X, y, weights)
    np.testing.assert_array_equal(weights, given)
    for factor in (4.0, 2.0**-1000, 2.0**900):
        np.testing.assert_array_equal(outputs(kind(**QUICK).fit(X, y, factor * weights)), outputs(found))
    np.testing.assert_allclose(outputs(kind(**QUICK).fit(X, y, 3 * weights)), outputs(found), rtol=1e-3, atol=1e-4)
    assert not np.allclose(outputs(kind(**QUICK).fit(X, y)), outputs(found))


@pytest.mark.parametrize(("kind", "y"), CASES)
@pytest.mark.parametrize("others", [1.0, "different"])
def test_a_weight_of_zero_leaves_a_sequence_out(kind, y, others):
    weights = np.random.default_rng(4).uniform(0.5, 2, 48) if others == "different" else np.ones(48)
    weights[[0, 7, 30, 47]] = 0
    left = weights > 0
    spoilt, targets = X.copy(), np.array(y)
    spoilt[~left] *= 1e3
    targets[~left] = "up" if targets.dtype.kind == "U" else 1e6
    found, expected = kind(**QUICK).fit(spoilt, targets, weights), kind(**QUICK).fit(X[left], y[left], weights[left])
    np.testing.assert_array_equal(outputs(found), outputs(expected))
    np.testing.assert_array_equal(found.mean_, expected.mean_)


def test_the_scale_of_weighted_rows_is_that_of_copies():
    columns, counts = np.random.default_rng(5).standard_normal((30, 3)), np.random.default_rng(6).integers(1, 6, 30)
    columns[:, 2] = 0.1  # of which rounding leaves a deviation
    for found, expected in zip(moments(columns, "X", counts / 7), moments(np.repeat(columns, counts, 0), "X")):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert moments(columns, "X")[1][2] == moments(columns, "X", counts / 7)[1][2] == 1.0


@pytest.mark.parametrize("level", [0.1, 1e-8, 3e7])
def test_a_constant_channel_stays_constant(level):
    """Another value in it later is no multiple of a rounding error."""
    constant = np.concatenate([X, np.full((48, 9, 1), level)], 2)
    found = OrthogonalRegressor(**QUICK).fit(constant, NUMBERS)
    assert found.deviation_[2] == 1.0
    constant[..., 2] += 1e-3
    assert np.isfinite(found.predict(constant)).all()


@pytest.mark.parametrize("given", [None, np.random.default_rng(7).integers(1, 4, 60)])
def test_the_start_from_linear_regression_is_that_of_copies(given):
    from orthornn.learn.systems import build, model_named

    random = np.random.default_rng(8)
    x, y, counts = random.standard_normal((60, 3)), random.standard_normal((60, 2)), random.integers(1, 4, 60)
    seen = random.integers(1, 4, 60) if given is None else given
    first, second = (build(model_named("lstm", hidden_size=2, lags=3), 1, 2, output="last") for _ in range(2))
    start_linear(first, (x, y), (x, y), weights=(counts / counts.mean(), seen / seen.mean()))
    copies, shown = np.repeat(np.arange(60), counts), np.repeat(np.arange(60), seen)
    start_linear(second, (x[copies], y[copies]), (x[shown], y[shown]))
    torch.testing.assert_close(first.recent.weight, second.recent.weight, rtol=1e-5, atol=1e-6)


def test_weights_reach_a_network_that_starts_from_linear_regression():
    weights = np.random.default_rng(9).uniform(0.1, 5, 48)
    options = {**QUICK, "options": {"lags": 3}, "lr": 1e-12}  # what was found at the start
    found, plain = (OrthogonalRegressor(**options).fit(X, NUMBERS, given) for given in (weights, None))
    assert np.abs(found.predict(X) - plain.predict(X)).max() > 1e-3


def test_balanced_classes_have_the_weights_of_scikit_learn():
    y = np.where(np.arange(48) % 5 == 0, "rare", np.where(np.arange(48) % 2, "b", "a"))
    for class_weight in ("balanced", {"rare": 7, "a": 0.5}, {"a": 2.0, "b": 2.0, "rare": 2.0}, {"a": 0}):
        found = OrthogonalClassifier(**QUICK, class_weight=class_weight).fit(X, y)
        if class_weight == {"a": 0}:
            left = y != "a"
            assert list(found.classes_) == ["a", "b", "rare"]
            two = OrthogonalClassifier(**QUICK).fit(X[left], y[left])
            np.testing.assert_array_equal(found.mean_, two.mean_)
            continue
        own = compute_sample_weight(class_weight, y)
        np.testing.assert_allclose(outputs(OrthogonalClassifier(**QUICK).fit(X, y, own)), outputs(found), atol=1e-5)
    assert clone(found).get_params()["class_weight"] == {"a": 0}


def test_balanced_classes_count_weights_as_copies():
    codes, classes = (Y == "up").astype(int), np.array(["down", "up"])
    copies = np.repeat(np.arange(48), COUNTS)
    of_copies = with_class_weights(None, "balanced", classes, codes[copies])
    for factor in (1.0, 1e-300, 1e300):
        found = with_class_weights(factor * COUNTS, "balanced", classes, codes)
        sums = np.bincount(codes, found)
        assert sums[0] == pytest.approx(sums[1])
        each = np.repeat(found / COUNTS, COUNTS)
        np.testing.assert_allclose(each / each.sum(), of_copies / of_copies.sum())
    together = with_class_weights(COUNTS.astype(float), {"up": 3}, classes, codes)
    expected = COUNTS * np.where(codes, 3.0, 1.0)
    np.testing.assert_allclose(together / together.sum(), expected / expected.sum())
    assert with_class_weights(None, None, classes, codes) is None


def test_a_threshold_is_chosen_with_the_weights():
    """Whoever weighs one class ten times gets the threshold that as many copies would."""
    random = np.random.default_rng(4)
    rare = np.arange(120) % 8 == 0
    series = random.standard_normal((120, 6, 1)) + 0.8 * rare[:, None, None]
    options = {"model": "lstm", "hidden_size": 4, "steps": 3, "validation_share": 0.4, "threshold": "accuracy"}
    plain = OrthogonalClassifier(**options).fit(series, rare)
    heavy = OrthogonalClassifier(**options).fit(series, rare, np.where(rare, 50.0, 1.0))
    assert plain.predict(series).sum() == 0
    assert heavy.predict(series)[rare].mean() > 0.9


@pytest.mark.parametrize(("kind", "y"), CASES[:2])
def test_scores_and_the_tools_of_scikit_learn_take_weights(kind, y):
    weights = np.random.default_rng(10).uniform(0, 3, 48)
    found = kind(**QUICK).fit(X, y, sample_weight=weights)
    metric = accuracy_score if kind is OrthogonalClassifier else r2_score
    assert found.score(X, y, sample_weight=weights) == metric(y, found.predict(X), sample_weight=weights)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), kind(**QUICK))
    pipeline.fit(X, y, **{f"{kind.__name__.lower()}__sample_weight": weights})
    assert cross_val_score(kind(**QUICK), X, y, cv=2, params={"sample_weight": weights}).shape == (2,)
    ragged = [one[: 4 + place % 5] for place, one in enumerate(X)]
    assert outputs(kind(**QUICK).fit(ragged, y, weights), ragged).shape[0] == 48


WRONG = [
    (np.ones(47), r"Expected sample_weight \(48,\), one weight for each sequence, but got an array of shape \(47,\)"),
    (np.ones((48, 1)), r"Expected sample_weight \(48,\)"),
    (np.r_[np.ones(47), -1.0], r"at least 0, but got -1 as sample_weight\[47\]"),
    (np.r_[np.nan, np.ones(47)], r"but got nan as sample_weight\[0\]"),
    (np.r_[np.inf, np.ones(47)], r"but got inf as sample_weight\[0\]"),
    (np.zeros(48), "only zero weights"),
    (0.0, "only zero weights"),
    (["a"] * 48, "Expected numbers as sample_weight"),
    (np.ones(48, complex), "Expected numbers as sample_weight, but got complex128"),
    (np.array(["2020-01-01"] * 48, "M8[D]"), "Expected numbers as sample_weight"),
    ([[1, 2], [3]], "Expected numbers as sample_weight"),
    ([None] * 48, "sample_weight"),
]


@pytest.mark.parametrize(("weights", "message"), WRONG)
@pytest.mark.parametrize(("kind", "y"), CASES[:2])
def test_wrong_weights(kind, y, weights, message):
    with pytest.raises(ValueError, match=message):
        kind(**QUICK).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        (
            {"upp": 2},
            r"weights for classes of y in class_weight, but got a weight for 'upp'\. The classes are 'down', 'up'",
        ),
        ({"up": -1}, "class_weight"),
        ({"up": float("nan")}, "class_weight"),
        ({"up": 0, "down": 0}, "only zero weights for the classes of y"),
        ({"up": 0}, "at least 2 classes with a weight above 0, but got one class, 'down'"),
        ("balance", "Expected class_weight to be None, 'balanced' or a dict"),
        (3, "Expected class_weight to be None, 'balanced' or a dict"),
        ([1, 2], "Expected class_weight to be None, 'balanced' or a dict"),
    ],
)
def test_wrong_class_weights(class_weight, message):
    with pytest.raises(ValueError, match=message):
        OrthogonalClassifier(**QUICK, class_weight=class_weight).fit(X, Y)


def test_targets_that_are_not_finite_in_a_weighted_batch_are_named():
    """Whatever the task of the estimators lets through, the trainer's guards read the targets next to their weights."""
    from orthornn.learn.training.guards import likely_cause

    task = task_of(torch.full((48, 1), float("nan")), COUNTS.astype(float))
    assert "targets" in likely_cause(nn.Linear(2, 1), task.problem().train(0, 4, 0))


def test_weights_that_leave_one_class():
    with pytest.raises(ValueError, match="at least 2 classes with a weight above 0, but got one class, 'up'"):
        OrthogonalClassifier(**QUICK).fit(X, Y, (Y == "up").astype(float))


def test_a_forecaster_takes_none():
    with pytest.raises(TypeError, match="sample_weight"):
        OrthogonalForecaster(steps=2).fit(X[0, :, 0], sample_weight=np.ones(9))


def test_weights_from_other_libraries():
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(weights_of(pandas.Series([1, 2], index=[5, 3]), 2), [1.0, 2.0])
    np.testing.assert_array_equal(weights_of(torch.tensor([1.0, 2.0]), 2), [1.0, 2.0])
    np.testing.assert_array_equal(weights_of([np.float32(1), 2], 2), [1.0, 2.0])
    assert weights_of(None, 3) is None


CHECKS = [
    *("check_sample_weights_pandas_series", "check_sample_weights_not_an_array", "check_sample_weights_list"),
    *("check_all_zero_sample_weights_error", "check_sample_weights_shape", "check_sample_weights_not_overwritten"),
    "check_classifiers_one_label_sample_weights",
]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor])
def test_the_checks_of_scikit_learn(kind, name):
    """Not check_sample_weight_equivalence: copies make other batches and another validation part than weights do."""
    from sklearn.utils import estimator_checks

    check = getattr(estimator_checks, name, None)
    if check is None:
        pytest.skip(f"this scikit-learn has no {name}")
    if name != "check_classifiers_one_label_sample_weights" or kind is OrthogonalClassifier:
        check(kind.__name__, kind(**{**SMALL, "steps": 2}))


def test_the_check_of_scikit_learn_of_class_weights():
    from sklearn.utils.estimator_checks import check_class_weight_classifiers

    options = {"model": "lstm", "hidden_size": 4, "steps": 60, "lr": 0.02}
    check_class_weight_classifiers("OrthogonalClassifier", OrthogonalClassifier(**options))
