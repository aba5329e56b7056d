from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from orthornn.diagnostics import hidden_gradient_norms, orthogonality_error, singular_values
from orthornn.errors import ArgumentError, DeviceError, NonFiniteError, ShapeError
from orthornn.learn.systems import MODELS, SequenceModel, build
from orthornn.modules import GORU, DeltaRNN, OrthogonalRNN, OrthogonalRNNCell, PeepholeLSTM, ReflectionRNN
from orthornn.parametrizations import Householder, SpectralMargin, Stiefel
from support.tolerances import tolerance

T, B, INPUT, N = 7, 3, 2, 5


def by_hand(core, inputs, loss):
    """dL/dh_t from a loop of single steps, whose states are tensors of their own; real, one direction."""
    finals = core.initial_states(inputs.shape[1])
    states: list[list[torch.Tensor]] = [[] for _ in finals]
    for x in inputs:
        for k, layer in enumerate(core.layers()):
            x = layer.step(x, states[k][-1] if states[k] else finals[k])
            states[k].append(x)
    flat = [h for layer in states for h in layer]
    found = torch.autograd.grad(loss(torch.stack(states[-1])), flat, allow_unused=True, materialize_grads=True)
    norms = torch.stack([g.abs().double().square().sum() for g in found]).reshape(len(states), -1)
    return (norms / inputs.shape[1]).sqrt()


@pytest.mark.parametrize("final", [True, False], ids=["last", "all"])
def test_a_linear_network_by_hand(final):
    """h_t = W h_{t-1} + V x_t, L = sum_s c . h_s: dL/dh_t = sum over s >= t of (W')^(s-t) c."""
    core = OrthogonalRNN(INPUT, N, nonlinearity="identity", dtype=torch.float64)
    W = core.weight_hh_l0.detach()
    c = torch.randn(N, dtype=torch.float64)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    found = hidden_gradient_norms(core, inputs, lambda out: ((out[-1:] if final else out) @ c).sum())
    expected, gradient = [], torch.zeros(N, dtype=torch.float64)
    for t in reversed(range(T)):
        gradient = W.T @ gradient + (c if t == T - 1 or not final else 0)
        expected.append(gradient.norm())
    torch.testing.assert_close(found, torch.stack(expected[::-1])[None], rtol=1e-10, atol=0)
    if final:
        torch.testing.assert_close(found, c.norm().expand(1, T), rtol=1e-10, atol=0)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("parametrization", [Householder(), Householder(2), SpectralMargin(0.5), Stiefel("complex")])
