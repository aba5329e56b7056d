"""RMSprop with epsilon inside the root, against its formula in Python's numbers."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from orthornn.learn.training.rmsprop import RootRMSprop

GRADIENTS = [[0.5, -2.0, 1e-7, 0.0], [0.25, 3.0, -2e-7, 0.0], [-1.0, 1e-3, 1e-6, 1e-9]]


@pytest.mark.parametrize(("eps", "start"), [(1e-6, 0.0), (1e-10, 1.0)], ids=["lasagne", "tensorflow"])
def test_every_step_is_that_of_the_formula(eps, start):
    x = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    unused = torch.ones(3, requires_grad=True)
    optimizer = RootRMSprop([x, unused], lr=0.01, alpha=0.9, eps=eps, start=start)
    place, mean = [0.0] * 4, [start] * 4
    for gradient in GRADIENTS:
        x.grad = torch.tensor(gradient, dtype=torch.float64).view(2, 2)
        optimizer.step()
        mean = [0.9 * v + 0.1 * g * g for v, g in zip(mean, gradient)]
        place = [one - 0.01 * g / math.sqrt(v + eps) for one, v, g in zip(place, mean, gradient)]
        torch.testing.assert_close(
            x.detach().flatten(), torch.tensor(place, dtype=torch.float64), rtol=1e-12, atol=1e-18
        )
    assert torch.equal(unused, torch.ones(3))


def test_a_small_gradient_moves_little_where_epsilon_is_inside():
    moved = {}
    for name, optimizer in (("inside", RootRMSprop), ("outside", torch.optim.RMSprop)):
        x = torch.zeros(1, requires_grad=True)
        made = optimizer([x], lr=0.01, alpha=0.9)
        for _ in range(100):
            x.grad = torch.full((1,), 1e-5)
            made.step()
        moved[name] = -float(x.detach())
    assert moved["outside"] > 0.99  # 100 updates of about lr
    assert moved["inside"] == pytest.approx(100 * 0.01 * 1e-5 / 1e-3, rel=1e-3)


def test_a_copy_and_a_continuation_go_on_bit_for_bit():
    def made():
        x = torch.ones(2, requires_grad=True)
        return x, RootRMSprop([x], lr=0.1, eps=1e-10, start=1.0)

    def step(x, optimizer):
        x.grad = 0.3 * x.detach()
        optimizer.step()

    x, optimizer = made()
    copied_x, copied = copy.deepcopy((x, optimizer))
    step(x, optimizer)
    step(copied_x, copied)
    resumed_x, resumed = made()
    with torch.no_grad():
        resumed_x.copy_(x)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for pair in ((x, optimizer), (copied_x, copied), (resumed_x, resumed)):
        step(*pair)
    assert torch.equal(x, copied_x)
    assert torch.equal(x, resumed_x)


def test_a_run_begun_with_an_epsilon_outside_goes_on_with_that_inside():
    """What rmsprop-tensorflow was: torch's RMSprop with a mean that starts at 1."""
    x = torch.zeros(1, requires_grad=True)
    begun = torch.optim.RMSprop([x], lr=0.01, alpha=0.9)
    begun.state[x] = {"step": torch.zeros(()), "square_avg": torch.full_like(x, 1e-12)}
    optimizer = RootRMSprop([x], lr=0.01, eps=1e-10, start=1.0)
    optimizer.load_state_dict(begun.state_dict())
    x.grad = torch.full_like(x, 1e-6)
    optimizer.step()
    assert float(x.detach()) == pytest.approx(-0.01 * 1e-6 / math.sqrt(1e-12 + 1e-10), rel=1e-5)


def test_it_returns_the_loss_of_a_closure_with_gradients():
    x = torch.tensor([2.0], requires_grad=True)
    optimizer = RootRMSprop([x], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 4.0
    assert float(x.detach()) < 2.0
