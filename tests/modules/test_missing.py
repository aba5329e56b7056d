from __future__ import annotations

import math

import pytest
import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.errors import ArgumentError, DTypeError, ShapeError
from orthornn.modules import hold_missing
from support.tolerances import tolerance


def reference(rnn, x, observed, h0=None):
    """Step by step: where a step is missing, the state before stays."""
    h = rnn.initial_states(x.shape[1], h0)
    states = []
    for row, seen in zip(x, observed):
        new = rnn.step(row.nan_to_num() if row.is_floating_point() else row, h)[1]
        h = torch.where(seen[None, :, None], new, h)
        states.append(h[-1])
    return torch.stack(states), h


@pytest.mark.sampled(25)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("learn_h0", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9, 1.0])
def test_missing_steps_hold_the_state(layers, learn_h0, tokens, share):
    rnn = OrthogonalRNN(
        3, 7, layers, parametrization=Householder(reflections=4), learn_h0=learn_h0, dtype=torch.float64
    )
    observed = torch.rand(11, 5) >= share
    observed[:, 2] = False  # a sequence of which nothing was seen
    x = torch.randint(0, 3, (11, 5)) if tokens else torch.rand(11, 5, 3, dtype=torch.float64)
    if not tokens:
        x[~observed] = math.nan
    for h0 in (None, torch.rand(layers, 5, 7, dtype=torch.float64)):
        states, h_n = hold_missing(rnn, x, observed, h0)
        expected, expected_n = reference(rnn, x, observed, h0)
        # the same sums in another order: layers times 11 steps of 7 products of numbers of size 1
        bound = tolerance(torch.float64, layers * 11 * 7)
        torch.testing.assert_close(states, expected, rtol=0, atol=bound)
        torch.testing.assert_close(h_n, expected_n, rtol=0, atol=bound)


def test_gradients_are_those_of_holding():
    rnn = OrthogonalRNN(2, 4, learn_h0=True, dtype=torch.float64)
    observed = torch.rand(9, 3) >= 0.5
    x, weight = torch.rand(9, 3, 2, dtype=torch.float64), torch.rand(9, 3, 4, dtype=torch.float64)
    gradients = []
    for function in (hold_missing, reference):
        rnn.zero_grad()
        (function(rnn, x, observed)[0] * weight).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in rnn.parameters()])
    for found, expected in zip(*gradients):
        bound = tolerance(torch.float64, 9 * 3 * 4 * 4) * (1 + float(expected.abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_batch_first_is_that_of_the_network(share):
    """As many steps as sequences, so that no shape tells them apart."""
    time_first = OrthogonalRNN(2, 4, dtype=torch.float64)
    batch_first = OrthogonalRNN(2, 4, batch_first=True, dtype=torch.float64)
    batch_first.load_state_dict(time_first.state_dict())
    x, observed = torch.rand(5, 5, 2, dtype=torch.float64), torch.rand(5, 5) >= share
    h0 = torch.rand(1, 5, 4, dtype=torch.float64)
    states, h_n = hold_missing(time_first, x, observed, h0)
    found, found_n = hold_missing(batch_first, x.transpose(0, 1), observed.mT, h0)
    torch.testing.assert_close(found, states.transpose(0, 1), rtol=0, atol=0)
    torch.testing.assert_close(found_n, h_n, rtol=0, atol=0)


def test_what_does_not_fit_is_said():
    rnn = OrthogonalRNN(2, 4)
    with pytest.raises(ShapeError, match="observed to have shape"):
        hold_missing(rnn, torch.rand(3, 2, 2), torch.ones(3, 1, dtype=torch.bool))
    for x in (torch.rand(3, 2), torch.zeros(3, dtype=torch.int64)):  # one sequence, without a batch
        with pytest.raises(ShapeError, match=r"x of shape \(T, B, I\) or tokens \(T, B\), but got \(3"):
            hold_missing(rnn, x, torch.ones(3, dtype=torch.bool))
    with pytest.raises(DTypeError, match="observed to be bool"):
        hold_missing(rnn, torch.rand(3, 2, 2), torch.ones(3, 2))
    both = OrthogonalRNN(2, 4, bidirectional=True)
    with pytest.raises(ArgumentError, match="bidirectional"):
        hold_missing(both, torch.rand(3, 2, 2), torch.ones(3, 2, dtype=torch.bool))