@pytest.mark.parametrize("nonlinearity", ["tanh", "modrelu", "oplu"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("form", ["auto", "dense"])
def test_every_layer_agrees_with_single_steps(parametrization, nonlinearity, layers, form):
    options = {"nonlinearity": nonlinearity, "learn_h0": True, "gain": 1.1, "form": form, "dtype": torch.float64}
    core = OrthogonalRNN(INPUT, 6, layers, parametrization=parametrization, **options)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    target = torch.randn(T, B, 6, dtype=torch.float64)

    def loss(out):
        return (out - target)[2:].abs().square().sum()

    found = hidden_gradient_norms(core, inputs, loss)
    assert found.shape == (layers, T)
    torch.testing.assert_close(found, by_hand(core, inputs, loss), rtol=tolerance(torch.float64, 1000), atol=0)
    assert all(parameter.grad is None for parameter in core.parameters())
    assert core._traces is None


@pytest.mark.parametrize("parametrization", [Householder(2), Stiefel("complex")])
def test_a_linear_transition(parametrization):
    options = {"nonlinearity": "tanh", "linear_transition": True, "gain": 0.9, "dtype": torch.float64}
    core = OrthogonalRNN(INPUT, 6, 2, parametrization=parametrization, **options)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)

    def loss(out):
        return out[2:].abs().square().sum()

    found = hidden_gradient_norms(core, inputs, loss)
    torch.testing.assert_close(found, by_hand(core, inputs, loss), rtol=tolerance(torch.float64, 1000), atol=0)


@pytest.mark.parametrize("make", [GORU, PeepholeLSTM, DeltaRNN])
@pytest.mark.parametrize("output", ["all", "last"])
def test_gated_networks_by_steps_are_themselves(make, output):
    """What the loss sees is what the network says, for plain and packed inputs; dL/dh_T is the gradient there."""
    core = make(INPUT, N).double()
    model = SequenceModel(core, nn.Linear(N, 1).double(), output=output)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    seen = []
    for x in (inputs, pack_padded_sequence(inputs, torch.tensor([3, T, 1]), enforce_sorted=False)):
        norms = hidden_gradient_norms(model, x, lambda out: seen.append(out.detach()) or out.sum())
        torch.testing.assert_close(seen[-1], model(x).detach(), rtol=1e-12, atol=1e-14)
        assert norms.shape == (1, T)
        assert (norms > 0).all()
    assert "forward" not in vars(core)


def test_the_other_direction_and_packed_sequences():
    core = OrthogonalRNN(INPUT, N, parametrization=Householder(3), nonlinearity="tanh", bidirectional=True).double()
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    c = torch.randn(2 * N, dtype=torch.float64)
    found = hidden_gradient_norms(core, inputs, lambda out: (out @ c).sum())
    backwards = OrthogonalRNN(INPUT, N, parametrization=Householder(3), nonlinearity="tanh").double()
    backwards.load_state_dict({k.replace("_reverse", ""): v for k, v in core.state_dict().items() if "_reverse" in k})
    alone = hidden_gradient_norms(backwards, inputs.flip(0), lambda out: (out @ c[N:]).sum())
    torch.testing.assert_close(found[1:], alone.flip(1), rtol=tolerance(torch.float64, 100), atol=0)

    lengths = [T, 4, 1]
    packed = pack_padded_sequence(inputs, torch.tensor(lengths))
    found = hidden_gradient_norms(core, packed, lambda out: (out.data @ c).sum())
    squares = torch.zeros(2, T, dtype=torch.float64)
    for b, length in enumerate(lengths):
        squares[:, :length] += hidden_gradient_norms(core, inputs[:length, b : b + 1], lambda out: (out @ c).sum()) ** 2
    torch.testing.assert_close(found, (squares / B).sqrt(), rtol=tolerance(torch.float64, 100), atol=0)


def test_a_matrix_state_by_hand():
    """Products of I - beta k k' as matrices; every S_t is a tensor that the outputs and S_{t+1} are made of."""
    core = DeltaRNN(INPUT, 6, heads=2, key_size=4, updates=2, gate="diagonal", learn_h0=True, dtype=torch.float64)
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    target = torch.randn(T, B, 6, dtype=torch.float64)

    def loss(out):
        return (out - target)[2:].square().sum()

    maps = {name: inputs @ getattr(core, f"weight_{name}_l0").mT for name in ("q", "k", "v", "beta", "gate")}
    maps = {name: made + getattr(core, f"bias_{name}_l0") for name, made in maps.items()}
    q, k, v = maps["q"].view(T, B, 2, 4), maps["k"].view(T, B, 2, 2, 4), maps["v"].view(T, B, 2, 2, 3)
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    beta, gate = 1 - maps["beta"].view(T, B, 2, 2).cos(), 1 / (1 + maps["gate"].view(T, B, 2, 4).square())
    S, states, outs = core.h0.expand(B, -1, -1, -1), [], []
    for t in range(T):
        S = gate[t, :, :, :, None] * S
        for i in range(2):
            kk = k[t, :, i, :, :, None] * k[t, :, i, :, None, :]
            W = torch.eye(4, dtype=torch.float64) - beta[t, :, i, :, None, None] * kk
            S = W @ S + beta[t, :, i, :, None, None] * k[t, :, i, :, :, None] * v[t, :, i, :, None, :]
        states.append(S)
        outs.append((q[t, :, :, None] @ S).flatten(1))
    grads = torch.autograd.grad(loss(torch.stack(outs)), states)
    expected = torch.stack([g.norm() for g in grads]) / B**0.5
    found = hidden_gradient_norms(core, inputs, loss)
    torch.testing.assert_close(found, expected.detach()[None], rtol=tolerance(torch.float64, 1000), atol=0)
    alone = hidden_gradient_norms(core, inputs[:, 0], lambda out: out.square().sum())
    one = hidden_gradient_norms(core, inputs[:, :1], lambda out: out.square().sum())
    torch.testing.assert_close(alone, one, rtol=tolerance(torch.float64, 1000), atol=0)
    assert all(parameter.grad is None for parameter in core.parameters())


def test_the_gradient_of_a_matrix_state_keeps_its_norm_through_reflections():
    core = DeltaRNN(INPUT, 6, heads=2, updates=2, beta=2.0, dtype=torch.float64)
    norms = hidden_gradient_norms(core, torch.randn(100, B, INPUT, dtype=torch.float64), "last")
    torch.testing.assert_close(norms, norms[:, -1:].expand(1, 100), rtol=tolerance(torch.float64, 10_000), atol=0)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_last_state_of_torchs_layers(make):
    """dL/dh_T is the gradient at the last output; parameters are left without gradients, the module as it was."""
    core = make(INPUT, N)
    inputs = torch.randn(T, B, INPUT)
    norms = hidden_gradient_norms(core, inputs, lambda out: out[-1].square().sum())
    last = core(inputs)[0][-1].detach()
    torch.testing.assert_close(float(norms[0, -1]), float(2 * last.norm() / B**0.5), rtol=1e-5, atol=0)
    assert norms.shape == (1, T)
    assert all(parameter.grad is None for parameter in core.parameters())
    assert "forward" not in vars(core)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_packed_sequences_through_torchs_layers(make):
    core = make(INPUT, N).double()
    inputs, lengths = torch.randn(T, B, INPUT, dtype=torch.float64), [4, T, 1]
    packed = pack_padded_sequence(inputs, torch.tensor(lengths), enforce_sorted=False)
    found = hidden_gradient_norms(core, packed, lambda out: out.data.square().sum())
    squares = torch.zeros(1, T, dtype=torch.float64)
    for b, length in enumerate(lengths):
        alone = hidden_gradient_norms(core, inputs[:length, b : b + 1], lambda out: out.square().sum())
        squares[:, :length] += alone**2
    torch.testing.assert_close(found, (squares / B).sqrt(), rtol=tolerance(torch.float64, 1000), atol=0)
    model = SequenceModel(core, nn.Linear(N, 1).double())
    seen = []
    hidden_gradient_norms(model, packed, lambda out: seen.append(out) or out.sum())
    torch.testing.assert_close(seen[0], model(packed), rtol=1e-12, atol=1e-14)


def test_torchs_rnn_and_ours_agree():
    theirs = nn.RNN(INPUT, N).double()
    ours = OrthogonalRNN(INPUT, N, parametrization=SpectralMargin(None), nonlinearity="tanh").double()
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    for loss in ("last", "total", lambda out: out[3].sum()):
        one, other = hidden_gradient_norms(theirs, inputs, loss), hidden_gradient_norms(ours, inputs, loss)
        torch.testing.assert_close(one, other, rtol=tolerance(torch.float64, 1000), atol=1e-14)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("output", ["all", "last"])
def test_whole_models(name, output):
    """The gradient at the last state, through the head alone; normalized, each row's largest entry is 1."""
    model = build(name, INPUT, 3, hidden_size=6, output=output).double()
    inputs = torch.randn(T, B, INPUT, dtype=torch.float64)
    norms = hidden_gradient_norms(model, inputs, "last")
    prediction = model(inputs).detach()
    if name == "blocks":  # between its states and the head there are gates
        assert norms.shape == (2, T)
        assert bool((norms > 0).all())
        return
    last = prediction[-1] if output == "all" else prediction
    torch.testing.assert_close(norms[0, -1], (last @ model.head.weight.detach()).norm() / B**1.5, rtol=1e-9, atol=0)
    scaled = hidden_gradient_norms(model, inputs, "last", normalize=True)
    torch.testing.assert_close(scaled, norms / norms.max(), rtol=1e-12, atol=0)
    total = hidden_gradient_norms(model, inputs, "total")
    if output == "last":
        assert torch.equal(total, norms)
    else:
        assert not torch.allclose(total, norms)


def test_the_gradient_of_an_orthogonal_linear_network_keeps_its_norm():
    """Margin 0 without nonlinearity: flat, as in vorontsov2017, Fig. 4; singular values below 1: it decays with t."""
    inputs = torch.randn(200, B, INPUT, dtype=torch.float64)
    for margin, ratio in ((0.0, 1.0), (None, 0.9**199)):
        core = OrthogonalRNN(
            INPUT, N, parametrization=SpectralMargin(margin), nonlinearity="identity", dtype=torch.float64
        )
        if margin is None:
            nn.init.constant_(core.transition_l0.spectrum, 0.9)
        norms = hidden_gradient_norms(core, inputs, "last")[0]
        assert float(norms[0] / norms[-1]) == pytest.approx(ratio, rel=1e-10)


def test_clipping_inside_back_propagation_is_seen():
    core = OrthogonalRNN(INPUT, N, nonlinearity="identity", clip_backward=1e-3)
    norms = hidden_gradient_norms(core, torch.randn(T, B, INPUT), lambda out: 1e3 * out[-1].sum())[0]
    assert norms[-1] > 1e3
    # every entry of dL/da is clipped, so every state before gets at most ||W|| 1e-3 sqrt(N)
    assert (norms[:-1] <= 1e-3 * math.sqrt(N) * (1 + tolerance(torch.float32, N))).all()


def test_after_the_loss_there_is_no_gradient():
    core = OrthogonalRNN(INPUT, N, parametrization=Householder(reflections=2))
    norms = hidden_gradient_norms(core, torch.randn(T, B, INPUT), lambda out: out[3].sum())[0]
    assert (norms[:4] > 0).all()
    assert not norms[4:].any()


def test_a_frozen_network_can_be_looked_into():
    core = OrthogonalRNN(INPUT, N).requires_grad_(False)
    with torch.no_grad():
        assert (hidden_gradient_norms(core, torch.randn(T, B, INPUT)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_error_and_singular_values(dtype):
    Q = torch.linalg.qr(torch.randn(6, 4, dtype=dtype))[0]
    assert orthogonality_error(Q) < tolerance(dtype.to_real(), 6)
    assert orthogonality_error(2 * Q) == pytest.approx(3 * 2, rel=1e-5)  # ||3 I_4||_F
    torch.testing.assert_close(
        singular_values(Q * torch.tensor([1, -3, 2, 0.5])), torch.tensor([3, 2, 1, 0.5]).double(), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("make", [nn.GRU, GORU, ReflectionRNN], ids=lambda make: make.__name__)
def test_a_model_may_name_its_arguments(make):
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core = make(INPUT, N)

        def forward(self, x):
            return self.core(input=x, hx=torch.ones(1, x.shape[1], N))[0]

    model, x = Named(), torch.randn(T, B, INPUT)
    found = hidden_gradient_norms(model, x, lambda out: out[-1].sum())
    model.forward = lambda x: model.core(x, torch.ones(1, x.shape[1], N))[0]
    torch.testing.assert_close(found, hidden_gradient_norms(model, x, lambda out: out[-1].sum()))
    assert found.shape == (1, T)
    if make is not nn.GRU:
        model.forward = lambda x: model.core(x, h0=torch.ones(1, x.shape[1], N))[0]
        torch.testing.assert_close(found, hidden_gradient_norms(model, x, lambda out: out[-1].sum()))


@pytest.mark.parametrize("loss", ["last", "total"])
def test_the_batch_may_be_the_first_dimension(loss):
    """T, B and the number of outputs are different, so that a wrong axis is another number."""
    plain = OrthogonalRNN(INPUT, N, nonlinearity="tanh", dtype=torch.float64)
    core = OrthogonalRNN(INPUT, N, nonlinearity="tanh", batch_first=True, dtype=torch.float64)
    core.load_state_dict(plain.state_dict())
    x = torch.randn(T, B, INPUT, dtype=torch.float64)
    found = hidden_gradient_norms(core, x.transpose(0, 1), loss)
    torch.testing.assert_close(found, hidden_gradient_norms(plain, x, loss), rtol=tolerance(torch.float64, 100), atol=0)
    states = plain(x)[0].detach()
    torch.testing.assert_close(found[0, -1], states[-1].norm() / B**1.5, rtol=tolerance(torch.float64, 100), atol=0)


class _Wrapped(nn.Module):
    """A model around a network, without an attribute that tells the order of its dimensions."""

    def __init__(self, core, outputs=lambda states: states):
        super().__init__()
        self.core, self.outputs = core, outputs

    def forward(self, x):
        return self.outputs(self.core(x)[0])


@pytest.mark.parametrize("loss", ["last", "total"])
def test_a_model_has_the_order_of_the_network_in_it(loss):
    """Those with the batch first were read as time-major, and the last sequence as the last step."""
    core = OrthogonalRNN(INPUT, N, nonlinearity="tanh", batch_first=True, dtype=torch.float64)
    x = torch.randn(B, T, INPUT, dtype=torch.float64)
    found = hidden_gradient_norms(_Wrapped(core), x, loss)
    torch.testing.assert_close(found, hidden_gradient_norms(core, x, loss))
    turned = _Wrapped(core, lambda states: states.transpose(0, 1))
    with pytest.raises(ArgumentError, match=rf"output \(B, T, O\) of {B} sequences .* a shape of \({T}, {B}, {N}\)"):
        hidden_gradient_norms(turned, x, loss)
    turned.batch_first = False
    torch.testing.assert_close(hidden_gradient_norms(turned, x, loss), found)
    horizon = _Wrapped(OrthogonalRNN(INPUT, N), lambda states: states[-1].view(B, 1, N))  # of a forecast
    with pytest.raises(ArgumentError, match="Pass a function as loss"):
        hidden_gradient_norms(horizon, torch.randn(T, B, INPUT), loss)


@pytest.mark.parametrize("make", [GORU, PeepholeLSTM, ReflectionRNN, DeltaRNN, nn.RNN, nn.GRU, nn.LSTM])
def test_a_frozen_network_by_steps_has_the_norms_of_a_trained_one(make):
    core = make(INPUT, N)
    x = torch.randn(T, B, INPUT)
    norms = hidden_gradient_norms(core, x)
    torch.testing.assert_close(hidden_gradient_norms(core.requires_grad_(False), x), norms, rtol=0, atol=0)


def test_no_sequence_has_no_norm():
    with pytest.raises(ArgumentError, match="Expected at least one sequence, but got B = 0"):
        hidden_gradient_norms(OrthogonalRNN(INPUT, N), torch.randn(T, 0, INPUT))


def test_a_layer_without_gradient_stays_zero_when_normalized():
    core = OrthogonalRNN(INPUT, N, 2, nonlinearity="tanh")
    norms = hidden_gradient_norms(core, torch.randn(T, B, INPUT), lambda out: 0 * out.sum(), normalize=True)
    assert torch.equal(norms, torch.zeros(2, T, dtype=torch.float64))


@pytest.mark.parametrize("make", [nn.GRU, nn.LSTM, GORU], ids=lambda make: make.__name__)
def test_initial_states_of_packed_sequences_are_in_the_order_of_the_user(make):
    core, lengths = make(INPUT, N).double(), [4, T, 1]
    x, h = torch.randn(T, B, INPUT, dtype=torch.float64), torch.randn(1, B, N, dtype=torch.float64)

    class Started(nn.Module):
        def __init__(self, h) -> None:
            super().__init__()
            self.core, self.h = core, h

        def forward(self, x):
            return self.core(x, (self.h, 0.5 * self.h) if make is nn.LSTM else self.h)[0]

    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    found = hidden_gradient_norms(Started(h), packed, lambda out: out.data.square().sum())
    squares = torch.zeros(1, T, dtype=torch.float64)
    for b, length in enumerate(lengths):
        alone = Started(h[:, b : b + 1])
        squares[:, :length] += hidden_gradient_norms(alone, x[:length, b : b + 1], lambda out: out.square().sum()) ** 2
    torch.testing.assert_close(found, (squares / B).sqrt(), rtol=tolerance(torch.float64, 1000), atol=0)


def test_what_has_no_numbers_has_no_singular_values():
    for value in (math.nan, math.inf):
        with pytest.raises(NonFiniteError, match="Expected W to be finite"):
            singular_values(torch.full((2, 2), value))
    for function in (orthogonality_error, singular_values):
        with pytest.raises(DeviceError, match="on meta"):
            function(torch.eye(3, device="meta"))


def test_a_complex_matrix_is_compared_with_its_conjugate():
    """i times a unitary matrix is unitary; its transpose times itself is minus one."""
    Q = 1j * torch.eye(3, dtype=torch.complex128)
    assert orthogonality_error(Q) == 0
    assert orthogonality_error(torch.eye(3, 2, dtype=torch.float64)) == 0
    assert orthogonality_error(torch.eye(2, 3, dtype=torch.float64)) == pytest.approx(1)


def test_what_cannot_be_looked_into_is_named():
    x = torch.randn(T, B, INPUT)
    with pytest.raises(ArgumentError, match=r"to contain an OrthogonalRNN.*but got Linear"):
        hidden_gradient_norms(nn.Linear(INPUT, 3), x)
    for core in (
        nn.LSTM(INPUT, N, 2),
        nn.GRU(INPUT, N, bidirectional=True),
        nn.GRU(INPUT, N, batch_first=True),
        nn.LSTM(INPUT, N, proj_size=2),
        DeltaRNN(INPUT, N, 2),
    ):
        with pytest.raises(ArgumentError, match="one layer and direction"):
            hidden_gradient_norms(core, x)
        assert "forward" not in vars(core)
        first = nn.GRU(INPUT, INPUT)
        with pytest.raises(ArgumentError, match="one layer and direction"):
            hidden_gradient_norms(nn.Sequential(first, core), x)
        assert "forward" not in vars(first)
    with pytest.raises(ArgumentError, match="Did you mean 'last'"):
        hidden_gradient_norms(OrthogonalRNN(INPUT, N), x, "lst")
    packed = pack_padded_sequence(x, torch.tensor([T, 3, 2]))
    with pytest.raises(ArgumentError, match="loss to be a function"):
        hidden_gradient_norms(OrthogonalRNN(INPUT, N), packed)
    for function in (orthogonality_error, singular_values):
        with pytest.raises(ShapeError, match="to be a matrix"):
            function(torch.zeros(3, 3, 2))


def test_a_network_keeps_the_forward_that_another_library_gave_it():
    gru = nn.GRU(INPUT, N)
    calls, forward = [], gru.forward
    gru.forward = lambda *given: calls.append(1) or forward(*given)
    own = gru.forward
    hidden_gradient_norms(gru, torch.randn(T, B, INPUT))
    assert len(calls) == T
    assert gru.forward is own
    plain = nn.GRU(INPUT, N)
    hidden_gradient_norms(plain, torch.randn(T, B, INPUT))
    assert "forward" not in vars(plain)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("loss", ["last", "total"])
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("make", [OrthogonalRNN, GORU, nn.GRU])
def test_a_sequence_without_batch_is_a_batch_of_one(make, output, loss):
    net, x = make(2, 5, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.output = net, output

        def forward(self, x):
            out = self.net(x)[0]
            return out[-1] if output == "last" else out

    model = net if output == "all" else Model()
    found, expected = hidden_gradient_norms(model, x, loss), hidden_gradient_norms(model, x.unsqueeze(1), loss)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance(torch.float64, 70))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [OrthogonalRNN, GORU, DeltaRNN, nn.GRU])
def test_a_compiled_model_has_the_norms_of_the_model(make):
    """In a graph the traced tensors are outputs like the loss's, without a gradient from it: all norms would be 0."""
    net, x = make(2, 6, dtype=torch.float64), torch.randn(7, 3, 2, dtype=torch.float64)
    expected = hidden_gradient_norms(net, x)
    compiled = torch.compile(net, backend="aot_eager")
    torch.testing.assert_close(hidden_gradient_norms(compiled, x), expected, rtol=0, atol=0)
    compiled(x)  # a graph of it that was recorded without a trace must not serve either
    torch.testing.assert_close(hidden_gradient_norms(compiled, x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", [OrthogonalRNN, GORU, nn.LSTM])
@pytest.mark.parametrize("packed", [False, True])
def test_a_validation_loop_in_inference_mode_may_ask(make, packed):
    net = make(2, 5, dtype=torch.float64)
    with torch.inference_mode():
        x = torch.randn(7, 3, 2, dtype=torch.float64)
        inputs = pack_padded_sequence(x, torch.tensor([7, 4, 2])) if packed else x
        found = hidden_gradient_norms(net, inputs, lambda out: (out.data if packed else out).square().sum())
        x = x.clone()
    x = x.clone()
    inputs = pack_padded_sequence(x, torch.tensor([7, 4, 2])) if packed else x
    expected = hidden_gradient_norms(net, inputs, lambda out: (out.data if packed else out).square().sum())
    assert torch.equal(found, expected)


def test_what_a_loss_returns_and_resets_of_networks_by_steps():
    net, x = OrthogonalRNN(2, 5), torch.randn(7, 3, 2)
    with pytest.raises(ArgumentError, match="Expected loss to return a tensor with one element, but got float"):
        hidden_gradient_norms(net, x, lambda out: 3.0)
    with pytest.raises(ArgumentError, match=r"one element, but got shape \(7, 3, 5\)\. Return its mean"):
        hidden_gradient_norms(net, x, lambda out: out)

    class Model(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x, reset=torch.zeros(7, 3, dtype=torch.bool))[0]

    for one in (GORU(2, 5), DeltaRNN(2, 4)):
        with pytest.raises(ArgumentError, match="without reset, but got a mask"):
            hidden_gradient_norms(Model(one), x)


class Loop(nn.Module):
    """A model that calls a cell, or a network's step, once per step."""

    def __init__(self, core, call):
        super().__init__()
        self.core, self.call = core, call

    def forward(self, x):
        h = None
        for row in x:
            h = self.call(self.core, row, h)
        return h


@pytest.mark.parametrize(
    ("core", "call"),
    [
        (OrthogonalRNNCell(INPUT, N), lambda core, x, h: core(x, h)),
        (OrthogonalRNN(INPUT, N), lambda core, x, h: core.step(x, h)[1]),
        (nn.LSTM(INPUT, N), lambda core, x, h: x),
    ],
    ids=["cell", "step", "unused"],
)
def test_a_network_that_is_not_called_on_a_sequence_is_named(core, call):
    kind = "LSTM" if isinstance(core, nn.LSTM) else "OrthogonalRNN"
    with pytest.raises(ArgumentError, match=f"calls its {kind} on a whole sequence, but got Loop, .*step"):
        hidden_gradient_norms(Loop(core, call), torch.randn(T, B, INPUT))


class Pair(nn.Module):
    """Two networks; the second reads the states from a step on, or is not called."""

    def __init__(self, second, start):
        super().__init__()
        self.first, self.second, self.start = OrthogonalRNN(INPUT, N), second, start

    def forward(self, x):
        states = self.first(x)[0]
        return states if self.start is None else self.second(states[self.start :])[0]


@pytest.mark.parametrize("second", [OrthogonalRNN(N, N), nn.GRU(N, N)], ids=["ours", "theirs"])
def test_networks_of_unequal_length_are_refused_and_unused_ones_have_no_row(second):
    inputs = torch.randn(T, B, INPUT)
    with pytest.raises(ArgumentError, match=f"equally many steps, but got {T - 2} and {T} steps"):
        hidden_gradient_norms(Pair(second, 2), inputs)
    assert hidden_gradient_norms(Pair(second, 0), inputs).shape == (2, T)
    assert hidden_gradient_norms(Pair(second, None), inputs).shape == (1, T)


def test_a_sequence_without_steps():
    assert hidden_gradient_norms(OrthogonalRNN(2, 3), torch.zeros(0, 2, 2)).shape == (1, 0)
    for stepwise in (GORU(2, 3), PeepholeLSTM(2, 3), ReflectionRNN(2, 3)):
        with pytest.raises(ArgumentError, match=f"Expected a {type(stepwise).__name__} to read at least one step"):
            hidden_gradient_norms(stepwise, torch.zeros(0, 2, 2))


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (lambda output: torch.tensor(1.0), "does not depend on it"),
        (lambda output: output.sum() * 1j, "a complex number"),
    ],
    ids=["constant", "complex"],
)
def test_a_loss_of_which_there_is_no_gradient_is_named(loss, got):
    with pytest.raises(ArgumentError, match=got):
        hidden_gradient_norms(OrthogonalRNN(2, 3), torch.randn(4, 2, 2), loss=loss)
