"""The bounds on states, against what their formula gives by hand."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.activations import get
from orthornn.errors import ArgumentError
from orthornn.export.c.bounds import _layer_bound, bounded, calibrated, find_ranges
from orthornn.export.c.folded import Base, FoldedLayer, FoldedNetwork, fold_network


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


def rotating(n, gain=1.0, U=None, phi="tanh", **options):
    """A layer of rotations by an eighth of a circle, and of reflections."""
    c, s = np.full(n, gain * 0.5**0.5), np.full(n, gain * 0.5**0.5)
    s[n - n // 2 :] *= -1
    if n % 2:
        c[n // 2], s[n // 2] = gain, 0
    form = "rotations" if U is None else "reflections"
    given = {"V": np.zeros((n, 1)), "b": None, "h0": np.zeros(n), "phi": get(phi), "linear": False, **options}
    return FoldedLayer(form, parameter=None, U=U, base=Base(c, s), **given)


def reflectors(n, m):
    U = np.random.default_rng(0).standard_normal((n, m))
    return U * np.sqrt(2) / np.linalg.norm(U, axis=0)


@pytest.mark.parametrize("gain", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_a_bound_of_units_holds_between_the_reflections(n, gain):
    """The largest entry of P h for |h_i| <= 1 is the largest sum of absolute entries of a row of P."""
    for layer in (rotating(n, gain), rotating(n, gain, reflectors(n, 4))):
        (limit,) = bounded(FoldedNetwork((layer,), 1), -1, 1, None).states
        products = [part.T for part in layer.on_the_way(np.eye(n))]
        assert len(products) == 1 + (0 if layer.U is None else 4)
        assert np.allclose(products[-1], layer.matrix())
        assert limit * (1 + 1e-12) >= max(1.0, *(float(np.abs(P).sum(1).max()) for P in products))
        assert limit <= max(1.0, gain * n**0.5) * (1 + 1e-12)


@pytest.mark.parametrize("phi", ["tanh", "relu", "identity"])
def test_calibrated_ranges_hold_between_the_reflections(phi):
    n, x = 12, np.random.default_rng(1).standard_normal((5, 20, 1))
    layer = rotating(
        n, 0.9, reflectors(n, 3), phi, V=3 * np.random.default_rng(2).standard_normal((n, 1)), h0=np.ones(n)
    )
    network = FoldedNetwork((layer,), 1)
    (limit,) = calibrated(network, x, 1.0).states
    seen, now = [1.0], [np.broadcast_to(layer.h0, (5, n))]
    for t in range(20):
        seen += [float(np.abs(part).max()) for part in layer.on_the_way(now[0])]
        now = network.step(x[:, t], now)[1]
        seen.append(float(np.abs(now[0]).max()))
    assert limit == pytest.approx(max(seen))
    assert calibrated(network, x, 1.5).states[0] == pytest.approx(1.5 * max(seen))


def test_a_dense_transition_needs_no_room_between():
    """Its sums have 32 times the range of states, so tanh alone bounds them."""
    core = OrthogonalRNN(1, 12, parametrization=Householder(reflections=2), nonlinearity="tanh")
    assert bounded(fold_network(core, form="dense"), -1, 1, None).states == (1.0,)
    assert bounded(fold_network(core, form="reflections"), -1, 1, None).states == (pytest.approx(12**0.5),)
