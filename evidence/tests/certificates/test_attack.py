"""Attacks: none is larger than asked for, and against linear networks they are the strongest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orthornn import OrthogonalRNN, Rotations
from orthornn.certify import bound, certified_radius
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn_evidence.certificates.attack import most_moved, scaled, still_right, without_clipping

T, B, CLASSES = 9, 40, 2


def model(nonlinearity: str = "identity") -> nn.Module:
    torch.manual_seed(0)
    core = OrthogonalRNN(2, 6, nonlinearity=nonlinearity, parametrization=Rotations(), clip_backward=1e-3)
    return without_clipping(SequenceModel(core, nn.Linear(6, CLASSES)).double())


def test_of_a_linear_network_with_two_classes_it_alters_what_is_not_certified_and_nothing_else():
    linear, x = model(), torch.randn(T, B, 2).double()
    targets = linear(x).argmax(1)
    targets[::5] = 1 - targets[::5]
    radii = certified_radius(linear, x, targets, "energy")
    eps = float(radii.median())
    certified, right = radii > eps * (1 + 1e-9), still_right(linear, x, targets, eps * (1 - 1e-9), updates=4)
    assert right[certified].all()
    assert torch.equal(still_right(linear, x, targets, 1.001 * eps, updates=4), radii > 1.001 * eps)


def test_no_change_is_larger_than_eps():
    network, sizes = model("tanh"), []

    class Watched(nn.Module):
        def forward(self, x):
            sizes.append(torch.linalg.vector_norm((x - original), dim=(0, 2)).max().detach())
            return network(x)

    original = torch.randn(T, B, 2).double()
    still_right(Watched(), original, network(original).argmax(1), 0.7, updates=6)
    assert float(sizes[0]) == 0
    assert 0.69 < max(map(float, sizes)) <= 0.7 + 1e-12


@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_the_most_moved_is_below_the_bound_which_a_linear_network_reaches(nonlinearity):
    network = model(nonlinearity)
    found = most_moved(network, torch.randn(T, 5, 2).double(), 1e-3)
    limit = bound(network, 1.0, T, "energy")
    assert found <= limit * (1 + 1e-9)
    assert nonlinearity != "identity" or found > 0.999 * limit
    torch.testing.assert_close(scaled(torch.ones(T, 1, 2)).norm(), torch.tensor(1.0))
