"""Hadamard matrices with trained signs: exact orthogonality, the transform, mixing, straight-through gradients."""

from __future__ import annotations

import pytest
import torch

from orthornn import Hadamard, OrthogonalRNN, convert
from orthornn.errors import ArgumentError, NotOnGroupError
from orthornn.modules.convert import ApproximationWarning
from orthornn.parametrizations.hadamard import walsh_hadamard
from orthornn.parametrizations.matrices import haar
from support.tolerances import tolerance

SIZES = [(1, 1), (2, 2), (8, 8), (64, 64), (6, 2), (12, 4), (16, 4), (96, 8), (5, 1)]
EVERY = pytest.mark.parametrize(("n", "block"), SIZES)


def sylvester(K: int) -> torch.Tensor:
    """H_K by its definition, in integers."""
    H = torch.ones(1, 1, dtype=torch.int64)
    while len(H) < K:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return H


def drawn(n: int, block: int, seed: int = 0):
    method = Hadamard(block=block).bind(n)
    return method, method.initial(torch.Generator().manual_seed(seed))[0]


@EVERY
def test_w_is_orthogonal_exactly(n, block):
    """sqrt(K) W consists of integers: their products are K I without any rounding."""
    for seed in range(3):
        method, u = drawn(n, block, seed)
        scaled = method(u) * block**0.5
        integers = scaled.round().long()
        torch.testing.assert_close(scaled, integers.double(), rtol=0, atol=1e-15)
        assert set(integers.unique().tolist()) <= {-1, 0, 1}
        assert torch.equal(integers.mT @ integers, block * torch.eye(n, dtype=torch.int64))
        assert torch.equal((integers != 0).sum(0), torch.full((n,), block))
        assert torch.equal((integers != 0).sum(1), torch.full((n,), block))


@EVERY
def test_w_is_its_definition(n, block):
    """P (I x H_K) D: entry i of block a becomes unit i N/K + a."""
    method, u = drawn(n, block)
    blocks = torch.kron(torch.eye(n // block, dtype=torch.int64), sylvester(block))
    dealt = torch.empty_like(blocks)
    for a in range(n // block):
        for i in range(block):
            dealt[i * (n // block) + a] = blocks[a * block + i]
    torch.testing.assert_close(method(u), dealt * u.sign() / block**0.5, rtol=0, atol=1e-15)


@pytest.mark.parametrize("K", [1, 2, 4, 32, 256])
def test_the_transform_is_the_matrix(K):
    x = torch.randint(-99, 100, (3, 2, K), generator=torch.Generator().manual_seed(K))
    assert torch.equal(walsh_hadamard(x), x @ sylvester(K))
    assert torch.equal(walsh_hadamard(walsh_hadamard(x)), K * x)


@pytest.mark.parametrize(("n", "block", "steps"), [(16, 4, 2), (64, 4, 3), (96, 8, 3)])
def test_few_steps_mix_all_units(n, block, steps):
    """Blocks alone would never exchange anything."""
    method, u = drawn(n, block)
    reached = torch.linalg.matrix_power((method(u) != 0).double(), steps)
    assert (reached > 0).all()


@EVERY
def test_the_gradient_is_the_formula(n, block):
    """dL/du_j = <column j of P (I x H_K), column j of dL/dW> / sqrt(K), whatever u (docs/derivations/parametrizations.md)."""
    method, u = drawn(n, block)
    generator = torch.Generator().manual_seed(1)
    G = torch.randn(n, n, dtype=torch.float64, generator=generator)
    W_of_ones = method(torch.ones(n, dtype=torch.float64))
    for scale in (1.0, 1e-3, 50.0):
        leaf = (scale * u).requires_grad_()
        (found,) = torch.autograd.grad((method(leaf) * G).sum(), leaf)
        torch.testing.assert_close(found, (W_of_ones * G).sum(0), rtol=0, atol=tolerance(torch.float64, n))


def test_only_signs_count():
    method = Hadamard().bind(8)
    u = torch.tensor([1.0, -1, 1e-300, -1e-300, 0.0, 3, -0.0, -7], dtype=torch.float64)
    expected = torch.tensor([1.0, -1, 1, -1, 1, 1, 1, -1], dtype=torch.float64)
    assert torch.equal(method(u), method(expected))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_not_hidden(bad):
    method, u = drawn(8, 8)
    u[3] = bad
    assert method(u)[:, 3].isnan().all()


def test_descent_finds_the_signs_of_a_target():
    """Every W of the set is reached by the straight-through gradient from every other."""
    method, u = drawn(32, 32)
    target = method(drawn(32, 32, 1)[1])
    u = u.requires_grad_()
    optimizer = torch.optim.SGD([u], lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        (method(u) - target).square().sum().backward()
        optimizer.step()
    assert torch.equal(method(u), target)


def test_a_network_trains_its_signs():
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 8, parametrization=Hadamard(), dtype=torch.float64)
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    gradients = {}
    for form in ("dense", "operator"):
        rnn.form = form
        rnn.zero_grad()
        rnn(x)[0].square().sum().backward()
        gradients[form] = rnn.get_parameter("transition_l0.signs").grad
    assert gradients["dense"].abs().min() > 0
    torch.testing.assert_close(gradients["operator"], gradients["dense"], rtol=0, atol=tolerance(torch.float64, 400))


@pytest.mark.parametrize(
    ("block", "n", "said"),
    [
        (3, 6, "block to be a power of two, but got 3"),
        (0, 6, "block to be an integer of at least 1"),
        (4, 6, "block to divide n=6, but got 4. Pass at most 2"),
    ],
)
def test_blocks_that_do_not_fit(block, n, said):
    with pytest.raises(ArgumentError, match=said):
        Hadamard(block=block).bind(n)


def test_the_default_is_the_largest_block():
    assert [Hadamard().bind(n).block for n in (1, 6, 7, 48, 512)] == [1, 2, 1, 16, 512]


def test_other_matrices_are_refused():
    method = Hadamard().bind(8)
    with pytest.raises(NotOnGroupError, match=r"Hadamard matrices of size 8 .* at Frobenius distance"):
        method.right_inverse(haar(8, False, torch.Generator().manual_seed(0)))


def test_convert_finds_the_nearest_signs():
    """The nearest matrix of the set maximizes <W, W'>, column by column."""
    torch.manual_seed(3)
    rnn = OrthogonalRNN(1, 8, parametrization=Hadamard(), dtype=torch.float64)
    other = convert(rnn, Hadamard())
    assert torch.equal(other.weight_hh_l0, rnn.weight_hh_l0)
    free = OrthogonalRNN(1, 8, dtype=torch.float64)
    with pytest.warns(ApproximationWarning):
        near = convert(free, Hadamard()).weight_hh_l0
    base = Hadamard().bind(8)(torch.ones(8, dtype=torch.float64))
    signs = torch.where((base * free.weight_hh_l0).sum(0) < 0, -1.0, 1.0).double()
    assert torch.equal(near, base * signs)
