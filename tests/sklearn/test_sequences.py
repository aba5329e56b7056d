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
