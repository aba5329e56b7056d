"""Stiefel: the matrix itself is the free tensor."""

from __future__ import annotations

import pytest
import torch

from orthornn import Stiefel
from orthornn.errors import ArgumentError
from orthornn.parametrizations.matrices import haar


def test_it_is_drawn_from_the_haar_measure():
    for field in ("real", "complex"):
        method = Stiefel(field=field).bind(6)
        (weight,) = method.initial(torch.Generator().manual_seed(3))
        assert torch.equal(method(weight), haar(6, field == "complex", torch.Generator().manual_seed(3)))
        assert method.manifolds == {"weight": "stiefel"}


def test_bad_arguments():
    with pytest.raises(ArgumentError, match=r"Did you mean 'complex'\?"):
        Stiefel(field="complx")
