"""Ranks over many sets, against the published table of critical values and a worked example."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orthornn_evidence.own_data.ranks import critical_difference, ranked, statement

# q at 5 %, Demsar (2006), table 5(a)
CRITICAL = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}


@pytest.mark.parametrize("methods", CRITICAL)
def test_critical_differences_are_those_of_the_published_table(methods):
    expected = CRITICAL[methods] * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert critical_difference(methods, 14) == pytest.approx(expected, abs=1.1e-3)
    assert critical_difference(methods, 4 * 14) == pytest.approx(critical_difference(methods, 14) / 2)


def test_ranks_are_means_in_which_equal_scores_share_theirs():
    scores = [{"a": 0.9, "b": 0.8, "c": 0.8}, {"a": 0.5, "b": 0.7, "c": 0.6}, {"a": 3.0, "b": 2.0, "c": 1.0}]
    found = ranked(scores)
    assert found.means == {"a": pytest.approx(5 / 3), "b": pytest.approx(5.5 / 3), "c": pytest.approx(7.5 / 3)}
    assert list(found.means) == ["a", "b", "c"]
    assert found.sets == 3
    columns = [[one[name] for one in scores] for name in "abc"]
    assert found.p == pytest.approx(stats.friedmanchisquare(*columns).pvalue)


def test_friedman_is_the_sum_of_squares_of_ranks():
    random = np.random.default_rng(0)
    values = random.normal(size=(12, 5)) + np.arange(5)
    found = ranked([dict(zip("abcde", row)) for row in values.tolist()])
    means = np.array([found.means[name] for name in "abcde"])
    statistic = 12 * 12 / (5 * 6) * (np.square(means).sum() - 5 * 36 / 4)
    assert found.p == pytest.approx(stats.chi2.sf(statistic, 4))


def test_methods_are_told_apart_by_the_critical_difference():
    order = [{"best": 3.0 + one, "middle": 2.0 + one, "worst": 1.0 + one} for one in range(10)]
    found = ranked(order)
    assert found.apart("best", "worst")
    assert not found.apart("best", "middle")  # 1 apart, and 1.05 would be significant
    said = statement(found, "best", {"worst": "the worst"})
    assert said.endswith(
        "critical difference 1.05 at 5 %), the best is significantly better than the worst; "
        "not significantly different from middle."
    )
    assert "significantly worse than best" in statement(found, "worst", {})
    assert "the middle is not significantly different from best, worst." in statement(found, "middle", {})


def test_without_a_difference_nothing_is_told_apart():
    level = ranked([{"a": 1.0, "b": 1.0, "c": 1.0}] * 4)
    assert level.p == 1
    assert not level.apart("a", "b")
    assert statement(level, "a", {}) == "Friedman's test finds no significant difference (p = 1, 4 data sets)."
    even = ranked([{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 3.0, "b": 2.0, "c": 1.0}])
    assert not even.apart("a", "c")
