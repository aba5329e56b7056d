from __future__ import annotations

import numpy as np
import pytest

from orthornn.learn.files.same_names import in_known_spelling


def spelled(label, *known):
    return in_known_spelling(np.array([label, None], object), known).tolist()[0]


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("1", "1.0"),
        ("1.0", "1"),
        ("120000", "12E4"),
        ("9007199254740993", "+9007199254740993"),
        ("True", "true"),
        ("2020-01-02T00:00:00.000000000", "2020-01-02"),
        ("2020-01-02 12:30", "2020-01-02T12:30:00"),
    ],
)
def test_a_name_is_taken_for_the_known_one_that_means_the_same(label, known):
    assert spelled(label, "other", known) == known


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("7", "007"),
        ("1", "True"),
        ("9007199254740993", "9007199254740992"),
        ("1", "one"),
        ("nan", "NaN"),
        ("2020-01-02", "2020-01-02T00:00Z"),
        ("2020-13-01", "2020-13-01 00:00"),
        ("1_0", "10"),
    ],
)
def test_what_differs_stays_different(label, known):
    assert spelled(label, known) == label


def test_what_is_known_as_it_is_stays_and_of_two_spellings_none_is_chosen():
    assert spelled("1", "1", "1.0") == "1"
    assert spelled("1.00", "1", "1.0") == "1.00"
