"""Ranks of methods over many sets: Friedman's test, and Nemenyi's critical difference (Demsar, JMLR 7, 2006).

With k methods on N sets and mean ranks R_j, Friedman's test asks whether the methods differ at all. If they do, two of them
differ significantly at 5 % if their mean ranks are further apart than q sqrt(k (k + 1) / (6 N)), where q is the 95 %
quantile of the studentized range of k means, divided by sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.05


class Ranks(NamedTuple):
    """Mean ranks of methods, from 1 for the best.

    means: Mean ranks by method, the best first. sets: N. p: p-value of Friedman's test. difference: Critical difference.
    """

    means: dict[str, float]
    sets: int
    p: float
    difference: float

    def apart(self, one: str, other: str) -> bool:
        """Return whether two methods differ significantly."""
        return self.p < LEVEL and abs(self.means[one] - self.means[other]) > self.difference


def ranked(scores: Sequence[Mapping[str, float]]) -> Ranks:
    """Return the mean ranks of three methods or more.

    Args:
        scores: For each data set the scores by method; higher is better, and equal scores share their rank.
    """
    methods = list(scores[0])
    ranks = np.array([stats.rankdata([-one[method] for method in methods]) for one in scores])
    means = {method: fmean(column) for method, column in zip(methods, ranks.T.tolist())}
    level = bool((ranks == ranks[0, 0]).all())  # then Friedman's statistic is 0 over 0
    p = 1.0 if level else float(stats.friedmanchisquare(*ranks.T).pvalue)
    in_order = dict(sorted(means.items(), key=lambda one: one[1]))
    return Ranks(in_order, len(scores), p, critical_difference(len(methods), len(scores)))


def critical_difference(methods: int, sets: int) -> float:
    """Return the least significant difference of two mean ranks."""
    quantile = float(stats.studentized_range.ppf(1 - LEVEL, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * sets))


def statement(ranks: Ranks, method: str, names: Mapping[str, str]) -> str:
    """Return a sentence that compares one method with the others. names: Words for methods."""
    if ranks.p >= LEVEL:
        return f"Friedman's test finds no significant difference (p = {ranks.p:.2g}, {ranks.sets} data sets)."
    others = [one for one in ranks.means if one != method]
    better = [one for one in others if ranks.apart(method, one) and ranks.means[method] < ranks.means[one]]
    worse = [one for one in others if ranks.apart(method, one) and ranks.means[method] > ranks.means[one]]
    level = [one for one in others if not ranks.apart(method, one)]
    said = [
        f"{word} {', '.join(names.get(one, one) for one in which)}"
        for word, which in (("better than", better), ("worse than", worse), ("not different from", level))
        if which
    ]
    words = "; ".join(one if one.startswith("not") else f"significantly {one}" for one in said)
    return (
        f"By Friedman's and Nemenyi's tests (p = {ranks.p:.2g}; critical difference {ranks.difference:.2f} at 5 %), "
        f"the {method} is {words.replace('not different', 'not significantly different')}."
    )
