"""Unconstrained: every initialization has the variance it is named for."""

import math

import pytest
import torch

from orthornn import Unconstrained
from orthornn.errors import ArgumentError


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
