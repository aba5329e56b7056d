"""Random matrices."""

from __future__ import annotations

import math
import types

import pytest
import torch

from orthornn._checks import is_captured
from orthornn.parametrizations.matrices import haar, solve
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
