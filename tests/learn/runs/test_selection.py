"""Which validation is the best, and since when the network has not become better."""

from __future__ import annotations

import math
import random

import pytest

from orthornn.learn.runs.selection import Selection


def validations(seed, count=40):
    """So many, with a metric of three values, so that many are equal."""
    draw = random.Random(seed)
    return [
        {"step": k, "score": draw.choice([0.25, 0.5, 0.75]), "loss": draw.choice([0.1, 0.2, 0.3])} for k in range(count)
    ]


@pytest.mark.parametrize("higher_is_better", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_has_the_best_metric_and_is_the_latest_that_has_it(higher_is_better, seed):
    selection, seen = Selection("score", higher_is_better=higher_is_better), []
    for one in validations(seed):
        seen.append(one)
        is_best = selection.update(one)
        target = (max if higher_is_better else min)(each["score"] for each in seen)
        latest = [each for each in seen if each["score"] == target][-1]
        assert selection.best == latest
        assert is_best == (latest is one)


@pytest.mark.parametrize("seed", range(5))
def test_a_network_becomes_better_with_a_better_metric_or_a_lower_loss_at_the_same(seed):
    selection, lead, since = Selection("score", higher_is_better=True), None, 0
    for one in validations(seed):
        selection.update(one)
        rank = (one["score"], -one["loss"])
        lead, since = (rank, 0) if lead is None or rank > lead else (lead, since + 1)
        assert selection.stale == since


@pytest.mark.parametrize("after", [0, 1, 17, 39])
def test_going_on_from_a_checkpoint_is_as_never_stopped(after):
    whole, first, second = (Selection("score", higher_is_better=True) for _ in range(3))
    seen = validations(7)
    for one in seen:
        whole.update(one)
    for one in seen[:after]:
        first.update(one)
    second.restore(first.best, first.stale, seen[:after])
    for one in seen[after:]:
        second.update(one)
    assert (second.best, second.stale) == (whole.best, whole.stale)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_never_the_best(loss):
    selection = Selection("score", higher_is_better=True)
    assert not selection.update({"score": 0.9, "loss": loss})
    assert selection.best is None
    assert selection.update({"score": 0.5, "loss": 1.0})
    assert not selection.update({"score": 0.9, "loss": loss})
    assert selection.best == {"score": 0.5, "loss": 1.0}
    assert selection.stale == 1
