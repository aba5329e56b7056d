from __future__ import annotations

import numpy as np
import pytest

from orthornn.errors import DataError
from orthornn.lab.files.columns import read_columns

HEAD = (
    "# a comment\n@problemName p\n@timeStamps false\n@dimensions 2\n@equalLength false\n@classLabel true a b\n@data\n"
)


def test_sequences_of_unequal_length_with_missing_values(tmp_path):
    path = tmp_path / "p.ts"
    path.write_text(HEAD + "1,2,?:4,5,6:a\n\n-1:3e2:b\n")
    found = read_columns(path)
    assert (found.features, found.sequences) == (2, True)
    np.testing.assert_array_equal(found.columns["x0"], [1, 2, np.nan, -1])
    np.testing.assert_array_equal(found.columns["x1"], [4, 5, 6, 300])
    assert found.columns["y"].tolist() == ["a", "a", "a", "b"]
    assert found.columns["sequence"].tolist() == [0, 0, 0, 1]


def test_targets_that_are_numbers(tmp_path):
    path = tmp_path / "p.ts"
    path.write_text("@targetlabel true\n@data\n1,2:0.5\n3,4:7\n")
    assert read_columns(path).columns["y"].tolist() == [0.5, 0.5, 7, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1,2:3,4:c\n", "Expected the classes a b .* 'c'"),
        (HEAD + "1,2:3:a\n", "channels of one length .* line 8, .* 2, 1 values"),
        (HEAD + "1,2:3,x:a\n", "Expected numbers .* line 8, but got 'x'"),
        (HEAD + "1:2:a\n1:b\n", "Expected 2 channels .* line 9"),
        (HEAD + "1:2:a\n1:2:\n", "Expected values and a class"),
        (HEAD.replace("@data\n", ""), "Expected a line @data"),
        (HEAD.replace("false", "true", 1) + "1:2:a\n", "Expected @timestamps false"),
        (HEAD.replace("Length false", "Length true") + "1:2:a\n1,2:3,4:b\n", "sequences of one length"),
        (HEAD.replace("dimensions 2", "dimensions 3") + "1:2:a\n", "Expected 3 channels"),
        (HEAD, "no rows"),
        ("1,2\n", "a line with @ or #"),
    ],
)
def test_what_is_no_ts_file_is_refused(tmp_path, text, message):
    path = tmp_path / "p.ts"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_columns(path)
