"""Tests of whether two groups of seeds differ: an exact permutation test, and Holm's correction for several.

The test asks how often a random division of all values into two groups of these sizes has means at least as far apart.
It supposes no distribution. With k and k seeds its smallest p is 2 / (2k choose k): .1 for 3, .029 for 4, .008 for 5;
so three seeds can never show a difference at the level .05, as the sentence then states.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence

from .ranking import best_first

LEVEL = 0.05
_EXACT = 20_000  # divisions that are all looked at
_DRAWN = 20_000  # else so many random ones


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of the difference of the means; 1 if a number is infinite or NaN."""
    pooled = [*first, *second]
    size, total = len(first), sum(pooled)
    observed = abs(statistics.fmean(first) - statistics.fmean(second))
    if not all(map(math.isfinite, pooled)):
        return 1.0  # nothing can be told
    slack = 1e-12 * max(map(abs, pooled))  # the same division, added up in another order

    def extreme(chosen: Sequence[float]) -> bool:
        part = sum(chosen)
        return abs(part / size - (total - part) / len(second)) >= observed - slack

    count = math.comb(len(pooled), size)
    if count <= _EXACT:
        return sum(map(extreme, itertools.combinations(pooled, size))) / count
    draw = random.Random(0)
    return (1 + sum(extreme(draw.sample(pooled, size)) for _ in range(_DRAWN))) / (1 + _DRAWN)


def smallest_p(first: int, second: int) -> float:
    """Return the least p that the test can return for groups of these sizes."""
    ways = 2 if first == second else 1
    return ways / math.comb(first + second, first)


def best_of(groups: Mapping[str, Sequence[float]], higher_is_better: bool) -> str:
    """Return the name of the group with the best mean."""
    return best_first({name: statistics.fmean(own) for name, own in groups.items()}, higher_is_better)[0]


def verdicts(
    values: Mapping[str, Sequence[float]],
    higher_is_better: bool,
    what: str,
    validation: Mapping[str, Sequence[float]] | None = None,
) -> list[str]:
    """Return sentences: the best group against every other, with p corrected for their number (Holm).

    Args:
        values: The numbers that are compared, by group.
        higher_is_better: Which way they go.
        what: Their name.
        validation: Numbers of the same groups that choose the best one, which keeps the test out of the choice. Default:
            `values`.
    """
    known = {name: list(numbers) for name, numbers in values.items() if numbers}
    if len(known) < 2:
        return []
    best = best_of(known if validation is None else {name: validation[name] for name in known}, higher_is_better)
    others = [name for name in known if name != best]
    if all(len(numbers) < 2 for numbers in known.values()):
        named = what if validation is None else "validation"
        return [f"{best} has the best {named}, of one seed each: that shows no difference. Use --seeds 5."]
    by_p = sorted(others, key=lambda name: p_value(known[best], known[name]))
    corrected, largest = {}, 0.0
    for rank, name in enumerate(by_p):
        largest = max(largest, min(1.0, (len(by_p) - rank) * p_value(known[best], known[name])))
        corrected[name] = largest
    return [_sentence(best, name, known, corrected[name], what, len(others), higher_is_better) for name in others]


def _sentence(
    best: str, other: str, values: Mapping[str, list[float]], p: float, what: str, tests: int, higher_is_better: bool
) -> str:
    sizes = len(values[best]), len(values[other])
    told = f"{what} {mean_and_spread(values[best])} against {mean_and_spread(values[other])}, p = {p:.2g}"
    if p < LEVEL and best_of({name: values[name] for name in (best, other)}, higher_is_better) == best:
        return f"{best} is better than {other}: {told}."
    if p < LEVEL:
        return f"{best} has the better validation, but is worse than {other}: {told}."
    if smallest_p(*sizes) * tests >= LEVEL:
        return f"{best} and {other}: {told}; {sizes[0]} and {sizes[1]} seeds are too few to show any difference."
    return f"{best} and {other} cannot be told apart: {told}."


def mean_and_spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation of a sample; a dash if it is empty."""
    if len(values) < 2:
        return f"{values[0]:.4g}" if values else "-"
    spread = statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan
    return f"{statistics.fmean(values):.4g} ± {spread:.2g}"
