"""What trains records gradients by itself, whatever the caller has switched off, and what it makes can be trained on."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import torch
from torch import nn

import orthornn
from orthornn import Householder, MatrixExponential, OrthogonalRNN, Stiefel, orthogonalize
from orthornn.diagnostics import hidden_gradient_norms
from orthornn.export import rounded
from orthornn.learn.training import resume
from orthornn.learn.training import train as train_run
from orthornn.optim import CayleyRMSprop, CayleySGD, JointOptimizer, recipes
from orthornn.testing import check_parametrization
from support.run_cases import config


@contextlib.contextmanager
def off():
    torch.set_grad_enabled(False)
    try:
        yield
    finally:
        torch.set_grad_enabled(True)


MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "set_grad_enabled": off}


def trains(module, x):
    """An update of a module, which raises an error if its tensors were made for inference only."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    found = module(x)
    (found[0] if isinstance(found, tuple) else found).square().mean().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    optimizer.step()


@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same_whatever_is_switched_off(mode, tmp_path):
    """torch's raw error: element 0 of tensors does not require grad and does not have a grad_fn."""
    made = config("ornn", steps=4)
    expected = train_run(made)
    with MODES[mode]():
        found = train_run(made)
        begun = train_run(made, tmp_path / "run")
        assert torch.is_inference_mode_enabled() == (mode == "inference_mode")
        assert not torch.is_grad_enabled()
        again = resume(tmp_path / "run", steps=6)
    for result in (found, begun):
        assert result.test == expected.test
        assert all(map(torch.equal, result.model.parameters(), expected.model.parameters()))
    assert again.steps == 6
    trains(found.model, next(iter(made.task.problem().test(3))).inputs)


@pytest.mark.parametrize("mode", MODES)
def test_orthornn_train_records(mode, tmp_path, capsys):
    with MODES[mode](), contextlib.redirect_stdout(io.StringIO()):
        trained = orthornn.train("copying", steps=2, T=5, hidden_size=8, threads=1, out=tmp_path / "run")
    assert trained.result.steps == 2


@pytest.mark.parametrize("mode", MODES)
def test_estimators_record(mode):
    pytest.importorskip("sklearn.base")
    from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster, OrthogonalRegressor

    X, y, small = (
        np.random.default_rng(0).standard_normal((12, 5, 2)),
        np.arange(12) % 2,
        {"steps": 2, "hidden_size": 4},
    )
    for made, data in (
        (OrthogonalClassifier(**small, validation_share=0), (X, y)),
        (OrthogonalRegressor(**small, validation_share=0), (X, y)),
        (OrthogonalForecaster(**small, lags=3), (np.sin(np.arange(40)),)),
    ):
        expected = made.fit(*data).predict(*data[:1])
        with MODES[mode]():
            found = made.fit(*data).predict(*data[:1])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("init", ["new", "polar"])
@pytest.mark.parametrize("parametrization", [Householder(), Stiefel(), MatrixExponential()], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_orthogonalized_can_be_trained(mode, parametrization, init):
    layer = nn.Linear(4, 4)
    with MODES[mode]():
        orthogonalize(layer, "weight", parametrization, init=init)
        layer(torch.randn(2, 4))
    trains(layer, torch.randn(3, 4))


@pytest.mark.parametrize("mode", MODES)
def test_copies_under_another_parametrization_and_with_rounded_weights_can_be_trained(mode):
    network, x = OrthogonalRNN(2, 6), torch.randn(5, 3, 2)
    with MODES[mode]():
        made = orthornn.convert(network, MatrixExponential())
        integers = rounded(network, calibration=x.transpose(0, 1))
        norms = hidden_gradient_norms(network, x, lambda found: found[0].square().sum())
        check_parametrization(Householder(reflections=2), 5)
    trains(made, x)
    trains(integers, x)
    assert norms[0][0] > 0


@pytest.mark.parametrize("kind", [CayleySGD, CayleyRMSprop, "joint"])
@pytest.mark.parametrize("mode", MODES)
def test_optimizers_call_their_closure_with_gradients(mode, kind):
    def run(inside):
        torch.manual_seed(0)
        network, x = OrthogonalRNN(2, 6, parametrization=Stiefel()), torch.randn(5, 3, 2)
        if kind == "joint":
            optimizer = recipes.vorontsov2017(network)
            assert isinstance(optimizer, JointOptimizer)
        else:
            optimizer = kind([next(network.transitions())[1].free()[0]], lr=0.1)

        def closure():
            network.zero_grad()
            loss = network(x)[0].square().mean()
            loss.backward()
            return loss

        with inside():
            optimizer.step(closure)
        optimizer.step(closure)
        closure()
        with inside():
            optimizer.step()
        optimizer.step()
        return [parameter.detach() for parameter in network.parameters()]

    assert all(map(torch.equal, run(MODES[mode]), run(contextlib.nullcontext)))


@pytest.mark.parametrize("mode", MODES)
def test_online_learning_needs_no_gradients(mode):
    def run(inside):
        torch.manual_seed(0)
        network, readout = OrthogonalRNN(2, 6, nonlinearity="identity"), nn.Linear(6, 1)
        x, target = torch.randn(8, 2), torch.randn(8, 1)
        with inside():
            learner = network.online(readout, lr=1e-2)
            learner(x[:5], target[:5])
        learner(x[5:], target[5:])
        learner.write_back()
        trains(network, x)
        return [parameter.detach() for parameter in network.parameters()]

    assert all(map(torch.equal, run(MODES[mode]), run(contextlib.nullcontext)))
