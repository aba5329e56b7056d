"""The metrics of forecasts, against scikit-learn's and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

from orthornn.learn.tasks.forecast_metrics import pinball, scores, uncrossed

RANDOM = np.random.default_rng(0)


def test_the_metrics_are_scikit_learns():
    wanted, found = RANDOM.standard_normal((2, 50, 1))
    mean, deviation, usual = np.array([4.0]), np.array([2.0]), np.array([0.5])
    sums = scores(found, wanted, mean, deviation, usual)
    y, guess = wanted * 2 + 4, found * 2 + 4
    values = {name: total / count for name, (total, count) in sums.items()}
    assert values["loss"] == pytest.approx(metrics.mean_squared_error(wanted, found))
    assert values["mse"] == pytest.approx(metrics.mean_squared_error(y, guess))
    assert values["mae"] == pytest.approx(metrics.mean_absolute_error(y, guess))
    assert values["mape"] == pytest.approx(metrics.mean_absolute_percentage_error(y, guess))
    assert values["smape"] == pytest.approx(np.mean(2 * np.abs(y - guess) / (np.abs(y) + np.abs(guess))))
    assert values["mase"] == pytest.approx(values["mae"] / 0.5)
    assert "coverage" not in values


def test_quantiles():
    wanted = RANDOM.standard_normal((40, 2))
    levels = [0.2, 0.5, 0.7]
    found = np.sort(RANDOM.standard_normal((40, 2, 3)), 2)
    each = pinball(found, wanted, levels)
    for place, level in enumerate(levels):
        expected = metrics.mean_pinball_loss(wanted, found[..., place], alpha=level)
        assert each[..., place].mean() == pytest.approx(2 * expected)
    sums = scores(found.reshape(40, 6), wanted, np.zeros(2), np.ones(2), np.ones(2), levels)
    assert sums["mae"][0] / sums["mae"][1] == pytest.approx(metrics.mean_absolute_error(wanted, found[..., 1]))
    inside = (found[..., 0] <= wanted) & (wanted <= found[..., 2])
    assert sums["coverage"] == (pytest.approx(inside.sum()), 80)
    for place, level in enumerate(levels):
        assert sums[f"coverage_q{level}"] == (pytest.approx((wanted <= found[..., place]).sum()), 80)


def test_missing_targets_and_zeros_do_not_count():
    wanted = np.array([[1.0], [np.nan], [0.0], [-1.0]])
    found = np.array([[2.0], [3.0], [0.0], [1.0]])
    one = np.ones(1)
    sums = scores(found, wanted, np.zeros(1), one, one)
    assert sums["loss"] == (5.0, 3)
    assert sums["mape"] == (3.0, 2)
    assert sums["smape"] == (pytest.approx(2 / 3 + 2), 2)
    parts = [scores(found[own], wanted[own], np.zeros(1), one, one) for own in (slice(2), slice(2, 4))]
    for name, (total, count) in sums.items():
        assert (sum(part[name][0] for part in parts), sum(part[name][1] for part in parts)) == (
            pytest.approx(total),
            count,
        )


def test_a_percentage_of_what_only_rounding_keeps_from_0_does_not_count():
    y = np.array([[0.0], [3.0], [0.02]])
    mean, deviation = np.array([1.7]), np.array([0.9])
    standard = ((y - mean) / deviation).astype(np.float32)
    total, count = scores(standard + 0.1, standard, mean, deviation, np.ones(1))["mape"]
    assert count == 2
    assert total == pytest.approx(0.09 / 3 + 0.09 / 0.02, rel=1e-3)


def test_quantiles_that_cross_are_sorted_which_lowers_their_loss():
    wanted, levels = RANDOM.standard_normal((40, 2)), [0.2, 0.5, 0.7]
    crossed = RANDOM.standard_normal((40, 6))
    found = uncrossed(crossed, 3)
    assert (np.diff(found.reshape(40, 2, 3)) >= 0).all()
    np.testing.assert_array_equal(np.sort(crossed.reshape(40, 2, 3)), found.reshape(40, 2, 3))
    np.testing.assert_array_equal(uncrossed(torch.from_numpy(crossed), 3).numpy(), found)
    np.testing.assert_array_equal(uncrossed(found, 3), found)
    for count in (0, 1):
        assert uncrossed(crossed, count) is crossed
    one = np.ones(2)
    sums = scores(crossed, wanted, np.zeros(2), one, one, levels)
    assert sums == scores(found, wanted, np.zeros(2), one, one, levels)
    assert sums["loss"][0] < pinball(crossed.reshape(40, 2, 3), wanted, levels).mean(-1).sum()


def test_an_infinite_prediction_counts_in_every_metric():
    one = np.ones(1)
    sums = scores(np.array([[500.0], [0.1]]), np.array([[0.0], [0.0]]), 5 * one, 2 * one, one, (), "log")
    assert {count for _, count in sums.values()} == {2}
    assert sums["mae"][0] == np.inf
    y, guess = np.exp(5), np.exp(5.2)
    assert sums["smape"][0] == pytest.approx(2 + 2 * (guess - y) / (guess + y))
