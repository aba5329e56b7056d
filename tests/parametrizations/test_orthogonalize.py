"""orthogonalize: each parametrization on square weights of torch's own layers."""

import copy

import pytest
import torch

from orthornn import Householder, ScaledCayley, SpectralMargin, Stiefel, Unconstrained, orthogonalize
from orthornn.errors import ArgumentError, DTypeError, NotOnGroupError, ShapeError
from tolerances import tolerance

METHODS = [
    Householder(),
    Householder(reflections=3),
    Householder(reflections=2, base="rotations"),
    ScaledCayley(negatives=2),
    SpectralMargin(margin=0),
    SpectralMargin(),
    Stiefel(),
    Unconstrained(),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_weight_of_a_linear_layer(method, dtype):
    layer = orthogonalize(torch.nn.Linear(6, 6, dtype=dtype), "weight", method)
    error = torch.linalg.matrix_norm(layer.weight.double().mT @ layer.weight.double() - torch.eye(6).double())
    assert error < tolerance(dtype, 6)
    names = dict(layer.named_parameters())
    assert "weight" not in names
    assert all(name.startswith("parametrizations.weight.original") for name in names if name != "bias")
    expected = sum(value.numel() for value in method.bind(6).initial())
    assert sum(value.numel() for name, value in names.items() if name != "bias") == expected
    layer(torch.randn(3, 6, dtype=dtype)).square().sum().backward()
    assert all(value.grad is not None for value in names.values() if value.numel())


def test_assigning_a_weight():
    layer = orthogonalize(torch.nn.Linear(5, 5), "weight", Householder())
    Q = torch.linalg.qr(torch.randn(5, 5))[0]
    layer.weight = Q
    torch.testing.assert_close(layer.weight, Q, rtol=0, atol=tolerance(torch.float32, 5))
    with pytest.raises(NotOnGroupError, match="orthogonal"):
        layer.weight = 2 * Q


def test_recurrent_weight_and_state_dict():
    rnn = orthogonalize(torch.nn.RNNCell(3, 4), "weight_hh", ScaledCayley(negatives=2))
    twin = orthogonalize(torch.nn.RNNCell(3, 4), "weight_hh", ScaledCayley(negatives=2))
    twin.load_state_dict(rnn.state_dict())
    x = torch.randn(2, 3)
    assert torch.equal(rnn(x), twin(x))


def test_under_autocast_the_weight_stays_float32():
    layer = orthogonalize(torch.nn.Linear(32, 32), "weight", Householder(reflections=4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        W = layer.weight
    assert W.dtype == torch.float32
    assert torch.linalg.matrix_norm(W.mT @ W - torch.eye(32)) < tolerance(torch.float32, 32)


def test_a_frozen_weight_stays_frozen_and_a_copy_is_equal():
    layer = torch.nn.Linear(5, 5)
    layer.weight.requires_grad_(False)
    orthogonalize(layer, "weight", Householder(reflections=2, base="rotations"))
    assert not layer.weight.requires_grad
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    assert orthogonalize(torch.nn.Linear(5, 5, device="meta"), "weight", ScaledCayley()).weight.is_meta


def test_training_does_not_write_into_an_assigned_matrix():
    for method in METHODS:
        layer = orthogonalize(torch.nn.Linear(6, 6, dtype=torch.float64), "weight", method)
        Q = layer.weight.detach().clone()
        kept = Q.clone()
        layer.weight = Q
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.randn(4, 6, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        assert torch.equal(Q, kept)


def test_bad_arguments():
    with pytest.raises(ArgumentError, match=r"Linear.weight has a parametrization already"):
        orthogonalize(orthogonalize(torch.nn.Linear(3, 3), "weight", Stiefel()), "weight", Householder())
    with pytest.raises(ShapeError, match=r"Linear.weight must be a square matrix; got \(4, 3\)"):
        orthogonalize(torch.nn.Linear(3, 4), "weight", Householder())
    with pytest.raises(ArgumentError, match=r"Did you mean 'weight'\?"):
        orthogonalize(torch.nn.Linear(3, 3), "wieght", Householder())
    with pytest.raises(ArgumentError, match="field='real'"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", Householder(field="complex"))
    with pytest.raises(DTypeError, match=r"must be real; got torch\.complex64"):
        orthogonalize(torch.nn.Linear(3, 3, dtype=torch.complex64), "weight", Householder())
    with pytest.raises(ArgumentError, match="must be one of orthornn's"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", "householder")
    with pytest.raises(ArgumentError, match="between 1 and 3"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", Householder(reflections=4))
