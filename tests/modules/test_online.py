"""Real-time recurrent learning: the gradient of the whole past at every step, equal to back-propagation's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from orthornn import Givens, Householder, OrthogonalRNN, Rotations, SpectralMargin, Stiefel, Unconstrained
from orthornn.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    NonFiniteError,
    NotOnGroupError,
    OrthornnError,
    ShapeError,
    TransformError,
)
from orthornn.kernels import dense_rnn
from orthornn.kernels.backends.cpp import extension
from support.tolerances import tolerance

COMPILED = [False] if extension.missing() else [False, True]
NAMES = ("angles", "gain", "weight_ih", "bias_ih", "h0", "readout_weight", "readout_bias")


def network(n=6, inputs=2, outputs=2, **options):
    torch.manual_seed(0)
    given = {"parametrization": Stiefel(), "gain": 0.95, "learn_gain": True, "learn_h0": True, **options}
    rnn = OrthogonalRNN(inputs, n, nonlinearity="identity", dtype=torch.float64, **given)
    return rnn, nn.Linear(n, outputs, dtype=torch.float64)


def stream(steps, inputs=2, outputs=2):
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(steps, inputs, dtype=torch.float64, generator=generator),
        torch.randn(steps, outputs, dtype=torch.float64, generator=generator),
    )


def back_propagated(learner, rnn, readout, x, target):
    """Gradients through the whole sequence by autograd; the angles turn W's planes by matrix exponentials."""
    Q, turns, H = learner._Q, learner._online.turns, learner._online.pairs
    n = Q.shape[0]
    angles = torch.zeros(H, dtype=torch.float64, requires_grad=True)
    leaves = [rnn.gain_l0, rnn.weight_ih_l0, rnn.bias_ih_l0, rnn.h0, readout.weight, readout.bias]
    first, second = torch.arange(n // 2), torch.arange(H, n)
    skew = torch.zeros(n, n, dtype=torch.float64)
    at = (angles * turns)[: n // 2]
    skew = skew.index_put((first, second), -at).index_put((second, first), at)
    W = Q @ torch.linalg.matrix_exp(skew) @ Q.mT @ learner.transition.detach()
    states = dense_rnn(
        x.unsqueeze(1), rnn.h0, W, "identity", weight_ih=rnn.weight_ih_l0, bias=rnn.bias_ih_l0, gain=rnn.gain_l0
    )
    out = readout(states.squeeze(1))
    grads = torch.autograd.grad(0.5 * (out - target).square().sum(), [angles, *leaves])
    return out.detach(), states.detach().squeeze(1), dict(zip(NAMES, grads))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("n", "inputs", "outputs"), [(1, 1, 1), (2, 1, 3), (7, 3, 2), (64, 1, 1), (33, 2, 4)])
def test_gradients_are_those_of_the_whole_past(monkeypatch, compiled, n, inputs, outputs):
    monkeypatch.setattr("orthornn.kernels.online._compiled", lambda wanted: compiled)
    rnn, readout = network(n, inputs, outputs)
    learner = rnn.online(readout)
    x, target = stream(300, inputs, outputs)
    out, states, expected = back_propagated(learner, rnn, readout, x, target)
    found = torch.cat([learner(x[:100], target[:100]), learner(x[100:], target[100:])])
    torch.testing.assert_close(found, out, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(learner.state, states[-1], rtol=1e-10, atol=1e-10)
    for name, gradient in learner.gradients.items():
        wanted = expected[name].view(gradient.shape)
        scale = 1 + float(wanted.abs().max())
        torch.testing.assert_close(
            gradient, wanted, rtol=0, atol=1e-10 * scale, msg=lambda text, name=name: name + text
        )
    if n > 1:
        assert float(expected["angles"].abs().max()) > 0.1


def test_reflections_in_pairs_of_units():
    """A W of determinant -1 has a unit that is mirrored next to one that is not."""
    rnn, readout = network(6, parametrization=Householder(reflections=3))
    assert float(torch.linalg.det(rnn.weight_hh_l0.detach())) < 0
    learner = rnn.online(readout)
    torch.testing.assert_close(learner.transition, rnn.weight_hh_l0, rtol=0, atol=1e-12)
    x, target = stream(50)
    _, _, expected = back_propagated(learner, rnn, readout, x, target)
    learner(x, target)
    torch.testing.assert_close(learner.gradients["angles"], expected["angles"], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("every", [1, 3])
def test_the_compiled_steps_are_those_of_the_reference(optimizer, every):
    if len(COMPILED) < 2:
        pytest.skip("no compiled kernels here")
    rnn, readout = network(7, 2, 2)
    x, target = stream(40)
    found = []
    for compiled in COMPILED:
        learner = rnn.online(readout, 1e-2, recurrent_lr=1e-3, every=every, optimizer=optimizer)
        out = learner._online.steps(x, target, compiled)
        found.append((out, learner._online.parameters, learner._online.gradient, learner._online.state))
    for mine, theirs in zip(*found):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_adam_is_torchs():
    rnn, readout = network(5, 1, 1, learn_gain=False)
    learner = rnn.online(readout, 1e-2)
    parameters = learner._online.parameters.clone().requires_grad_()
    adam = torch.optim.Adam([parameters], lr=1e-2)
    frozen = learner._online.rates == 0
    x, target = stream(30, 1, 1)
    for x_t, target_t in zip(x.split(1), target.split(1)):
        twin = rnn.online(readout)  # the gradient of one step, from the learner's parameters and traces
        twin._online.parameters.copy_(learner._online.parameters)
        twin._online.state.copy_(learner._online.state)
        twin(x_t, target_t)
        learner(x_t, target_t)
        parameters.grad = torch.where(frozen, 0.0, twin._online.gradient)
        adam.step()
        torch.testing.assert_close(learner._online.parameters, parameters.detach(), rtol=1e-9, atol=1e-11)


def test_a_loss_of_ones_own():
    rnn, readout = network()
    x, target = stream(20)
    learner, by_grad = rnn.online(readout, 1e-3), rnn.online(readout, 1e-3)
    out = learner(x, target)
    for t in range(20):
        y = by_grad(x[t : t + 1])
        torch.testing.assert_close(y, out[t : t + 1], rtol=1e-12, atol=1e-12)
        by_grad.learn(y[0] - target[t])
    torch.testing.assert_close(by_grad._online.parameters, learner._online.parameters, rtol=1e-12, atol=1e-12)


def test_restarts_forget():
    rnn, readout = network()
    x, target = stream(30)
    learner, fresh = rnn.online(readout), rnn.online(readout)
    learner(x[:20])
    learner.restart()
    torch.testing.assert_close(learner(x[20:], target[20:]), fresh(x[20:], target[20:]), rtol=0, atol=0)
    for name, gradient in learner.gradients.items():
        torch.testing.assert_close(gradient, fresh.gradients[name], rtol=0, atol=0)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("n", [6, 7])
@pytest.mark.parametrize(("lr", "every", "optimizer"), [(None, 1, "adam"), (0.01, 3, "adam"), (0.01, 4, "sgd")])
def test_learning_that_is_saved_resumes_to_the_bit(monkeypatch, tmp_path, compiled, n, lr, every, optimizer):
    """In a learner of another network, rate and optimizer, between two updates and inside an episode."""
    monkeypatch.setattr("orthornn.kernels.online._compiled", lambda wanted: compiled)
    rnn, readout = network(n)
    learner = rnn.online(readout, lr, every=every, optimizer=optimizer)
    x, target = stream(50)
    learner(x[:20], target[:20])
    torch.save(learner.state_dict(), tmp_path / "learner.pt")
    torch.save([rnn.state_dict(), readout.state_dict()], tmp_path / "network.pt")
    expected = learner(x[20:], target[20:])
    learner.write_back()

    torch.manual_seed(7)
    other = OrthogonalRNN(
        2, n, nonlinearity="identity", parametrization=Stiefel(), learn_gain=True, learn_h0=True, dtype=torch.float64
    )
    other_readout = nn.Linear(n, 2, dtype=torch.float64)
    resumed = other.online(other_readout, 0.5)
    resumed.load_state_dict(torch.load(tmp_path / "learner.pt", weights_only=True))
    for module, state in zip((other, other_readout), torch.load(tmp_path / "network.pt", weights_only=True)):
        module.load_state_dict(state)
    assert torch.equal(resumed(x[20:], target[20:]), expected)
    assert torch.equal(resumed.state, learner.state)
    assert torch.equal(resumed.transition, learner.transition)
    assert all(torch.equal(value, learner.gradients[name]) for name, value in resumed.gradients.items())
    resumed.write_back()
    for mine, theirs in zip((other, other_readout), (rnn, readout)):
        found = mine.state_dict()
        assert all(torch.equal(value, found[name]) for name, value in theirs.state_dict().items())


def test_a_saved_state_is_a_copy_and_must_fit():
    rnn, readout = network()
    learner = rnn.online(readout, 0.01)
    x, target = stream(20)
    state = learner.state_dict()
    before = {name: value.clone() for name, value in state.items() if isinstance(value, torch.Tensor)}
    first = learner(x, target)
    learner.load_state_dict(state)
    assert torch.equal(learner(x, target), first)
    assert all(torch.equal(state[name], value) for name, value in before.items())

    for wrong, error, words in (
        ({}, ArgumentError, r"Expected a state_dict of the entries Q, parameters, .*, but got \[\]"),
        ([1], ArgumentError, "but got list"),
        ({**state, "lr": 1.0}, ArgumentError, r"but got .*'lr'"),
        ({**state, "moments": None}, ArgumentTypeError, "Expected moments to be a tensor, but got NoneType"),
        ({**state, "Q": torch.eye(5)}, ShapeError, r"Expected Q to have shape \(6, 6\), but got \(5, 5\)"),
        (
            {**state, "state": state["state"].float()},
            DTypeError,
            "Expected state to be torch.float64, but got torch.float32",
        ),
        ({**state, "turns": state["turns"].to("meta")}, DeviceError, "Expected turns on the CPU, but got meta"),
        ({**state, "every": 0}, ArgumentError, "Expected every to be an integer of at least 1, but got 0"),
        ({**state, "adam": "yes"}, ArgumentError, "Expected adam to be True or False"),
    ):
        expected = learner.state_dict()
        with pytest.raises(error, match=words):
            learner.load_state_dict(wrong)
        assert all(
            torch.equal(value, expected[name])
            for name, value in learner.state_dict().items()
            if isinstance(value, torch.Tensor)
        )


def test_what_was_learned_is_written_back():
    rnn, readout = network()
    before = {name: value.clone() for name, value in (*rnn.state_dict().items(), *readout.state_dict().items())}
    learner = rnn.online(readout, 1e-2)
    x, target = stream(100)
    learner(x, target)
    for name, value in (*rnn.state_dict().items(), *readout.state_dict().items()):
        assert torch.equal(value, before[name]), name  # a learner has copies
    learner.write_back()
    assert all(not torch.equal(value, before[name]) for name, value in readout.state_dict().items())
    learner.restart()
    again = rnn(x.unsqueeze(1))[0].squeeze(1)
    learner._online.rates = None
    torch.testing.assert_close(learner(x), readout(again).detach(), rtol=1e-9, atol=1e-9)
    fixed = rnn.online(readout, 1e-2, learn_angles=False)
    W = rnn.weight_hh_l0
    fixed(x, target)
    fixed.write_back()
    assert torch.equal(rnn.weight_hh_l0, W)


class Half(nn.Module):
    def forward(self, value):
        return value / 2

    def right_inverse(self, value):
        return 2 * value


def test_what_was_learned_is_written_through_a_parametrization():
    rnn, readout = network()
    for module, name in ((rnn, "weight_ih_l0"), (rnn, "gain_l0"), (rnn, "h0"), (readout, "weight")):
        parametrize.register_parametrization(module, name, Half())
    learner, (x, target) = rnn.online(readout, 1e-2), stream(60)
    learner(x, target)
    learner.write_back()
    learner.restart()
    learner._online.rates = None
    with torch.no_grad():
        expected = readout(rnn(x.unsqueeze(1))[0].squeeze(1))
    torch.testing.assert_close(learner(x), expected, rtol=1e-9, atol=1e-9)


def test_what_pruning_computes_cannot_be_written_and_nothing_else_is():
    rnn, readout = network()
    prune.random_unstructured(readout, "weight", 0.5)
    learner, (x, target) = rnn.online(readout, 1e-2), stream(60)
    learner(x, target)
    before = {name: value.clone() for name, value in rnn.state_dict().items()}
    with pytest.raises(ArgumentError, match=r"prune.remove\(module, 'weight'\)"):
        learner.write_back()
    assert all(torch.equal(value, before[name]) for name, value in rnn.state_dict().items())
    prune.remove(readout, "weight")
    learner.write_back()
    torch.testing.assert_close(readout.weight.detach(), learner._named(learner._online.parameters)["readout_weight"])


@pytest.mark.parametrize("missing", ["bias", "learn_gain", "learn_h0", "readout bias"])
def test_what_the_network_does_not_train_stays(missing):
    """Else write_back could not return it, and the network would be another one than the learner."""
    rnn, readout = network(**({missing: False} if missing in ("bias", "learn_gain", "learn_h0") else {}))
    readout = nn.Linear(6, 2, bias=missing != "readout bias", dtype=torch.float64)
    learner, (x, target) = rnn.online(readout, 1e-2), stream(60)
    before = {name: value.clone() for name, value in learner._online.named(learner._online.parameters).items()}
    learner(x, target)
    kept = {"bias": "b", "learn_gain": "gain", "learn_h0": "z0", "readout bias": "d"}[missing]
    for name, value in learner._online.named(learner._online.parameters).items():
        assert torch.equal(value, before[name]) == (name == kept), name
    learner.write_back()
    learner.restart()
    learner._online.rates = None
    with torch.no_grad():
        expected = readout(rnn(x.unsqueeze(1))[0].squeeze(1))
    torch.testing.assert_close(learner(x), expected, rtol=1e-9, atol=1e-9)


FROZEN = {
    "weight_ih_l0": "V",
    "bias_ih_l0": "b",
    "gain_l0": "gain",
    "h0": "z0",
    "weight": "Y",
    "bias": "d",
    "W": "angles",
}


@pytest.mark.parametrize("frozen", FROZEN)
def test_what_is_frozen_stays_to_the_bit(frozen):
    """It was trained all the same, and written into the frozen tensor."""
    rnn, readout = network()
    tensors = {**dict(rnn.named_parameters()), **dict(readout.named_parameters())}
    for tensor in next(rnn.transitions())[1].free() if frozen == "W" else (tensors[frozen],):
        tensor.requires_grad_(False)
    kept = {name: value.detach().clone() for name, value in tensors.items()}
    learner, (x, target) = rnn.online(readout, 1e-2), stream(60)
    before = {name: value.clone() for name, value in learner._online.named(learner._online.parameters).items()}
    learner(x, target)
    for name, value in learner._online.named(learner._online.parameters).items():
        assert torch.equal(value, before[name]) == (name == FROZEN[frozen]), name
    learner.write_back()
    for name, value in tensors.items():
        assert torch.equal(value, kept[name]) == (not value.requires_grad), name


def test_a_network_of_which_nothing_may_be_learned_is_refused():
    rnn, readout = network()
    rnn.requires_grad_(False)
    readout.requires_grad_(False)
    with pytest.raises(
        ArgumentError, match=r"Expected a trainable parameter, but got none: .* all are frozen or have learning rate 0"
    ):
        rnn.online(readout, 1e-2)
    assert rnn.online(readout).gradients["gain"] == 0
    rnn.bias_ih_l0.requires_grad_(True)
    rnn.online(readout, 1e-2)
    with pytest.raises(ArgumentError, match="Expected a trainable parameter"):
        rnn.online(readout, 0.0, recurrent_lr=1e-2)


@pytest.mark.parametrize("learn_angles", [False, True])
@pytest.mark.parametrize("steps", [1, 2000])
def test_learning_that_diverges_is_an_error_and_nothing_is_written(learn_angles, steps):
    """Predictions were NaN without a word, and so were then the network and the readout."""
    rnn, readout = network()
    learner, (x, target) = rnn.online(readout, 100.0, optimizer="sgd", learn_angles=learn_angles), stream(2000)
    before = {name: value.clone() for name, value in (*rnn.state_dict().items(), *readout.state_dict().items())}

    def learn():
        for start in range(0, 2000, steps):
            learner(x[start : start + steps], target[start : start + steps])

    with pytest.raises(
        NonFiniteError, match=r"Expected finite predictions, but .* at step \d+ of this call: .* lower lr"
    ):
        learn()
    with pytest.raises(NonFiniteError, match=r"Expected finite parameters, .* nothing has been written"):
        learner.write_back()
    assert all(
        torch.equal(value, before[name]) for name, value in (*rnn.state_dict().items(), *readout.state_dict().items())
    )


@pytest.mark.parametrize("name", ["h0 given", "weight_ih_l0", "bias_ih_l0", "gain_l0", "h0", "weight", "W"])
def test_a_network_that_is_not_finite_is_refused(name):
    rnn, readout = network(parametrization=Unconstrained() if name == "W" else Stiefel())
    tensors = {**dict(rnn.named_parameters()), **dict(readout.named_parameters())}
    h0 = None
    if name == "h0 given":
        h0 = torch.full((6,), float("inf"), dtype=torch.float64)
    else:
        with torch.no_grad():
            (next(rnn.transitions())[1].free()[0] if name == "W" else tensors[name]).view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError, match=f"Expected .*{name.split()[0]} to be finite"):
        rnn.online(readout, 1e-2, h0=h0)


@pytest.mark.parametrize(("lr", "recurrent_lr"), [(0.0, 1e-2), (1e-2, 0.0)])
def test_the_recurrence_has_its_own_rate(lr, recurrent_lr):
    rnn, readout = network()
    learner, (x, target) = rnn.online(readout, lr, recurrent_lr=recurrent_lr), stream(20)
    before = {name: value.clone() for name, value in learner._online.named(learner._online.parameters).items()}
    learner(x, target)
    for name, value in learner._online.named(learner._online.parameters).items():
        rate = recurrent_lr if name in ("angles", "gain") else lr
        assert torch.equal(value, before[name]) == (rate == 0), name


def test_a_state_that_is_given_is_the_first_one():
    rnn, readout = network()
    h0, (x, _) = torch.randn(6, dtype=torch.float64), stream(9)
    learner = rnn.online(readout, h0=h0)
    torch.testing.assert_close(learner.state, h0, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        expected = readout(rnn(x.unsqueeze(1), h0.view(1, 1, 6))[0].squeeze(1))
    for _ in range(2):
        torch.testing.assert_close(learner(x), expected, rtol=1e-10, atol=1e-10)
        learner.restart()


@pytest.mark.parametrize("method", [Householder(), Stiefel()])
def test_networks_in_single_precision(method):
    rnn = OrthogonalRNN(1, 9, nonlinearity="identity", parametrization=method, gain=0.9)
    readout = nn.Linear(9, 1)
    x, target = stream(200, 1, 1)
    learner = rnn.online(readout, 1e-3)
    out = learner(x[:1].float())
    torch.testing.assert_close(out.float(), readout(rnn(x[:1].float())[0]).detach(), rtol=1e-5, atol=1e-5)
    learner(x, target)
    learner.write_back()
    learner.restart()
    learner._online.rates = None
    expected = readout(rnn(x.float().unsqueeze(1))[0].squeeze(1)).detach()
    torch.testing.assert_close(learner(x).float(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", [Householder(reflections=9), Rotations(), Givens(layers=2)])
def test_what_could_not_be_written_back_is_refused_before_anything_is_learned(method):
    rnn = OrthogonalRNN(1, 11, nonlinearity="identity", parametrization=method, gain=0.9)
    readout, W = nn.Linear(11, 1), rnn.weight_hh_l0.detach()
    x, target = stream(50, 1, 1)
    if isinstance(method, Rotations):  # its planes are those that turn
        learner = rnn.online(readout, 1e-2)
        assert torch.allclose(learner.transition.float(), W, atol=1e-6)
    else:
        with pytest.raises(
            ArgumentError, match=r"Use Householder\(\), Stiefel\(\) or Rotations\(\), or pass learn_ang"
        ):
            rnn.online(readout, 1e-2)
        learner = rnn.online(readout, 1e-2, learn_angles=False)
    learner(x, target)
    learner.write_back()
    torch.testing.assert_close(rnn.weight_hh_l0.double(), learner.transition, rtol=0, atol=1e-5)
    assert torch.equal(rnn.weight_hh_l0, W) == (not isinstance(method, Rotations))


def test_a_transition_that_pruning_computes_is_refused_before_anything_is_learned():
    rnn, readout = network(parametrization=Householder())
    prune.random_unstructured(rnn.transition_l0, "reflectors", 0.2)
    with pytest.raises(ArgumentError, match=r"prune.remove\(module, 'reflectors'\)"):
        rnn.online(readout, 1e-2)
    rnn.online(readout, 1e-2, learn_angles=False)


def test_wrong_calls():
    rnn, readout = network()
    for options, error in (
        ({"nonlinearity": "tanh"}, ArgumentError),
        ({"num_layers": 2}, ArgumentError),
        ({"bidirectional": True}, ArgumentError),
        ({"linear_transition": True}, ArgumentError),
        ({"clip_backward": 0.1}, ArgumentError),
        ({"parametrization": Householder(field="complex")}, ArgumentError),
        ({"parametrization": SpectralMargin(margin=0.5, init="glorot")}, NotOnGroupError),
    ):
        given = {"nonlinearity": "identity", "dtype": torch.float64, **options}
        with pytest.raises(error, match="but got"):
            OrthogonalRNN(2, 6, **given).online(readout)
    for options in ({"lr": -1.0}, {"every": 0}, {"optimizer": "adagrad"}, {"h0": torch.zeros(3)}, {"learn_angles": 1}):
        with pytest.raises(OrthornnError):
            rnn.online(readout, **options)
    with pytest.raises(ShapeError, match="6 features"):
        rnn.online(nn.Linear(5, 1))
    learner = rnn.online(readout)
    x, target = stream(4)
    with pytest.raises(ShapeError, match="a target for each of 4 steps"):
        learner(x, target[:3])
    with pytest.raises(ShapeError):
        learner(x[0])
    with pytest.raises(DTypeError):
        learner(x.long())
    with pytest.raises(ShapeError):
        learner.learn(torch.zeros(3))


def test_a_lazy_negation_is_read_as_what_it_stands_for():
    """The kernel reads memory; torch's views with a negative bit store the numbers of the other sign."""
    rnn, readout = network()
    x, target = stream(7)

    def negated(t):
        return torch._neg_view(-t)

    plain, lazy = rnn.online(readout, 1e-2), rnn.online(readout, 1e-2)
    assert torch.equal(lazy(negated(x), negated(target)), plain(x, target))
    assert torch.equal(lazy(negated(x[:1])), plain(x[:1]))
    plain.learn(target[0])
    lazy.learn(negated(target[0]))
    assert torch.equal(lazy._online.parameters, plain._online.parameters)


def test_what_has_no_values_or_is_complex_is_refused():
    rnn, readout = network()
    x, _ = stream(3)
    learner = rnn.online(readout)
    elsewhere = OrthogonalRNN(2, 6, nonlinearity="identity", device="meta")
    for call, error, message in (
        (lambda: rnn.online(nn.Linear(6, 2, dtype=torch.complex64)), DTypeError, "readout.weight to be real"),
        (lambda: rnn.online(nn.Linear(6, 2, device="meta")), DeviceError, "readout.weight to have values"),
        (lambda: elsewhere.online(readout), DeviceError, "network's parameters to have values"),
        (lambda: rnn.online(nn.Linear(6, 2), h0=torch.zeros(6, dtype=torch.complex64)), DTypeError, "h0 to be real"),
        (lambda: rnn.online(readout, h0=torch.zeros(6, device="meta")), DeviceError, "h0 on the CPU"),
        (lambda: rnn.online(readout, recurrent_lr=0.1), ArgumentError, "lr together with recurrent_lr"),
        (lambda: torch.func.vmap(learner)(x.unsqueeze(0)), TransformError, "outside of it"),
    ):
        with pytest.raises(error, match=message):
            call()
    without = nn.Linear(6, 2)
    without.weight = nn.Parameter(torch.zeros(0, 6))
    without.out_features = 0
    with pytest.raises(ShapeError, match="at least one number"):
        rnn.online(without)


def test_a_learner_made_in_inference_mode_learns_outside_of_it():
    rnn, readout = network()
    x, target = stream(5)
    expected = rnn.online(readout, 1e-2)(x, target)
    with torch.inference_mode():
        learner = rnn.online(readout, 1e-2)
    assert torch.equal(learner(x, target), expected)
    learner.restart()
    learner.write_back()
    assert not any(parameter.is_inference() for parameter in (*rnn.parameters(), *readout.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("method", [Stiefel(), Householder(), Rotations()], ids=repr)
def test_networks_in_16_bits_learn(method, dtype):
    """Stiefel's W, which is rounded to 16 bits itself, was refused."""
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 6, parametrization=method, nonlinearity="identity", gain=0.9, dtype=dtype)
    readout, (x, target) = nn.Linear(6, 2, dtype=dtype), stream(50)
    learner = rnn.online(readout, 1e-2)
    expected = readout(rnn(x.to(dtype))[0]).detach().double()
    torch.testing.assert_close(rnn.online(readout)(x), expected, rtol=0, atol=tolerance(dtype))
    learner(x, target)
    learner.write_back()
    learned = learner._named(learner._online.parameters)["readout_weight"]
    for written, value in ((rnn.weight_hh_l0, learner.transition), (readout.weight, learned)):
        torch.testing.assert_close(written.double(), value, rtol=0, atol=tolerance(dtype))
    with torch.no_grad():
        other = OrthogonalRNN(2, 6, parametrization=Unconstrained(), nonlinearity="identity", dtype=dtype)
        other.weight_hh_l0 = torch.linspace(-1, 1, 36).view(6, 6).to(dtype)
    with pytest.raises(NotOnGroupError):
        other.online(readout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_multiple_of_an_orthogonal_matrix_keeps_its_scale(dtype):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 5, parametrization=Unconstrained(), nonlinearity="identity", dtype=dtype)
    readout = nn.Linear(5, 2, dtype=dtype)
    rnn.weight_hh_l0 = 0.8 * torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0].to(dtype)
    x, _ = stream(12)
    expected = readout(rnn(x.to(dtype))[0]).detach().double()
    torch.testing.assert_close(rnn.online(readout)(x.to(dtype)), expected, rtol=0, atol=tolerance(dtype, 12 * 5))


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused_and_nothing_is_learned_from_it(bad, steps):
    rnn, readout = network()
    learner, twin = rnn.online(readout, 1e-2), rnn.online(readout, 1e-2)
    x, target = stream(steps)
    for given in (x, target):
        wrong = given.clone()
        wrong[-1, 1] = bad
        with pytest.raises(
            NonFiniteError, match=rf"1 of its {2 * steps} entries are not, the first at index \({steps - 1}, 1"
        ):
            learner(*((wrong, target) if given is x else (x, wrong)))
    learner(x[:1])
    twin(x[:1])
    with pytest.raises(NonFiniteError, match="Expected grad to be finite"):
        learner.learn(torch.tensor([0.0, bad], dtype=torch.float64))
    assert torch.equal(learner(x, target), twin(x, target))


def test_a_learner_is_on_the_cpu_whatever_the_default_device():
    rnn, readout = OrthogonalRNN(2, 4, nonlinearity="identity"), nn.Linear(4, 1)
    x, target = torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    with torch.device("meta"):
        learner = rnn.online(readout, lr=0.01)
        outputs = learner(x, target)
    assert torch.as_tensor(outputs).isfinite().all()
    assert learner.transition.device.type == "cpu"


def test_learn_comes_once_after_a_call_with_one_step_and_no_target():
    rnn, readout = network()
    x, target = stream(4)
    learner = rnn.online(readout, 1e-2)
    grad = torch.ones(2, dtype=torch.float64)
    before = learner._online.parameters.clone()
    for call in (
        lambda: None,
        lambda: learner(x),
        lambda: learner(x[:1], target[:1]),
        lambda: (learner(x[:1]), learner.restart()),
    ):
        call()
        now = learner._online.parameters.clone()
        with pytest.raises(ArgumentError, match=r"Expected learn\(\) after a call with one step and no target"):
            learner.learn(grad)
        assert torch.equal(learner._online.parameters, now)
    learner(x[:1])
    learner.learn(grad)
    assert not torch.equal(learner._online.parameters, before)
    with pytest.raises(ArgumentError, match=r"Expected learn\(\) after a call"):
        learner.learn(grad)
    learner(x[:1])
    other = rnn.online(readout, 1e-2)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):  # also between the call and learn the state is all that there is
        one.learn(grad)
    assert torch.equal(other._online.parameters, learner._online.parameters)
    old = {name: value for name, value in learner.state_dict().items() if name != "may_learn"}
    other.load_state_dict(old)
    other.learn(grad)


@pytest.mark.parametrize("learns", [False, True])
def test_resets_are_restarts(learns):
    rnn, readout = network(7)
    x, target = stream(30)
    reset = torch.zeros(30, dtype=torch.bool)
    reset[[0, 11, 12, 25]] = True
    rate = 1e-2 if learns else None
    one, apart = rnn.online(readout, rate), rnn.online(readout, rate)
    out = one(x, target, reset)
    pieces = []
    for first, last in ((0, 11), (11, 12), (12, 25), (25, 30)):
        apart.restart()
        pieces.append(apart(x[first:last], target[first:last]))
    assert torch.equal(out, torch.cat(pieces))
    assert torch.equal(one.state, apart.state)
    assert all(torch.equal(value, apart.gradients[name]) for name, value in one.gradients.items())
    again = one(x[:5], reset=torch.zeros(5, dtype=torch.bool))
    assert torch.equal(again, apart(x[:5]))


def test_gradients_of_episodes_are_summed():
    rnn, readout = network(6)
    learner = rnn.online(readout)
    x, target = stream(40)
    reset = torch.zeros(40, dtype=torch.bool)
    reset[17] = True
    learner(x, target, reset)
    expected = [back_propagated(learner, rnn, readout, x[part], target[part])[2] for part in (slice(17), slice(17, 40))]
    for name, gradient in learner.gradients.items():
        wanted = sum(each[name] for each in expected).view(gradient.shape)
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("reset", "error", "message"),
    [
        (torch.zeros(5), DTypeError, "bool"),
        (torch.zeros(4, dtype=torch.bool), ShapeError, r"\(5,\), .* got \(4,\)"),
        (torch.zeros(5, 1, dtype=torch.bool), ShapeError, r"\(5,\), .* got \(5, 1\)"),
        ([True] * 5, ArgumentTypeError, "list"),
    ],
)
def test_wrong_resets(reset, error, message):
    rnn, readout = network()
    with pytest.raises(error, match=message):
        rnn.online(readout)(stream(5)[0], reset=reset)
