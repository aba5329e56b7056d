"""What Tables 1 and 2 and the finding about u_1 rest on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn.compact_wy import product
from orthornn.lab.papers import flops, signs
from support.tolerances import tolerance


def step(n, m):
    random = np.random.default_rng(n + m)
    return np.tril(random.standard_normal((n, m))), random.standard_normal(n), random.standard_normal(n)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 4), (9, 3), (12, 11)])
def test_algorithm_1_computes_what_autograd_computes(n, m):
    U, h, d = step(n, m)
    made = flops.algorithm1(U, h, d)
    tensors = [torch.from_numpy(value).requires_grad_() for value in (U, h)]
    C = product(tensors[0]) @ tensors[1]
    C.backward(torch.from_numpy(d))
    bound = tolerance(torch.float64, n * m * 10)
    np.testing.assert_allclose(made.C, C.detach().numpy(), rtol=0, atol=bound)
    np.testing.assert_allclose(made.grad_h, tensors[1].grad.numpy(), rtol=0, atol=bound)
    np.testing.assert_allclose(made.grad_U, np.tril(tensors[0].grad.numpy()), rtol=0, atol=bound)
    np.testing.assert_allclose(flops.compact_wy_forward(U, h)[0], made.C, rtol=0, atol=bound)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 4), (9, 3), (12, 11)])
def test_the_counts_are_these_formulas(n, m):
    U, h, d = step(n, m)
    made = flops.algorithm1(U, h, d)
    assert made.forward == 2 * m * (2 * n - m + 1)
    assert 2 * made.backward == 7 * m * (2 * n - m + 1)
    assert flops.compact_wy_forward(U, h)[1] == (4 * n - m + 1) * m
    assert flops.dense(n) == (2 * n * n - n, 3 * n * n - n)
    assert flops.published(512, 510)["oRNN FP"] == 785_400


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_u1_keeps_its_sign_and_adam_its_bound(rate):
    found = signs.follow(3, rate, 60, seed=1)
    assert found.flips == 0
    assert 0 < found.farthest <= signs.REACH * rate
    assert found.distance > 1  # a matrix of the other determinant is at least 2 away


def test_a_large_rate_can_change_it():
    assert max(signs.follow(3, 3.0, 40, seed).flips for seed in range(3)) > 0
