"""Files of raw sequences."""

from __future__ import annotations

import numpy as np
import pytest

from orthornn.errors import DataError
from orthornn.learn.files.sequence_files import read_sequences


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
def test_sequences_and_targets_are_read(tmp_path, suffix):
    x, y, path = np.arange(6).reshape(2, 3), np.array([0, 1]), tmp_path / f"a.{suffix}"
    if suffix == "npz":
        np.savez(path, x=x, y=y)
    elif suffix == "npy":
        np.save(path, x)
    else:
        np.savetxt(path, x, delimiter=",", fmt="%d")
    sequences, targets = read_sequences(path, True)
    np.testing.assert_array_equal(sequences, x)
    assert sequences.dtype == np.int64
    assert targets is None if suffix != "npz" else (targets == y).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,2,3\n1,2\n", r"Expected 3 numbers in .*, line 2"),
        ("1,2\n\n3,4\n", r"Expected 2 numbers in .*, line 2.* got 0 cells"),
        ("1,2\n#3,4\n", "line 2, but got '#3'"),
        ("1,2\n1_0,4\n", "line 2, but got '1_0'"),
        ("1,2.5\n3,4\n", "Expected whole numbers, tokens, .* got 2.5"),
        ("", "got an empty file"),
    ],
)
def test_lines_without_names_are_all_read(tmp_path, content, message):
    """numpy left empty lines and those with # out, so that later predictions had another sequence's number."""
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_sequences(path, True)
