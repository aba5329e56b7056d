from __future__ import annotations

import numpy as np
import pytest

from orthornn.errors import DataError, OrthornnWarning
from orthornn.learn.files.columns import read_columns
from orthornn.learn.tasks import Classify

HEAD = (
    "# a comment\n@problemName p\n@timeStamps false\n@dimensions 2\n@equalLength false\n@classLabel true a b\n@data\n"
)

STAMPED = HEAD.replace("false", "true", 1)


def test_sequences_of_unequal_length_with_missing_values(tmp_path):
    path = tmp_path / "p.ts"
    path.write_text(HEAD + "1,2,?:4,5,6:a\n\n-1:3e2:b\n")
    found = read_columns(path)
    assert found.features == 2
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
        (STAMPED + "1:2:a\n", r"Expected pairs \(time,value\) in .*, line 8, but got '1'"),
        (STAMPED + "(0,1),(0,2):(0,1):a\n", "Expected each time once in a channel of .*, line 8"),
        (STAMPED + "(0,1),(1,2):(0,x):a\n", "Expected numbers .* line 8, but got 'x'"),
        (STAMPED + "(noon,1):(noon,2):a\n", "Expected numbers, or dates such as .* line 8, but got 'noon'"),
        (STAMPED + "(0,1),(2020-01-01,2):(0,2):a\n", "Expected numbers, or dates such as"),
        (STAMPED + "?:?:a\n", "Expected a step in"),
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


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        ("(0,1),(2,2),(5,?):(0,4),(2,5),(5,6):a\n(7,-1):(7,3e2):b\n", [0, 2, 5, 7]),
        ("(2,2), (0.5,1), (5,?):(0.5,4),(5,6),(2,5):a\n(7,-1):(7,3e2):b\n", [0.5, 2, 5, 7]),
        ("(0,1),(2,2):(0,4),(2,5),(5,6):a\n(7,-1):(7,3e2):b\n", [0, 2, 5, 7]),
        (
            "(2007-01-01 00:00:00,1),(2007-01-01 00:30:00,2):(2007-01-01 01:00:00,6),(2007-01-01 00:00:00,4),"
            "(2007-01-01 00:30:00,5):a\n(2007-01-01 00:00:00,-1):(2007-01-01 00:00:00,3e2):b\n",
            [f"2007-01-01 {time}:00" for time in ("00:00", "00:30", "01:00", "00:00")],
        ),
    ],
    ids=["whole", "not in order", "of their own", "dates"],
)
def test_time_stamps_are_a_column(tmp_path, lines, times):
    path = tmp_path / "p.ts"
    path.write_text(STAMPED + lines)
    found = read_columns(path)
    assert found.features == 2
    np.testing.assert_array_equal(found.columns["x0"], [1, 2, np.nan, -1])
    np.testing.assert_array_equal(found.columns["x1"], [4, 5, 6, 300])
    assert found.columns["y"].tolist() == ["a", "a", "a", "b"]
    assert found.columns["sequence"].tolist() == [0, 0, 0, 1]
    assert found.columns["time"].tolist() == times


def test_time_stamps_order_the_steps_and_are_no_inputs(tmp_path):
    path = tmp_path / "p.ts"
    rows = [",".join(f"({t},{np.sin(t + i)})" for t in range(6) if t != 3) + ":" + "ab"[i % 2] for i in range(12)]
    path.write_text("@timestamps true\n@classLabel true a b\n@data\n" + "\n".join(rows) + "\n")
    with pytest.warns(OrthornnWarning, match=r"does not see time \(times with gaps: pass time\)"):
        assert Classify(data=path, target="y").table().roles.inputs == ["x0"]
    told = Classify(data=path, target="y", time="time").summary_lines()
    assert "time: every 1, with 12 gap(s), where steps are missing: 1 after 2" in "\n".join(told)


@pytest.mark.parametrize(
    "flags", ["@targetlabel false\n@classlabel true up 7\n", "@classlabel true up 7\n@targetLabel False\n"]
)
def test_classes_next_to_no_targets(tmp_path, flags):
    """That the line was there, whatever it said, made numbers of the classes."""
    path = tmp_path / "p.ts"
    path.write_text(f"{flags}@data\n1,2:up\n3,4:7\n")
    assert read_columns(path).columns["y"].tolist() == ["up", "up", "7", "7"]
