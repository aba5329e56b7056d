"""The bound of an LSTM holds for all inputs in the range, and is that of one step where there is one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from orthornn_evidence.certificates.lstm import log10_in_energy, log10_influences


@pytest.mark.parametrize(("steps", "scale"), [(1, 1.0), (7, 1.0), (12, 3.0)])
def test_no_derivative_is_above_the_bound(steps, scale):
    torch.manual_seed(0)
    lstm = nn.LSTM(2, 5).double()
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter *= scale
    found = 10 ** log10_influences(lstm, steps, -1.0, 2.0)
    assert found.shape == (steps,)
    x = (3 * torch.rand(steps, 200, 2).double() - 1).requires_grad_()
    rows = [torch.autograd.grad(h.sum(), x, retain_graph=True)[0] for h in lstm(x)[0][-1].T]
    norms = torch.linalg.matrix_norm(torch.stack(rows).permute(1, 2, 0, 3), 2)  # (T, B)
    assert (norms <= found[:, None]).all()
    assert steps > 1 or float(norms.max()) > 0.05 * float(found[0])
    energy = log10_in_energy(torch.log10(found))
    assert energy == pytest.approx(math.log10(float(found.norm())))


def test_it_is_a_logarithm_where_the_number_overflows():
    influences = torch.tensor([500.0, 501.0], dtype=torch.float64)
    assert log10_in_energy(influences) == pytest.approx(501 + 0.5 * math.log10(1.01))
