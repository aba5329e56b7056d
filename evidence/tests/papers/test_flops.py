"""The algorithms and operation counts of Tables 1 and 2 of Mhammedi et al., 2017."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn.compact_wy import product
from orthornn_evidence.papers import flops
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
