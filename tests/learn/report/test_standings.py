import math

import pytest

from orthornn.learn.report.standings import Standings
from orthornn.learn.tasks import Adding, Copying


def seen(**groups):
    return {
        name: [({"recall": a, "loss": a}, {"recall": b, "loss": b}) for a, b in own] for name, own in groups.items()
    }


@pytest.mark.parametrize(("task", "first"), [(Copying(), "good"), (Adding(), "bad")])
def test_groups_stand_by_their_validation_and_those_without_a_number_last(task, first):
    runs = seen(lost=[(math.nan, 0.9)], bad=[(0.1, 0.9), (0.3, 0.9)], good=[(0.7, 0.2)], stopped=[])
    found = Standings(task, runs)
    assert found.best_first() == [first, {"good": "bad", "bad": "good"}[first], "lost", "stopped"]
    assert found.validation()["bad"] == [0.1, 0.3]
    assert found.test("loss")["good"] == [0.2]


def test_a_task_without_validation_data_is_ranked_by_its_test():
    runs = {"one": [({}, {"recall": 0.2})], "two": [({}, {"recall": 0.4})]}
    found = Standings(Copying(), runs)
    assert found.best_first() == ["two", "one"]
    assert found.validation() == {"one": [], "two": []}


def test_table_and_sentences_name_one_best_group_if_some_have_no_validation_data():
    """A validation is not compared with a test."""
    runs = {
        "tested": [({}, {"recall": 0.7 + k / 1000}) for k in range(5)],
        "seen": [({"recall": 0.2}, {"recall": 0.8 + k / 1000}) for k in range(5)],
        "stopped": [],
    }
    found = Standings(Copying(), runs)
    assert found.best_first() == ["seen", "tested", "stopped"]
    (sentence,) = found.verdicts()
    assert sentence.startswith("seen is better than tested: test recall")


def test_the_best_by_validation_is_compared_by_the_test():
    runs = seen(a=[(0.9, 0.1 + k / 1000) for k in range(5)], b=[(0.1, 0.8 + k / 1000) for k in range(5)])
    (sentence,) = Standings(Copying(), runs).verdicts()
    assert sentence.startswith("a has the better validation, but is worse than b: test recall")
