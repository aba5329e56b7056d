import math

from orthornn.learn.report.ranking import best_first


def test_the_best_comes_first_and_what_has_no_score_last():
    scores = {"none": math.nan, "low": 0.1, "high": 0.9, "also none": math.nan, "worst": -math.inf, "equal": 0.1}
    assert best_first(scores, True) == ["high", "low", "equal", "worst", "none", "also none"]
    assert best_first(scores, False) == ["worst", "low", "equal", "high", "none", "also none"]
    assert best_first({}, True) == []
