"""The numbers of a network as they are exported, in float64: against the module, and counted by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import Householder, OrthogonalRNN
from orthornn.errors import ArgumentError, CheckpointError
from orthornn.export import to_c
from orthornn.export.c.folded import fold_network
from orthornn.learn.systems import SequenceModel
from support.tolerances import tolerance


def model(core, outputs=3, **options):
    width = core.hidden_size * (2 if core.is_complex else 1)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return SequenceModel(core, nn.Linear(width, outputs, dtype=torch.float64), **{"output": "all"} | options).eval()


def steps(folded, x):
    """The outputs (T, O) of all steps of one sequence."""
    states, rows = folded.first_states(), []
    for row in x:
        y, states = folded.step(row, states)
        rows.append(y)
    return np.stack(rows)


def agree(network, x, description=None, expected=None):
    folded = fold_network(network, description)
    with torch.no_grad():
        y = network(x[:, None])[:, 0].numpy() if expected is None else expected
    assert np.abs(steps(folded, x.numpy()) - y).max() < tolerance(torch.float64, 1000) * (1 + np.abs(y).max())
    return folded


def double(*shape, **options):
    return OrthogonalRNN(*shape, **{"dtype": torch.float64, "learn_h0": True} | options)


def test_the_gain_is_in_a_base_of_rotations():
    core = double(2, 9, parametrization=Householder(reflections=2, base="rotations"), gain=0.8, nonlinearity="tanh")
    folded = agree(model(core), torch.randn(20, 2, dtype=torch.float64))
    assert folded.layers[0].form == "reflections"


@pytest.mark.parametrize("field", ["real", "complex"])
def test_a_reflector_of_zeros_reflects_nothing(field):
    core = double(2, 12, parametrization=Householder(reflections=2, field=field), nonlinearity="relu")
    network = model(core)
    with torch.no_grad():
        core.transition_l0.free()[0][:12] = 0
    folded = agree(network, torch.randn(20, 2, dtype=torch.float64))
    assert folded.layers[0].form == "reflections"
    assert (np.abs(folded.layers[0].U).sum(0) == 0).any()


def test_targets_are_scaled_back_with_the_bias_of_the_readout():
    network, x = model(double(2, 5, nonlinearity="tanh")), torch.randn(20, 2, dtype=torch.float64)
    scale, offset = np.array([2.0, -0.5, 30.0]), np.array([1.0, 0.0, -4.0])
    description = {"says": "values", "target_scale": scale.tolist(), "target_offset": offset.tolist()}
    with torch.no_grad():
        expected = network(x[:, None])[:, 0].numpy() * scale + offset
    agree(network, x, description, expected)
    network.head.bias = None
    with torch.no_grad():
        expected = network(x[:, None])[:, 0].numpy() * scale + offset
    agree(network, x, description, expected)


def test_two_layers_of_tokens():
    """The second one reads states; and a token picks a column, which is no multiplication."""
    network = model(double(7, 6, 2, nonlinearity="tanh"), token_classes=7)
    tokens = torch.randint(7, (30,))
    folded = agree(network, tokens)
    assert folded.multiply_adds == 6 * 6 + (6 * 6 + 6 * 6) + 3 * 6
    assert fold_network(model(double(7, 6, 2, nonlinearity="tanh"))).multiply_adds == folded.multiply_adds + 7 * 6


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1]])
def test_steps_in_their_own_order_need_no_table(order):
    folded = fold_network(model(double(2, 4)), {"order": order})
    assert folded.order == (None if order == [0, 1, 2] else (0, 2, 1))


def test_states_are_no_classes():
    description = {"says": "classes", "labels": ["a", "b", "c", "d"]}
    assert fold_network(double(2, 4), description).labels is None
    assert fold_network(model(double(2, 4), 4), description).labels == ("a", "b", "c", "d")


@pytest.mark.parametrize("make", [OrthogonalRNN, nn.RNN])
def test_dropout_of_a_single_layer_is_nothing_in_training_either(make):
    with pytest.warns(UserWarning, match="dropout"):
        core = make(2, 4, dropout=0.5)
    assert core.training
    assert len(fold_network(core).layers) == 1


def test_the_basis_of_rotations_is_inverted_to_float64():
    """Of a float32 network its columns are orthogonal to float32 only: what that is off stays in every step."""
    torch.manual_seed(0)
    core = OrthogonalRNN(3, 60, nonlinearity="identity", learn_h0=True)
    folded = fold_network(core)
    assert folded.layers[0].form == "rotations"
    layer, Q = folded.layers[0], folded.Y
    identity = np.eye(60)
    assert np.abs(Q @ layer.V - core.weight_ih_l0.detach().double().numpy()).max() < tolerance(torch.float64, 60)
    assert np.abs(Q @ layer.h0 - core.h0.detach().double().numpy()).max() < tolerance(torch.float64, 60)
    assert np.abs(Q.T @ Q - identity).max() > 100 * tolerance(
        torch.float64, 60
    )  # else there would be nothing to invert


def test_an_error_of_the_state_grows_in_the_readout_by_at_most_its_norm():
    """||Y||_inf: the largest change of an output for changes of the states by at most 1."""
    network = model(double(2, 3, nonlinearity="tanh"), 2)
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor([[5.0, -7.0, 2.0], [0.1, 0.2, 0.3]]))
    assert fold_network(network).readout_norm == pytest.approx(14.0)
    with torch.no_grad():
        network.head.weight.mul_(1e-3)
    assert fold_network(network).readout_norm == 1.0
    perceptron = dataclasses.replace(
        fold_network(network), Y=np.array([[2.0, -1.0]]), H=np.array([[1.0, 3.0, -2.0], [0.5, 0.5, 0.0]])
    )
    slopes = torch.linspace(-6, 6, 10001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(nn.functional.gelu(slopes).sum(), slopes)
    assert perceptron.readout_norm >= 3 * 6 * float(slope.max())
    assert perceptron.readout_norm < 3 * 6 * float(slope.max()) * 1.01


class Doubled(OrthogonalRNN):
    """A network that says something else than its numbers."""

    def forward(self, *args, **options):
        states, last = super().forward(*args, **options)
        return 2 * states, last


def test_a_module_that_computes_something_else_than_its_numbers_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="agree with the module, but they differ by"):
        to_c(Doubled(2, 4), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_in_its_mode(training, tmp_path):
    core = double(2, 4).train(training)
    to_c(core, tmp_path)
    assert core.training == training


def test_a_token_is_sixteen_bits(tmp_path):
    network = SequenceModel(OrthogonalRNN(65536, 1), nn.Linear(1, 1), token_classes=65536)
    with pytest.raises(ArgumentError, match="at most 65535 input classes, but got 65536"):
        to_c(network, tmp_path / "out")
    assert not (tmp_path / "out").exists()
