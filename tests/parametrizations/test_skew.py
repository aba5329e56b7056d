"""Skew matrices by their free numbers."""

from __future__ import annotations

import pytest
import torch

from orthornn.parametrizations.skew import block_diagonal, skew_matrix, skew_numbers, skew_shapes


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_matrix_is_minus_its_adjoint_and_has_its_numbers_row_by_row(n, field):
    free = tuple(torch.randn(shape, dtype=torch.float64) for shape in skew_shapes(n, field))
    A = skew_matrix(n, *free)
    assert torch.equal(A, -A.mH)
    assert sum(part.numel() for part in free) == (n * (n - 1) // 2 if field == "real" else n * n)
    for found, given in zip(skew_numbers(A), free):
        assert torch.equal(found, given)
    if n == 7:
        first = free[0][:6] if field == "real" else torch.view_as_complex(free[0][:6])
        assert torch.equal(A[0, 1:], first)


@pytest.mark.parametrize(("n", "values"), [(1, []), (2, [3.0]), (5, [3.0, -2.0])])
def test_blocks_on_the_diagonal(n, values):
    A = torch.zeros(n, n)
    for block, t in enumerate(values):
        A[2 * block, 2 * block + 1], A[2 * block + 1, 2 * block] = t, -t
    assert torch.equal(block_diagonal(torch.tensor(values), n), A)
