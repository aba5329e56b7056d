from __future__ import annotations

import pytest
import torch
from torch import nn

from orthornn.diagnostics import hidden_gradient_norms
from orthornn.modules import OrthogonalRNN
from orthornn.parametrizations import Householder

T, B, INPUT, N = 7, 3, 2, 5


@pytest.mark.parametrize("final", [True, False], ids=["last", "all"])
def test_a_linear_network_by_hand(final):
    """h_t = W h_{t-1} + V x_t, L = sum_s c . h_s: dL/dh_t = sum over s >= t of (W')^(s-t) c."""
    torch.manual_seed(0)
    core = OrthogonalRNN(INPUT, N, nonlinearity="identity", dtype=torch.float64)
    W = core.weight_hh_l0.detach()
    c = torch.randn(N, dtype=torch.float64)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    found = hidden_gradient_norms(core, inputs, lambda out: ((out[-1:] if final else out) @ c).sum())
    expected, gradient = [], torch.zeros(N, dtype=torch.float64)
    for t in reversed(range(T)):
        gradient = W.T @ gradient + (c if t == T - 1 or not final else 0)
        expected.append(gradient.norm())
    torch.testing.assert_close(found, torch.stack(expected[::-1]), rtol=1e-10, atol=0)
    if final:
        torch.testing.assert_close(found, c.norm().expand(T), rtol=1e-10, atol=0)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_last_state_of_torchs_layers(make):
    """dL/dh_T is the gradient at the last output; parameters are left without gradients."""
    torch.manual_seed(0)
    core = make(INPUT, N)
    inputs = torch.randn(T, B, INPUT)
    norms = hidden_gradient_norms(core, inputs, lambda out: out[-1].square().sum())
    last = core(inputs)[0][-1].detach()
    torch.testing.assert_close(float(norms[-1]), float(2 * last.norm() / B**0.5), rtol=1e-5, atol=0)
    assert norms.shape == (T,)
    assert all(parameter.grad is None for parameter in core.parameters())


def test_after_the_loss_there_is_no_gradient():
    core = OrthogonalRNN(INPUT, N, parametrization=Householder(reflections=2))
    norms = hidden_gradient_norms(core, torch.randn(T, B, INPUT), lambda out: out[3].sum())
    assert (norms[:4] > 0).all()
    assert not norms[4:].any()
