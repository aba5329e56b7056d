"""Every form of X gives the same sequences; what is none is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn.base")
from sklearn.base import clone

from orthornn.sklearn import OrthogonalClassifier, OrthogonalRegressor
from orthornn.sklearn.sequences import sequences_of
from support.sequences import SMALL, X, Y


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
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        wanted = found.predict_proba(X[:, :, 0])
    np.testing.assert_allclose(found.predict_proba(frame), wanted, atol=1e-6)


def test_tables_with_an_index_of_sequence_and_time():
    pandas = pytest.importorskip("pandas")
    ragged = [one[: 3 + i % 7] for i, one in enumerate(X)]
    index = [(48 - i, step) for i, one in enumerate(ragged) for step in range(len(one))]
    index = pandas.MultiIndex.from_tuples(index, names=["id", "t"])
    frame = pandas.DataFrame(np.concatenate(ragged), index, columns=["a", "b"])
    for layout in ("ntc", "nct"):
        found = sequences_of(frame, layout)
        assert all((one == own).all() for one, own in zip(found, ragged, strict=True))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "values"), [(OrthogonalClassifier, Y), (OrthogonalRegressor, X[:, 0, 0])])
def test_targets_with_the_names_of_the_sequences_are_in_their_order(kind, values):
    """Those that pandas grouped, sorted by name, were those of other sequences."""
    pandas = pytest.importorskip("pandas")
    names = [f"s{place}" for place in range(48)]
    index = pandas.MultiIndex.from_product([names, range(9)], names=["id", "t"])
    frame = pandas.DataFrame(X.reshape(-1, 2), index, columns=["a", "b"])
    targets = pandas.Series(values, names)
    found = kind(**SMALL).fit(frame, targets)
    assert found.score(frame, targets) == found.score(frame, values)
    for call in (kind(**SMALL).fit, found.score):
        with pytest.raises(
            ValueError, match=r"order in which the sequences first appear in X, s0, s1, s2, \.\.\., but got"
        ):
            call(frame, targets.sort_index())
        with pytest.raises(ValueError, match="Expected y in the order"):
            call(frame, targets.sort_index().to_frame())
        with pytest.raises(ValueError, match=r"Expected sample_weight in the order .* sample_weight\.loc"):
            call(frame, targets, pandas.Series(1.0, names).sort_index())
        call(frame, targets.sort_index().reset_index(drop=True))  # an index of other names says nothing


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
    from orthornn.learn.files.ts_files import read_ts

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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.full((4, 3, 1), np.nan), "NaN or infinity in X"),
        (np.zeros(4), "2D array"),
        (np.zeros((0, 3, 1)), "at least one sequence"),
        ([np.zeros((3, 1)), np.zeros((3, 2))], "one number of channels"),
        (np.zeros((4, 3, 1), complex), "Complex data"),
        (np.full((4, 3), np.datetime64("2020")), r"numbers in X, but got datetime64"),
        (np.full((4, 3), "x"), r"sequences of numbers as X, but got <U1 \(could not convert"),
        ([[[1.0, 2.0], [1.0]]] * 4, "lists whose parts have unequal lengths"),
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


@pytest.mark.parametrize("wrong", [{"a": 1}, (one for one in X)])
def test_what_is_no_array_is_named(wrong):
    with pytest.raises(TypeError, match=f"sequences of numbers as X, but got {type(wrong).__name__}"):
        sequences_of(wrong)


def test_arrays_of_unequal_length_in_an_array_or_a_series():
    pandas = pytest.importorskip("pandas")
    ragged = [one[: 3 + i % 7] for i, one in enumerate(X)]
    cells = np.empty(len(ragged), object)
    cells[:] = ragged
    for same in (cells, pandas.Series(cells)):
        assert all((one == own).all() for one, own in zip(sequences_of(same), ragged, strict=True))


def test_steps_of_a_table_are_put_in_the_order_of_their_times():
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_product([range(5), range(9)], names=["id", "t"])
    frame = pandas.DataFrame(X[:5].reshape(45, 2), index, columns=["a", "b"])
    backwards = sequences_of(frame.iloc[::-1])  # the sequences are in the order of their first rows
    assert all((one == own).all() for one, own in zip(backwards, X[:5][::-1], strict=True))
    gone = frame.set_index(pandas.MultiIndex.from_arrays([[None, *[1.0] * 44], range(45)]))
    with pytest.raises(ValueError, match="index of sequence and time, but got missing values"):
        sequences_of(gone)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (
            OrthogonalClassifier,
            np.stack([Y, Y], 1),
            r"one class for each sequence, but got an array of shape \(48, 2\)",
        ),
        (OrthogonalClassifier, np.array(["a", None] * 24, object), r"but got None as y\[1\]"),
        (OrthogonalClassifier, np.array(["a", 1] * 24, object), "classes of one kind, but got int and str"),
        (OrthogonalRegressor, Y, "Expected numbers as y, but got .* For classes, use OrthogonalClassifier"),
        (OrthogonalRegressor, np.full(48, np.datetime64("2020")), "Expected numbers as y, but got"),
        (OrthogonalRegressor, np.zeros((48, 2, 2)), r"but got an array of shape \(48, 2, 2\)"),
        (OrthogonalRegressor, 3.0, r"but got an array of shape \(\)"),
        (OrthogonalRegressor, [[1.0], [1.0, 2.0]] * 24, "lists of unequal lengths"),
    ],
)
def test_wrong_targets_are_refused(kind, wrong, message):
    with pytest.raises(ValueError, match=message):
        kind(**SMALL).fit(X, wrong)


def test_an_index_of_three_levels_is_no_table_of_one_row_per_sequence():
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_product([["a", "b"], [0, 1], [0, 1, 2]])
    with pytest.raises(ValueError, match="Expected an index of two levels, sequence and time, in X, but got 3"):
        sequences_of(pandas.DataFrame({"x": range(12)}, index=index))
