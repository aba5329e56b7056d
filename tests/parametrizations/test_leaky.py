"""LeakyHouseholder: what remembers and what forgets, at initialization and after any update."""

from __future__ import annotations

import pytest
import torch

from orthornn import Householder, LeakyHouseholder
from orthornn.compact_wy import unpack
from orthornn.errors import ArgumentError, ArgumentTypeError, NotOnGroupError
from orthornn.parametrizations.rotations import decay_of, factors_of
from support.tolerances import tolerance

N = 14
EXACT = tolerance(torch.float64, N**2)


def bound(n=N, **options):
    method = LeakyHouseholder(**options).bind(n).double()
    return method, method.initial(torch.Generator().manual_seed(0))


def test_at_first_memory_is_turned_and_not_mixed():
    method, free = bound(reflections=5)
    W, memory = method(*free), method.memory
    assert 0 < int(memory.sum()) < N
    assert not W[memory][:, ~memory].any()
    assert not W[~memory][:, memory].any()
    block = W[memory][:, memory]
    torch.testing.assert_close(block.mT @ block, torch.eye(len(block), dtype=W.dtype), rtol=0, atol=EXACT)
    power = torch.linalg.matrix_power(W, 2000)
    assert float(power[~memory].norm()) < float(torch.linalg.svdvals(W[~memory][:, ~memory])[0]) ** 1000
    torch.testing.assert_close(power[memory].norm(), torch.tensor(len(block) ** 0.5).double())


def test_singular_values_are_the_factors():
    """W'W = G^2, whatever the reflectors are."""
    method, (reflectors, decay) = bound(reflections=3)
    reflectors, decay = torch.randn_like(reflectors), torch.randn_like(decay)
    W, factors = method(reflectors, decay), factors_of(decay, N - N // 2)
    torch.testing.assert_close(W.mT @ W, torch.cat([factors, factors]).square().diag(), rtol=0, atol=EXACT)
    assert bool((factors[: len(factors) - len(decay)] == 1).all())
    torch.testing.assert_close(decay_of(factors)[len(factors) - len(decay) :], decay)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("leaky", [0.0, 0.3, 0.75, 1.0])
def test_the_share_of_leaky_pairs_is_rounded_down(n, leaky):
    method, (_, decay) = bound(n, leaky=leaky)
    pairs = n - n // 2
    assert len(decay) == int(leaky * pairs)
    assert int(method.memory.sum()) == n - 2 * len(decay) + (n % 2 if len(decay) else 0)


def test_factors_are_drawn_on_the_ring():
    _, (_, decay) = bound(4000, reflections=1, leaky=1, radii=(0.5, 0.8))
    factors = torch.exp(-torch.exp(decay))
    assert 0.5 <= float(factors.min()) < 0.52
    assert 0.78 < float(factors.max()) <= 0.8
    assert float(factors.square().mean()) == pytest.approx((0.25 + 0.64) / 2, abs=0.01)  # uniform by area


def test_reflectors_begin_with_norm_1_and_stay_as_they_are():
    method, free = bound(reflections=4)
    norms = unpack(free[0], N).norm(dim=0)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    assert not method.acts_after_update


def test_without_leaky_pairs_it_is_the_orthogonal_product():
    method, free = bound(reflections=4, leaky=0)
    plain = Householder(4, base="rotations").bind(N).double()
    plain.angles.copy_(method.angles)
    torch.testing.assert_close(method(*free), plain(free[0]), rtol=0, atol=EXACT)
    assert bool(method.memory.all())


def test_right_inverse_refuses_a_memory_that_shrinks_and_pairs_of_two_lengths():
    method, free = bound(reflections=N)
    W = method(*free)
    memory = int(method.memory.nonzero()[0])
    leaky = int((~method.memory).nonzero()[0])
    for place, factor in ((memory, 0.9), (leaky, 0.9), (leaky, 0.0)):
        other = W.clone()
        other[:, place] *= factor
        with pytest.raises(NotOnGroupError, match="W to have orthogonal columns"):
            method.right_inverse(other)


def test_what_it_refuses():
    for options, error in (
        ({"reflections": 0}, ArgumentError),
        ({"leaky": 1.1}, ArgumentError),
        ({"leaky": "half"}, ArgumentTypeError),
        ({"radii": (0.9, 0.5)}, ArgumentError),
        ({"radii": 0.9}, ArgumentTypeError),
        ({"angles": "half"}, ArgumentError),
    ):
        with pytest.raises(error):
            LeakyHouseholder(**options)
    with pytest.raises(ArgumentError, match="reflections"):
        LeakyHouseholder(reflections=N + 1).bind(N)
