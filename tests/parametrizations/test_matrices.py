"""Random matrices, polar factors, precisions, and a solution where no host may wait."""

from __future__ import annotations

import math
import types

import pytest
import torch

from orthornn._checks import is_captured
from orthornn.errors import NotOnGroupError
from orthornn.parametrizations.matrices import (
    check_on_group,
    haar,
    narrowed,
    polar_factor,
    polar_of_determinant,
    rounding,
    solve,
)
from support import captured


@pytest.mark.parametrize("field", ["real", "complex"])
def test_haar_measure(field):
    """Moments of a Haar matrix: entries of mean 0 and E|w|^2 = 1/n, E|trace|^2 = 1, and det on both sides."""
    n, draws = 4, 3000
    generator = torch.Generator().manual_seed(0)
    W = torch.stack([haar(n, field == "complex", generator) for _ in range(draws)])
    trace = W.diagonal(dim1=1, dim2=2).sum(dim=1)
    deviation = 4 / math.sqrt(draws)  # four standard errors of a mean of unit variance
    assert W.mean(dim=0).abs().max() < deviation
    assert (W.abs().square().mean(dim=0) - 1 / n).abs().max() < deviation / n
    assert abs(float(trace.abs().square().mean()) - 1) < deviation * math.sqrt(2)
    assert torch.linalg.det(W).mean().abs() < deviation


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_solve_while_cuda_captures_and_otherwise(dtype, monkeypatch):
    A, B = torch.randn(5, 5, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    singular = A.clone()
    singular[:, 2] = 0
    torch.testing.assert_close(A @ solve(A, B), B)
    with pytest.raises(torch.linalg.LinAlgError, match=r"torch\.linalg\.solve: .* singular"):
        solve(singular, B)
    expected = solve(A, B)
    with monkeypatch.context() as patches:
        captured.begin(patches)
        found, lost = solve(A, B), solve(singular, B)
    assert torch.equal(found, expected)
    assert lost.isnan().all()


def test_only_tensors_on_a_gpu_are_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert is_captured(types.SimpleNamespace(is_cuda=True))
    assert not is_captured(torch.ones(1))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert not is_captured(types.SimpleNamespace(is_cuda=True))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_nearest_matrix_of_a_determinant(n, sign):
    """tr(Q'A) is largest at the sum of A's singular values, with a minus before the least one if the sign differs."""
    found, singular = [], torch.arange(n, 0, -1, dtype=torch.float64)
    for _ in range(8):
        A = (haar(n, False) * singular) @ haar(n, False)
        Q = polar_of_determinant(A, sign)
        own = float(torch.linalg.det(A).sign())
        found.append(own)
        assert float(torch.linalg.det(Q)) == pytest.approx(sign)
        torch.testing.assert_close((Q * A).sum(), singular.sum() - (0 if own == sign else 2))
        if own == sign:
            assert torch.equal(Q, polar_factor(A))
    assert len(set(found)) == 2


def test_the_precision_of_a_free_tensor():
    real, unitary = torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.complex128)
    for dtype, parts in ((torch.bfloat16, 32), (torch.float32, 32), (torch.float64, 64)):
        like = torch.zeros((), dtype=dtype)
        assert narrowed(real, like).dtype == dtype
        assert narrowed(unitary, like).dtype == {32: torch.complex64, 64: torch.complex128}[parts]


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("n", [2, 7, 40])
def test_a_matrix_of_single_precision_may_be_widened(field, n):
    """It is taken with the rounding of float32, and one that was computed in double precision is not."""
    W = haar(n, field == "complex", torch.Generator().manual_seed(n))
    single = W.to(torch.complex64 if field == "complex" else torch.float32)
    widened = single.to(W.dtype)
    assert rounding(widened) == rounding(single)
    assert rounding(W) < 1e-6 * rounding(single)
    taken = check_on_group(widened, n, field)
    assert torch.equal(taken, check_on_group(single, n, field))
    assert float((taken - widened).abs().max()) < 1e-6
    with pytest.raises(NotOnGroupError, match=r"Expected W to be (orthogonal|unitary), but got"):
        check_on_group(W * (1 + 1e-9), n, field)
