"""Many layers of rotations in blocks are the same layers, one after another."""

from __future__ import annotations

import pytest
import torch

from orthornn import Givens
from orthornn.parametrizations import givens
from orthornn.parametrizations.brick_product import GROUP, brick_product
from support.tolerances import tolerance


def drawn(n, layers, field):
    bound = Givens(layers=layers, field=field).bind(n)
    free = tuple(value.requires_grad_() for value in bound.initial(torch.Generator().manual_seed(n + layers)))
    return bound, free


def one_by_one(bound, free):
    c, s, d = bound.operands(*free)
    return bound.multiply(torch.eye(bound.n, dtype=c.dtype), c, s, d).mT


@pytest.mark.sampled(15)
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("layers", [1, 2, 7, 8, 9, 40])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 15, 16, 17, 33])
def test_blocks_are_the_layers_one_by_one(n, layers, field):
    bound, free = drawn(n, layers, field)
    c, s, d = bound.operands(*free)
    wanted, bound_on_error = one_by_one(bound, free), tolerance(torch.float64, n * layers)
    grad = torch.randn(n, n, dtype=c.dtype)
    of_layers = torch.autograd.grad(wanted, free, grad, allow_unused=True)
    for group in (2, 4, GROUP):
        found = d.unsqueeze(1) * brick_product(c, s, group)
        torch.testing.assert_close(found, wanted, rtol=0, atol=bound_on_error)
        of_blocks = torch.autograd.grad(found, free, grad, allow_unused=True, retain_graph=True)
        for one, other in zip(of_blocks, of_layers):
            torch.testing.assert_close(one, other, rtol=bound_on_error, atol=bound_on_error)


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("layers", [GROUP - 1, 19])
def test_the_parametrization_is_made_of_blocks_where_there_are_many_layers(layers, field, monkeypatch):
    called = []
    monkeypatch.setattr(givens, "brick_product", lambda c, s: called.append(len(c)) or brick_product(c, s))
    bound, free = drawn(19, layers, field)
    torch.testing.assert_close(bound(*free), one_by_one(bound, free), rtol=0, atol=tolerance(torch.float64, 19**2))
    assert called == [layer for layer in [layers] if layer >= GROUP]


def test_higher_derivatives_go_through_blocks():
    bound, (theta,) = drawn(5, GROUP, "real")
    assert torch.autograd.gradgradcheck(bound, (theta,))
