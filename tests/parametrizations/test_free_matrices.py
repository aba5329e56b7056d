"""Stiefel and Unconstrained: the matrix itself is free; how it is drawn."""

import math

import pytest
import torch

from orthornn import Stiefel, Unconstrained
from orthornn.errors import ArgumentError
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


def test_stiefel_is_drawn_from_it():
    for field in ("real", "complex"):
        method = Stiefel(field=field).bind(6)
        (weight,) = method.initial(torch.Generator().manual_seed(3))
        assert torch.equal(method(weight), haar(6, field == "complex", torch.Generator().manual_seed(3)))
        assert method.manifolds == {"weight": "stiefel"}


def test_initializations_without_constraint():
    n = 200
    drawn = {
        init: Unconstrained(init=init).bind(n).initial(torch.Generator().manual_seed(0))[0]
        for init in ("orthogonal", "identity", "glorot", "uniform")
    }
    assert Unconstrained().bind(n).orthogonality_error(drawn["orthogonal"]) < 1e-11
    assert torch.equal(drawn["identity"], torch.eye(n, dtype=torch.float64))
    # torch.nn.init.xavier_normal_: variance 2 / (n + n); torch.nn.RNN: U(-1/sqrt(n), 1/sqrt(n)), variance 1/(3n).
    deviation = 4 * math.sqrt(2) / n
    assert drawn["glorot"].var() == pytest.approx(1 / n, rel=deviation)
    assert drawn["glorot"].abs().max() > 3 / math.sqrt(n)
    assert drawn["uniform"].var() == pytest.approx(1 / (3 * n), rel=deviation)
    assert 0.99 < float(drawn["uniform"].abs().max()) * math.sqrt(n) <= 1
    assert Unconstrained().bind(n).manifolds == {}


def test_bad_arguments():
    with pytest.raises(ArgumentError, match=r"Did you mean 'uniform'\?"):
        Unconstrained(init="unifrom")
    with pytest.raises(ArgumentError, match=r"Did you mean 'complex'\?"):
        Stiefel(field="complx")
