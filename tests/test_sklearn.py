"""The estimators behave like scikit-learn's, on sequences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster, OrthogonalRegressor, sequences_of  # noqa: E402

RANDOM = np.random.default_rng(6)
X = RANDOM.standard_normal((48, 9, 2))
Y = np.where(X[:, -1, 0] > 0, "up", "down")
SMALL = {"model": "lstm", "hidden_size": 4, "steps": 6, "batch_size": 8}


def test_a_classifier_learns_and_its_probabilities_add_up():
    at_the_end = {"pool": "last", "dropout": 0.0}  # where the answer is
    found = OrthogonalClassifier(model="lstm", hidden_size=8, steps=80, lr=2e-2, options=at_the_end).fit(X, Y)
    assert found.score(X, Y) > 0.85
    probabilities = found.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (found.classes_[probabilities.argmax(1)] == found.predict(X)).all()
    assert list(found.classes_) == ["down", "up"]


def test_the_default_learns_what_is_in_the_whole_sequence():
    kinds = np.arange(40) % 2
    phases = np.random.default_rng(1).uniform(0, 6, 40)
    waves = np.sin(np.where(kinds, 0.9, 0.4)[:, None] * np.arange(30) + phases[:, None])
    assert OrthogonalClassifier(steps=60).fit(waves[:30], kinds[:30]).score(waves[30:], kinds[30:]) > 0.85


def test_a_regressor_learns_in_the_units_of_its_targets():
    wanted = 100 + 50 * X[:, -1, 0]
    at_the_end = {"pool": "last", "dropout": 0.0}
    found = OrthogonalRegressor(model="lstm", hidden_size=8, steps=120, lr=2e-2, options=at_the_end).fit(X, wanted)
    assert found.score(X, wanted) > 0.5
    both = OrthogonalRegressor(**SMALL).fit(X, np.stack([wanted, -wanted], 1))
    assert both.predict(X).shape == (48, 2)


def test_every_form_of_the_same_sequences_gives_the_same():
    found = OrthogonalClassifier(**SMALL).fit(X, Y)
    wanted = found.predict_proba(X)
    np.testing.assert_allclose(found.predict_proba(list(X)), wanted, atol=1e-6)
    turned = clone(found).set_params(layout="nct").fit(X.transpose(0, 2, 1), Y)
    np.testing.assert_allclose(turned.predict_proba(X.transpose(0, 2, 1)), wanted, atol=1e-6)
    # the units of a channel do not matter
    np.testing.assert_allclose(clone(found).fit(X * 1000 + 5, Y).predict_proba(X * 1000 + 5), wanted, atol=1e-4)
    assert [one.shape for one in sequences_of(X[:, :, 0])] == [(9, 1)] * 48


def test_sequences_of_unequal_length():
    ragged = [one[: 3 + i % 7] for i, one in enumerate(X)]
    found = OrthogonalClassifier(**SMALL).fit(ragged, Y)
    wanted = found.predict_proba(ragged)
    for place in (0, 5, 11):
        np.testing.assert_allclose(found.predict_proba([ragged[place]])[0], wanted[place], atol=1e-6)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables(library):
    pytest.importorskip("narwhals")
    frame = pytest.importorskip(library).DataFrame({f"t{i}": X[:, i, 0] for i in range(9)})
    found = OrthogonalClassifier(**SMALL).fit(frame, Y)
    np.testing.assert_allclose(found.predict_proba(frame), found.predict_proba(X[:, :, 0]), atol=1e-6)


def test_tables_with_an_index_of_sequence_and_time():
    pandas = pytest.importorskip("pandas")
    ragged = [one[: 3 + i % 7] for i, one in enumerate(X)]
    index = [(48 - i, step) for i, one in enumerate(ragged) for step in range(len(one))]
    index = pandas.MultiIndex.from_tuples(index, names=["id", "t"])
    frame = pandas.DataFrame(np.concatenate(ragged), index, columns=["a", "b"])
    for layout in ("ntc", "nct"):
        found = sequences_of(frame, layout)
        assert all((one == own).all() for one, own in zip(found, ragged, strict=True))


def test_a_table_of_words_is_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"but got 'kind'. .* orthornn.train"):
        sequences_of(pandas.DataFrame({"t0": [1.0, 2.0], "kind": ["up", "down"]}))
    assert sequences_of(pandas.DataFrame({"t0": [1.0, 2.0], "t1": pandas.Series([1, 0.5], dtype=object)}))[
        1
    ].tolist() == [
        [2],
        [0.5],
    ]


def test_the_layout_and_the_files_of_aeon(tmp_path):
    """(n, C, T) arrays, lists of (C, T_i), and a .ts file as its collections are."""
    from orthornn.lab.tasks.ts_files import read_ts

    ragged = [one[: 4 + i % 5].T for i, one in enumerate(X)]  # (C, T_i)
    lines = [":".join(",".join(map(repr, channel.tolist())) for channel in one) + f":{y}" for one, y in zip(ragged, Y)]
    (tmp_path / "waves.ts").write_text("@timestamps false\n@classLabel true up down\n@data\n" + "\n".join(lines) + "\n")
    columns, channels = read_ts(tmp_path / "waves.ts")
    rows = np.stack([columns[f"x{channel}"] for channel in range(channels)])
    starts = np.unique(columns["sequence"], return_index=True)[1]
    collection = np.split(rows, starts[1:], axis=1)
    assert all((one == own).all() for one, own in zip(collection, ragged, strict=True))
    found = OrthogonalClassifier(**SMALL, layout="nct").fit(collection, columns["y"][starts])
    turned = clone(found).set_params(layout="ntc").fit([one.T for one in ragged], Y)
    np.testing.assert_array_equal(found.predict_proba(ragged), turned.predict_proba([one.T for one in ragged]))


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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.full((4, 3, 1), np.nan), "NaN or infinity in X"),
        (np.zeros(4), "2D array"),
        (np.zeros((0, 3, 1)), "at least one sequence"),
        ([np.zeros((3, 1)), np.zeros((3, 2))], "one number of channels"),
        (np.zeros((4, 3, 1), complex), "Complex data"),
    ],
)
def test_wrong_sequences_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        OrthogonalClassifier(**SMALL).fit(wrong, [0, 1, 0, 1][: len(wrong)])


def test_wrong_targets_and_another_width_are_refused():
    with pytest.raises(ValueError, match="Expected 48 targets"):
        OrthogonalClassifier(**SMALL).fit(X, Y[:-1])
    with pytest.raises(ValueError, match="one class"):
        OrthogonalClassifier(**SMALL).fit(X, np.zeros(48, int))
    found = OrthogonalRegressor(**SMALL).fit(X, X[:, 0, 0])
    with pytest.raises(ValueError, match="Expected 2 channels, as in fit, but got 1"):
        found.predict(X[..., :1])


CHECKS = [
    *("check_estimators_dtypes", "check_estimators_pickle", "check_estimators_nan_inf", "check_n_features_in"),
    *("check_dict_unchanged", "check_fit_idempotent", "check_parameters_default_constructible", "check_complex_data"),
    *("check_set_params", "check_no_attributes_set_in_init", "check_fit2d_1sample", "check_get_params_invariance"),
    *("check_estimators_fit_returns_self", "check_estimators_unfitted", "check_fit1d", "check_pipeline_consistency"),
    *("check_estimators_overwrite_params", "check_methods_subset_invariance"),
]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [OrthogonalClassifier, OrthogonalRegressor])
def test_the_checks_of_scikit_learn_that_make_sense_for_sequences(kind, name):
    """A matrix is one channel there, a row a sequence."""
    from sklearn.utils import estimator_checks

    check = getattr(estimator_checks, name)
    if name == "check_parameters_default_constructible":
        check(kind.__name__, kind())
        return
    estimator = kind(**{**SMALL, "steps": 2})
    check(kind.__name__, estimator)


def test_a_forecast_is_at_least_linear_autoregression():
    t = np.arange(150)
    y = np.stack([np.sin(t * np.pi / 6), 100 + t], 1)
    found = OrthogonalForecaster("gru", horizon=5, lags=13, hidden_size=4, steps=2).fit(y[:140])
    np.testing.assert_allclose(found.predict(), y[140:145], rtol=1e-2, atol=0.05)
    np.testing.assert_allclose(found.predict(y[:120]), y[120:125], rtol=1e-2, atol=0.05)
    one = OrthogonalForecaster("gru", horizon=3, lags=12, hidden_size=4, steps=2).fit(y[:140, 0])
    assert one.predict().shape == (3,)
    assert one.score(y[:143, 0]) > 0.99
    assert found.score(y[:145]) > 0.99
    with pytest.raises(ValueError, match="more than 5 steps"):
        found.score(y[:5])
    again = clone(one).fit(y[:140, 0])
    np.testing.assert_array_equal(again.predict(), pickle.loads(pickle.dumps(one)).predict())
    for wrong, message in (
        (y[:10], "at least 21 steps"),
        (np.full(50, np.nan), "finite numbers"),
        (np.zeros((2, 3, 4)), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(found).fit(wrong)


def test_a_forecaster_uses_what_is_known_ahead():
    random = np.random.default_rng(8)
    price = random.standard_normal((130, 2))
    y = 7 + price @ [3.0, -2.0]
    small = {"hidden_size": 4, "lags": 3, "horizon": 4, "steps": 2}
    blind = OrthogonalForecaster(**small).fit(y[:120])
    found = OrthogonalForecaster(**small).fit(y[:120], price[:120])
    assert np.abs(found.predict(X=price[120:124]) - y[120:124]).max() < 0.2
    assert np.abs(blind.predict() - y[120:124]).max() > 1
    later = found.predict(y[:126], price)
    assert np.abs(later - y[126:130]).max() < 0.2
    np.testing.assert_allclose(pickle.loads(pickle.dumps(found)).predict(y[:126], price), later)
    assert found.score(y, price) > 0.99
    one = OrthogonalForecaster(**small).fit(np.stack([y, -y], 1)[:120], price[:120, 0])
    assert one.predict(X=price[120:124, 0]).shape == (4, 2)
    for wrong, message in [
        (lambda: found.predict(), "Expected X where fit had one"),
        (lambda: blind.predict(X=price[:4]), "Expected X where fit had one"),
        (lambda: found.predict(X=price[:5]), r"\(4,\) or \(4, K\).*the steps to forecast"),
        (lambda: found.predict(X=price[:4, :1]), r"Expected 2 column\(s\) in X"),
        (lambda: found.predict(y[:120], price[:120]), r"124.*those of y and the steps"),
        (lambda: OrthogonalForecaster(**small).fit(y, price[:-1]), r"130.*those of y"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


def test_a_classifier_decides_by_a_threshold():
    random = np.random.default_rng(4)
    rare = np.arange(120) % 8 == 0
    series = random.standard_normal((120, 6, 1)) + 0.8 * rare[:, None, None]
    options = {"model": "lstm", "hidden_size": 4, "steps": 30, "lr": 1e-2, "validation_share": 0.4}
    usual = OrthogonalClassifier(**options).fit(series, rare)
    found = OrthogonalClassifier(**options, threshold="balanced_accuracy").fit(series, rare)
    probabilities = found.predict_proba(series)
    np.testing.assert_array_equal(probabilities, usual.predict_proba(series))
    assert usual.threshold_ is None
    assert ((probabilities[:, 1] >= found.threshold_) == found.predict(series)).all()
    assert found.predict(series)[rare].mean() > usual.predict(series)[rare].mean()
    assert clone(found).get_params()["threshold"] == "balanced_accuracy"
    assert OrthogonalClassifier(**options, threshold=0.999).fit(series, rare).predict(series).sum() == 0
    with pytest.raises(ValueError, match="Expected 2 classes for threshold"):
        OrthogonalClassifier(**SMALL, threshold="f1").fit(X, np.arange(48) % 3)
    with pytest.raises(ValueError, match="Expected a number between 0 and 1"):
        OrthogonalClassifier(**SMALL, threshold="recall").fit(X, Y)
