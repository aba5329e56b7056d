"""The estimators behave like scikit-learn's."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from numpy import ma

pytest.importorskip("sklearn.base")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from orthornn.errors import ArgumentError, NonFiniteError, OrthornnWarning
from orthornn.learn.training.trainer import Trainer
from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster, OrthogonalRegressor
from orthornn.sklearn.arrays_task import ClassesTask, Weighted
from support.sequences import SMALL, X, Y


def test_clones_copies_and_seeds():
    first = OrthogonalClassifier(**SMALL).fit(X, Y)
    assert clone(first).get_params() == first.get_params()
    for other in (clone(first).fit(X, Y), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(other.predict_proba(X), first.predict_proba(X))
    other = clone(first).set_params(random_state=1).fit(X, Y)
    assert not np.allclose(other.predict_proba(X), first.predict_proba(X))


def test_the_tools_of_scikit_learn():
    search = GridSearchCV(OrthogonalClassifier(**SMALL), {"lr": [1e-3, 1e-2]}, cv=2).fit(X, Y)
    assert search.best_params_["lr"] in (1e-3, 1e-2)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), OrthogonalRegressor(**SMALL))
    assert cross_val_score(pipeline, X, X[:, 0, 0], cv=2).shape == (2,)


CHECKS = [
    *("check_estimators_dtypes", "check_estimators_pickle", "check_estimators_nan_inf", "check_n_features_in"),
    *("check_dict_unchanged", "check_fit_idempotent", "check_parameters_default_constructible", "check_complex_data"),
    *("check_set_params", "check_no_attributes_set_in_init", "check_fit2d_1sample", "check_get_params_invariance"),
    *("check_estimators_fit_returns_self", "check_estimators_unfitted", "check_fit1d", "check_pipeline_consistency"),
    *(
        "check_estimators_overwrite_params",
        "check_methods_subset_invariance",
        "check_dataframe_column_names_consistency",
    ),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor])
def test_the_checks_of_scikit_learn_that_make_sense_for_sequences(kind, name):
    """A matrix is one channel there, a row per sequence."""
    from sklearn.utils import estimator_checks

    check = getattr(estimator_checks, name)
    if name == "check_parameters_default_constructible":
        check(kind.__name__, kind())
        return
    estimator = kind(**{**SMALL, "steps": 2})
    check(kind.__name__, estimator)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_another_order_are_refused(library):
    frame = pytest.importorskip(library).DataFrame({f"t{i}": X[:, i, 0] for i in range(9)})
    found = OrthogonalRegressor(**SMALL).fit(frame, X[:, 0, 0])
    assert found.feature_names_in_.tolist() == [f"t{i}" for i in range(9)]
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        found.predict(frame[[f"t{i}" for i in reversed(range(9))]])
    with pytest.warns(
        UserWarning, match="X does not have valid feature names, but OrthogonalRegressor was fitted with"
    ):
        without = found.predict(X[:, :, 0])
    np.testing.assert_array_equal(without, found.predict(frame))
    assert not hasattr(found.fit(X[:, :, 0], X[:, 0, 0]), "feature_names_in_")


def test_channels_of_another_order_are_refused():
    pandas = pytest.importorskip("pandas")
    tables = [pandas.DataFrame(one, columns=["a", "b"]) for one in X]
    found = OrthogonalRegressor(**SMALL).fit(tables, X[:, 0, 0])
    with pytest.raises(
        ValueError, match="unseen at fit time:\n- c\nFeature names seen at fit time, yet now missing:\n- b"
    ):
        found.predict([one.rename(columns={"b": "c"}) for one in tables])
    with pytest.raises(
        ValueError, match=r"the first table, \['a', 'b'\], in all of them, but got \['b', 'a'\] in X\[1\]"
    ):
        found.predict([tables[0], tables[1][["b", "a"]]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "Expected patience to be an integer of at least 1, but got 0"),
        ({"patience": "x"}, "Expected patience to be an integer of at least 1, but got 'x'"),
        ({"lr": float("nan")}, "Expected lr to be a finite number"),
        ({"random_state": -1}, "Expected random_state to be"),
    ],
)
def test_wrong_parameters_are_refused_in_fit(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        OrthogonalRegressor(**{**SMALL, **options}).fit(X, X[:, 0, 0])


def test_training_stops_after_validations_without_a_better_one_and_keeps_the_best(monkeypatch):
    """Two validations of the same loss, or a worse one, are none of a better one; of the same the later one is kept."""
    losses, states = iter([3.0, 2.0, 2.0, 2.5, 1.0]), []

    def evaluate(trainer, batches, threshold=None):
        states.append(copy.deepcopy(trainer.model.state_dict()))
        return {"loss": next(losses)}

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    found = OrthogonalRegressor(**{**SMALL, "steps": 300, "patience": 2}).fit(X, X[:, 0, 0])
    assert len(states) == 4
    assert found.validation_loss_ == 2.0
    assert all(torch.equal(value, states[2][name]) for name, value in found.network_.state_dict().items())
    assert not all(torch.equal(value, states[3][name]) for name, value in found.network_.state_dict().items())


def test_a_classifier_keeps_the_latest_of_the_most_accurate_networks(monkeypatch):
    """Neither a lower loss at a lower accuracy counts, nor a loss that is not finite."""
    seen = iter([(0.9, 0.5), (0.8, 0.2), (0.9, 0.7), (0.7, 0.1), (1.0, math.nan)])
    states = []

    def evaluate(trainer, batches, threshold=None):
        states.append(copy.deepcopy(trainer.model.state_dict()))
        return dict(zip(("accuracy", "loss"), next(seen)))

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    found = OrthogonalClassifier(**{**SMALL, "steps": 300, "patience": 4}).fit(X, X[:, 0, 0] > 0)
    assert len(states) == 5
    assert found.validation_loss_ == 0.7
    assert all(torch.equal(value, states[2][name]) for name, value in found.network_.state_dict().items())


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_the_accuracy_of_validation_is_weighted(weights):
    """By hand: three sequences, of which the second is wrong."""
    parts = dict.fromkeys(("train", "validation"), np.arange(3))
    own = None if weights is None else torch.tensor(weights)
    task = ClassesTask(torch.zeros(3, 1), np.ones(3, dtype=int), torch.tensor([0, 1, 1]), parts, 2, own)
    outputs, targets = torch.tensor([[2.0, 1.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
    total, count = task.objective().metrics(outputs, targets if own is None else Weighted(targets, own))["accuracy"]
    assert total / count == pytest.approx(2 / 3 if own is None else 1.5 / 3.5, rel=1e-6)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 4.0]])
def test_labels_are_smoothed_by_the_frequencies_of_the_training_part(weights):
    """By hand: the frequencies of the first three sequences, each by its weight."""
    own = None if weights is None else torch.tensor(weights)
    parts = {"train": np.arange(3), "validation": np.arange(3, 4)}
    task = ClassesTask(torch.zeros(4, 1), np.ones(4, dtype=int), torch.tensor([0, 1, 1, 0]), parts, 2, own)
    outputs, targets = torch.tensor([[2.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1])
    spread = np.array([1, 2]) / 3 if weights is None else np.array([1, 2.5]) / 3.5
    losses = -(outputs.double().log_softmax(1).numpy() * spread).sum(1)
    expected = losses.mean() if weights is None else (losses * weights[:2]).mean()
    found = task.objective().spread_loss(outputs, targets if own is None else Weighted(targets, own[:2]))
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_updates_that_leave_no_network_with_a_finite_loss_are_an_error():
    """The last update is followed by a validation only: its network would predict NaN."""
    with pytest.raises(NonFiniteError, match=r"finite validation loss, but got (nan|inf) after update 1\. .* Lower lr"):
        OrthogonalRegressor(**{**SMALL, "steps": 1, "lr": 1e30}).fit(X, X[:, 0, 0])


@pytest.mark.parametrize(("clip_norm", "advice"), [(1.0, r"Lower lr\."), (None, r"Lower lr, or set clip_norm=1\.")])
@pytest.mark.parametrize("steps", [1, 5])
def test_updates_that_are_too_large_are_blamed_on_parameters_that_the_estimators_have(steps, clip_norm, advice):
    with pytest.raises(NonFiniteError, match=advice) as caught:
        OrthogonalRegressor(**{**SMALL, "steps": steps, "lr": 1e30, "clip_norm": clip_norm}).fit(X, X[:, 0, 0])
    assert "--" not in str(caught.value)
    assert "recurrent_lr" not in str(caught.value)


@pytest.mark.parametrize(
    ("lr", "message"), [(0.0, r"a learning rate above 0, but got lr=0\."), (1e39, "lr to be .*, but got 1e")]
)
def test_rates_by_which_nothing_is_learned_are_refused(lr, message):
    with pytest.raises(ArgumentError, match=f"^Expected {message}"):
        OrthogonalRegressor(**{**SMALL, "lr": lr}).fit(X, X[:, 0, 0])


def test_a_generator_of_numpy_as_random_state():
    fits = [
        OrthogonalRegressor(**SMALL, random_state=np.random.RandomState(seed)).fit(X, X[:, 0, 0]) for seed in (3, 3, 4)
    ]
    first, second, third = (found.predict(X) for found in fits)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, third)


def test_numbers_that_overflow_are_refused():
    with pytest.raises(ValueError, match="numbers in X whose squares float64 holds"):
        OrthogonalRegressor(**SMALL).fit(X * 1e300, X[:, 0, 0])
    with pytest.raises(ValueError, match="numbers in y whose squares float64 holds"):
        OrthogonalRegressor(**SMALL).fit(X, X[:, 0, 0] * 1e300)
    found = OrthogonalRegressor(**SMALL).fit(X, X[:, 0, 0])
    with pytest.raises(ValueError, match="larger ones than float32 holds"):
        found.predict(X * 1e60)


def test_an_estimator_predicts_in_another_process():
    found = OrthogonalClassifier(**SMALL).fit(X, Y)
    code = (
        "import pickle, sys; found, X = pickle.load(sys.stdin.buffer); "
        "sys.stdout.buffer.write(found.predict_proba(X).tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps((found, X)), capture_output=True, check=True)
    np.testing.assert_array_equal(np.frombuffer(done.stdout).reshape(len(X), -1), found.predict_proba(X))


@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor])
def test_sequences_that_are_for_training_and_for_validation_are_named(kind):
    own = dict(SMALL, batch_size=4)
    X, y = np.random.default_rng(0).standard_normal((9, 5, 2)), np.arange(9) % 2
    message = (
        "validation_share=0.15 leaves 8 of 9 sequences for training and 1 for validation, fewer than 2. .* silence this"
    )
    with pytest.warns(OrthornnWarning, match=message) as told:
        kind(**own).fit(X, y)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(**own, validation_share=0).fit(X, y)  # asked for
        kind(**own, validation_share=0.3).fit(X, y)


def test_numbers_of_numpy_are_taken_and_an_unfitted_forecaster_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 5, 1)), np.arange(12) % 2
    found = OrthogonalClassifier(
        hidden_size=np.int64(3), steps=np.int64(2), batch_size=np.int32(4), random_state=0
    ).fit(X, y)
    assert found.predict(X).shape == (12,)
    with pytest.raises(NotFittedError):
        OrthogonalForecaster().score(np.arange(50.0))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="Expected a class for each sequence"):
        OrthogonalClassifier().fit(X, pandas.array(["a", "b", pandas.NA] * 4, dtype="string"))


def test_options_do_not_say_again_what_a_parameter_says():
    """One of the two was ignored."""
    for made, named in [
        (OrthogonalClassifier(hidden_size=4, options={"hidden_size": 8}), "hidden_size"),
        (OrthogonalRegressor(hidden_size=4, options={"parameters": 800}), "parameters"),
    ]:
        with pytest.raises(
            ValueError, match=f"Expected hidden_size once, but got hidden_size=4 and options with '{named}'"
        ):
            made.fit(X, np.arange(len(X)) % 2)
    with pytest.raises(ValueError, match="Expected lags once, but got lags=12 and options with 'lags'"):
        OrthogonalForecaster(horizon=2, lags=12, options={"lags": 3}).fit(np.sin(np.arange(90)))
    small = {**SMALL, "hidden_size": None, "steps": 1}
    found = OrthogonalClassifier(**{**small, "options": {"hidden_size": 8}}).fit(X, Y)
    assert found.network_.core.hidden_size == 8


def test_options_and_lags_may_be_numbers_of_numpy():
    OrthogonalClassifier(steps=1, hidden_size=3, options={"depth": np.int64(1)}).fit(np.zeros((6, 4, 1)), [0, 1] * 3)
    forecaster = OrthogonalForecaster(steps=1, hidden_size=3, lags=np.int64(4), horizon=np.int32(1))
    assert forecaster.fit(np.arange(40.0) % 5).predict().shape == (1,)


@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor, OrthogonalForecaster])
def test_masked_values_are_missing(kind):
    """The number below the mask was read: 9.97e36 of a netCDF file was data."""
    made = kind(steps=2, hidden_size=4)
    random = np.random.default_rng(0)
    fill = 9.96921e36
    if kind is OrthogonalForecaster:
        y = random.standard_normal(60)
        hole = ma.masked_values(np.where(np.arange(60) == 7, fill, y), fill)
        made.fit(ma.array(y), ma.array(y))
        for wrong in (
            lambda: clone(made).fit(hole),
            lambda: clone(made).fit(hole[:, None]),
            lambda: clone(made).fit(list(hole)),
            lambda: clone(made).fit(y, hole),
            lambda: clone(made).fit(y).predict(hole),
            lambda: clone(made).fit(y).score(hole),
            lambda: made.predict(X=hole[7:8]),
            lambda: made.predict(y[:59], hole),
        ):
            with pytest.raises(ValueError, match="NaN"):
                wrong()
        return
    X, y = random.standard_normal((20, 7, 1)), np.arange(20) % 2
    hole = X.copy()
    hole[3, 2] = fill
    hole = ma.masked_values(hole, fill)
    made.fit(ma.array(X), ma.array(y), ma.ones(20))
    np.testing.assert_array_equal(made.predict(ma.array(X)), made.predict(X))
    objects = np.empty(20, object)
    objects[:] = list(hole)
    for X_wrong in (hole, hole[:, :, 0], list(hole), objects, [list(one) for one in hole]):
        with pytest.raises(ValueError, match="NaN"):
            clone(made).fit(X_wrong, y)
        with pytest.raises(ValueError, match="NaN"):
            made.predict(X_wrong)
    for wrong in (ma.masked_equal(y, 1), ma.masked_equal(y.astype(float), 1), list(ma.masked_equal(y, 1))):
        with pytest.raises(ValueError, match=r"NaN|nan"):
            clone(made).fit(X, wrong)
        with pytest.raises(ValueError, match=r"NaN|nan"):
            made.score(X, wrong)
    with pytest.raises(ValueError, match="finite weights"):
        clone(made).fit(X, y, ma.masked_equal(np.arange(20.0), 3))
    if kind is OrthogonalClassifier:
        with pytest.raises(ValueError, match="None as y"):
            clone(made).fit(X, ma.masked_equal(np.array(["a", "b"] * 10), "b"))
