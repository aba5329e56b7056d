"""oplu at the length of pixel MNIST: its gradient is exact to rounding wherever no pair is nearly tied.

Where the two units of a pair are equal, oplu's derivative jumps from one permutation to the other. A pair whose difference
is smaller than the rounding of the state is ordered one way in float32 and the other way in float64, and from that step
backwards the two gradients are those of different functions: some percent apart after a few such pairs, in these kernels
as in a loop of torch operations, and by chance more in the one or in the other.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch

from orthornn import activations
from orthornn.kernels import dense_rnn
from orthornn.parametrizations.matrices import haar
from support.tolerances import tolerance

T, B, N = 784, 1, 4
SEEDS = 6


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    W = haar(N, False, generator)
    x = torch.rand(T, B, 1, dtype=torch.float64, generator=generator)
    V, h0 = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((N, 1), (B, N)))
    # in float32's grid, so that both precisions start from the same numbers
    return [value.float().double() for value in (x, h0, W, V)]


def loop(x, h0, W, V):
    """All states, the smallest difference within a pair, and the largest number, by torch's operations."""
    phi, h, states, gaps, largest = activations.get("oplu"), h0, [], [], 0.0
    for row in x @ V.mT:
        z = h @ W.mT + row
        first, second = z.detach().chunk(2, dim=-1)
        gaps.append(float((first - second).abs().min()))
        largest = max(largest, float(z.detach().abs().max()))
        h = phi(z)
        states.append(h)
    return torch.stack(states), min(gaps), largest


def gradients(states, leaves):
    weights = torch.linspace(-1, 1, N, dtype=states.dtype)
    return torch.autograd.grad((states[-1] * weights).sum(), leaves)


@cache
def exactly(seed: int):
    """The tensors, all states, the smallest difference, the largest number and the gradients, in float64."""
    exact = [value.requires_grad_() for value in tensors(seed)]
    states, gap, largest = loop(*exact)
    return exact, states.detach(), gap, largest, gradients(states, exact)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_without_ties_are_exact_to_rounding(dtype, backend):
    apart = 0
    for seed in range(SEEDS):
        exact, expected, gap, largest, wanted_gradients = exactly(seed)
        x, h0, W, V = (value.detach().to(dtype).requires_grad_() for value in exact)
        states = dense_rnn(x, h0, W, "oplu", weight_ih=V, backend=backend)
        bound = tolerance(dtype, T)  # one rounded step after the other, none of which enlarges an error
        error = float((states.detach().double() - expected).abs().max())
        assert error <= bound * largest
        # z is off by what W makes of the states' error, and by its own rounding
        if gap <= 2 * (math.sqrt(N) * error + tolerance(dtype, N) * largest):
            continue  # rounding may decide this pair
        apart += 1
        for found, wanted in zip(gradients(states, (x, h0, W, V)), wanted_gradients):
            scale = float(wanted.abs().max())
            assert float((found.double() - wanted).abs().max()) <= N * bound * scale
    assert apart >= 3  # the law was put to the test


def test_rounding_decides_ties_in_any_implementation():
    """Two units a rounding apart: float64 and float32 order them differently, and the gradients are each other's swap."""
    z = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64, requires_grad=True)
    narrow = z.detach().float().requires_grad_()
    found = []
    for start in (z, narrow):
        W, h0 = torch.eye(2, dtype=start.dtype), torch.zeros(1, 2, dtype=start.dtype)
        (grad,) = torch.autograd.grad(dense_rnn(start.unsqueeze(0), h0, W, "oplu")[0, 0, 0], start)
        (plain,) = torch.autograd.grad(activations.get("oplu")(start)[0, 0], start)
        assert torch.equal(grad, plain)
        found.append(grad.double())
    assert torch.equal(found[0], found[1].flip(1))
