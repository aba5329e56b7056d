"""The sign of u_1 along a path of updates."""

from __future__ import annotations

import pytest

from orthornn_evidence.papers import signs


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_u1_keeps_its_sign_and_adam_its_bound(rate):
    found = signs.follow(3, rate, 60, seed=1)
    assert found.flips == 0
    assert 0 < found.farthest <= signs.REACH * rate
    assert found.distance > 1  # a matrix of the other determinant is at least 2 away


def test_a_large_rate_can_change_it():
    assert max(signs.follow(3, 3.0, 40, seed).flips for seed in range(3)) > 0
