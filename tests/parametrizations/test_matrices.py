"""Random matrices."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn.parametrizations.matrices import haar


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
