"""The bounds on states, against what their formula gives by hand."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from orthornn import OrthogonalRNN
from orthornn.activations import get
from orthornn.errors import ArgumentError
from orthornn.export.c.bounds import _layer_bound, calibrated, find_ranges
from orthornn.export.c.folded import FoldedLayer, fold_network


def layer(phi, radius, *, slope=None, parameter=None, h0=0.0, linear=False):
    values = None if parameter is None else np.array(parameter)
    return FoldedLayer(
        "dense", np.zeros((2, 1)), None, np.array([h0, 0.0]), get(phi, slope), values, linear, W=radius * np.eye(2)
    )


@pytest.mark.parametrize(
    ("case", "bound"),
    [
        (layer("relu", 0.5), 2.0),
        (layer("relu", 0.5, h0=10.0), 10.0),
        (layer("leaky_relu", 0.5, slope=0.1), 2.0),
        (layer("leaky_relu", 0.25, slope=2.0), 4.0),
        (layer("leaky_relu", 0.5, slope=2.0, linear=True), 4.0),
        (layer("prelu", 0.25, parameter=[-2.0, 0.1]), 4.0),
        (layer("modrelu", 0.5, parameter=[-3.0, 4.0]), 10.0),
        (layer("tanh", 7.0), 1.0),
        (layer("tanh", 7.0, h0=3.0), 3.0),
        (layer("scaled_tanh", 7.0, parameter=[0.5, -0.25]), 4.0),
    ],
    ids=lambda value: getattr(getattr(value, "phi", None), "name", str(value)),
)
def test_the_limit_of_every_activation(case, bound):
    assert _layer_bound(case, 1.0, None, 0) == pytest.approx(bound)


def test_initial_states_count_when_calibrating_and_the_margin_is_on_states():
    rnn = OrthogonalRNN(1, 4, nonlinearity="relu", bias=False, learn_h0=True, gain=0.01)
    with torch.no_grad():
        rnn.get_parameter("h0_l0" if "h0_l0" in dict(rnn.named_parameters()) else "h0").fill_(50.0)
    found = calibrated(fold_network(rnn), np.full((1, 1, 1), 0.25), 1.5)
    assert found.states[0] == pytest.approx(1.5 * 50.0)
    assert found.inputs == pytest.approx([0.25])


@pytest.mark.parametrize("wrong", [-1, 3])
def test_tokens_to_calibrate_on_are_those_of_the_network(wrong):
    network = types.SimpleNamespace(tokens=True, input_size=3)  # refused before anything else is read
    with pytest.raises(ArgumentError, match=r"Expected tokens in 0\.\.2, but got"):
        find_ranges(network, np.array([[0, 2, wrong]]), None, None, 1.0)
