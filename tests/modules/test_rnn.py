"""OrthogonalRNN beyond torch.nn.RNN: complex states, the last output, gain, folding, autocast."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import orthornn
from orthornn import (
    Givens,
    Householder,
    LeakyHouseholder,
    OrthogonalRNN,
    OrthogonalRNNCell,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    activations,
)
from orthornn.errors import ArgumentError, DTypeError, ReadOnlyError, ShapeError, TransformError
from orthornn.kernels.backends import CPP
from orthornn.kernels.backends.cpp import extension
from orthornn.modules.transition import Transition
from support.against_oracle import BACKENDS
from support.tolerances import tolerance
from support.versions import TORCH

T, B, I, N = 7, 3, 2, 6
REAL = [
    Householder(),
    Householder(reflections=2),
    Householder(reflections=2, base="rotations"),
    ScaledCayley(negatives=3),
    SpectralMargin(margin=0.1),
    Stiefel(),
    Unconstrained(),
]
COMPLEX = [
    Householder(field="complex"),
    Householder(reflections=2, field="complex", base="rotations"),
    ScaledCayley(field="complex"),
    Stiefel(field="complex"),
]
EVERY = pytest.mark.parametrize("parametrization", REAL + COMPLEX, ids=repr)
EXACT = tolerance(torch.float64, T * N * 10)
PACKAGE = os.path.dirname(orthornn.__file__)


def network(parametrization, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return OrthogonalRNN(I, N, parametrization=parametrization, dtype=dtype, **options)


def inputs(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


@pytest.mark.sampled(75)
@EVERY
@pytest.mark.parametrize("nonlinearity", ["modrelu", "tanh", "oplu", "scaled_tanh", "prelu"])
@pytest.mark.parametrize("form", ["auto", "dense"])
def test_equals_a_step_loop(parametrization, nonlinearity, form):
    """A loop in the network's own field: complex arithmetic for a complex one (mhammedi2017, section 3)."""
    net = network(parametrization, nonlinearity=nonlinearity, form=form, gain=0.97, num_layers=2)
    x = inputs(T, B, I)
    out, h_n = net(x)
    phi = net.activation
    for k in range(2):
        W, V = getattr(net, f"weight_hh_l{k}"), getattr(net, f"weight_ih_l{k}")
        bias, own = getattr(net, f"bias_ih_l{k}"), getattr(net, f"activation_l{k}")
        if net.is_complex:
            V = torch.view_as_complex(V)
            x = x.to(V.dtype)
        modrelu = "modrelu" in phi.name
        if net.is_complex and not modrelu:
            bias = torch.view_as_complex(bias)
        h, states = torch.zeros(B, N, dtype=x.dtype), []
        for x_t in x:
            a = 0.97 * h @ W.mT + x_t @ V.mT + (0 if modrelu else bias)
            if net.is_complex and modrelu:
                h = torch.relu(a.abs() + bias) * a / a.abs()
            elif net.is_complex:
                real, imaginary = phi(torch.cat([a.real, a.imag], dim=-1), own).chunk(2, dim=-1)
                h = torch.complex(real, imaginary)
            else:
                h = phi(a, bias if modrelu else own)
            states.append(h)
        x = torch.stack(states)
        torch.testing.assert_close(h_n[k], x[-1], rtol=0, atol=EXACT)
    torch.testing.assert_close(out, x, rtol=0, atol=EXACT)


@EVERY
def test_gradients_against_autograd_through_the_step_function(parametrization):
    net = network(parametrization, learn_h0=True, learn_gain=True, gain=0.95, num_layers=2)
    x = inputs(T, B, I).requires_grad_()
    weights = inputs(T, B, N) + (1j * inputs(T, B, N, dtype=torch.float64) if net.is_complex else 0)
    leaves = [x, *net.parameters()]
    out, _ = net(x)
    found = torch.autograd.grad((out * weights).real.sum(), leaves)
    h, outs = None, []
    for x_t in x.unbind(0):
        step_out, h = net.step(x_t, h)
        outs.append(step_out)
    torch.testing.assert_close(torch.stack(outs), out, rtol=0, atol=EXACT)
    expected = torch.autograd.grad((torch.stack(outs) * weights).real.sum(), leaves)
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=EXACT, atol=EXACT * float(1 + theirs.abs().max()))


@pytest.mark.parametrize("options", [{}, {"nonlinearity": "modrelu"}, {"linear_transition": True}], ids=str)
@pytest.mark.parametrize("parametrization", [REAL[0], COMPLEX[1]], ids=repr)
def test_steps_clip_the_gradient_as_whole_sequences_do(parametrization, options):
    options = {"nonlinearity": "relu", "gain": 0.95, "learn_gain": True, "num_layers": 2, **options}
    net = network(parametrization, clip_backward=0.05, **options)
    x, leaves = inputs(T, B, I), [*net.parameters()]

    def stepped():
        h, outs = None, []
        for x_t in x:
            out, h = net.step(x_t, h)
            outs.append(out)
        return torch.stack(outs)

    found, expected = (
        torch.autograd.grad(out.abs().square().sum(), leaves, allow_unused=True, materialize_grads=True)
        for out in (stepped(), net(x)[0])
    )
    net.clip_backward = None
    plain = torch.autograd.grad(stepped().abs().square().sum(), leaves, allow_unused=True, materialize_grads=True)
    assert any((a - b).abs().max() > 0.1 for a, b in zip(plain, expected) if a.numel())  # clipping changes them
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=EXACT, atol=EXACT * float(1 + theirs.abs().max()))
    net.clip_backward = 0.05
    loss = stepped().abs().square().sum()
    with pytest.raises(TransformError, match="Expected no clip"):
        torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    with pytest.raises(TransformError, match="Expected no clip"):
        torch.func.grad(lambda x: net.step(x)[0].abs().sum())(x[0])


@pytest.mark.parametrize("parametrization", [REAL[0], REAL[2], COMPLEX[1]], ids=repr)
def test_complex_or_real_inputs_and_states(parametrization):
    net = network(parametrization)
    if not net.is_complex:
        with pytest.raises(DTypeError, match="field='complex'"):
            net(torch.randn(T, B, I, dtype=torch.complex128))
        with pytest.raises(DTypeError, match="real"):
            net(inputs(T, B, I), torch.zeros(1, B, N, dtype=torch.complex128))
        return
    real, zero = inputs(T, B, I), torch.zeros(T, B, I, dtype=torch.float64)
    torch.testing.assert_close(net(torch.complex(real, zero))[0], net(real)[0], rtol=0, atol=EXACT)
    rotated = net(1j * real, 1j * torch.ones(1, B, N))[0]
    torch.testing.assert_close(rotated, 1j * net(real, torch.ones(1, B, N))[0], rtol=0, atol=EXACT)


def test_a_linear_network_does_not_build_W_where_rotations_cannot_pay():
    rnn = network(Householder(reflections=2), nonlinearity="identity")
    built = []
    rnn.transition_l0.method.register_forward_hook(lambda *_: built.append(True))
    rnn(inputs(T, B, I))[0].sum().backward()
    assert rnn.transition_l0.reflectors.grad.abs().max() > 0
    assert not built


@pytest.mark.parametrize("parametrization", [REAL[1], COMPLEX[0]], ids=repr)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("nonlinearity", ["modrelu", "oplu"])
def test_last_output(parametrization, bidirectional, nonlinearity):
    net = network(parametrization, num_layers=2, bidirectional=bidirectional, nonlinearity=nonlinearity)
    x = inputs(T, B, I).requires_grad_()
    packed = pack_padded_sequence(x, torch.tensor([3, 7, 1]), enforce_sorted=False)
    for given in (x, packed):
        _, h_n = net(given)
        last, also_h_n = net(given, output="last")
        torch.testing.assert_close(also_h_n, h_n, rtol=0, atol=EXACT)
        directions = h_n.view(2, -1, B, N)[1]
        torch.testing.assert_close(last, torch.cat(directions.unbind(0), dim=-1), rtol=0, atol=EXACT)
        leaves = [x, *net.parameters()]
        mine = torch.autograd.grad(last.abs().square().sum(), leaves, retain_graph=True)
        theirs = torch.autograd.grad(directions.abs().square().sum(), leaves, retain_graph=True)
        for a, b in zip(mine, theirs):
            torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("parametrization", REAL, ids=repr)
def test_bfloat16_weights(parametrization):
    half = network(parametrization).bfloat16()
    out = half(inputs(T, B, I).bfloat16())[0]
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
    assert half.weight_hh_l0.dtype == torch.float32


@EVERY
def test_autocast_keeps_the_transition_in_float32(parametrization):
    net = network(parametrization, dtype=torch.float32)
    x = inputs(T, B, I, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net.weight_hh_l0.dtype in (torch.float32, torch.complex64)
        under, h_n = net(x.bfloat16())
    plain = net(x.bfloat16().float())[0]
    if net.is_complex:  # complex numbers have no 16-bit form
        assert torch.equal(under, plain)
    else:  # V and the projected rows are rounded, once each, and the states that are returned; not what is carried on
        assert under.dtype == h_n.dtype == torch.bfloat16
        largest = max(float(plain.detach().abs().max()), float(x.abs().max()))
        rounding = torch.finfo(torch.bfloat16).eps / 2
        assert float((under - plain).detach().abs().max()) < (2 * T * I + 1) * rounding * largest
    under.abs().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())


@EVERY
def test_fold(parametrization):
    net = network(parametrization, num_layers=2, bidirectional=True, gain=0.9, learn_gain=True)
    folded = net.fold()
    x = inputs(T, B, I)
    torch.testing.assert_close(folded(x)[0], net(x)[0], rtol=0, atol=EXACT)
    assert type(folded.transition_l0.method).__name__ != "Householder"
    assert not folded.learn_gain
    folded.load_state_dict(folded.state_dict())


def test_a_folded_network_is_in_the_mode_of_the_network_and_as_frozen():
    net = network(Householder()).eval()
    net.transition_l0.requires_grad_(False)
    folded = net.fold()
    assert not any(module.training for module in folded.modules())
    assert not folded.transition_l0.weight.requires_grad
    assert folded.weight_ih_l0.requires_grad
    assert all(p.requires_grad for p in network(Householder()).fold().parameters())


def test_weight_is_cached_without_gradient_and_renewed_after_an_update():
    net = network(Householder(reflections=3))
    with torch.no_grad():
        W = net.weight_hh_l0
        cached = net.transition_l0.cached_matrix()
        assert net.transition_l0.cached_matrix() is cached
        assert net.weight_hh_l0 is not cached  # a copy, whose reader may change it
        assert torch.equal(cached, W)
    assert net.transition_l0.cached_matrix() is not cached
    torch.optim.SGD(net.parameters(), lr=0.1).zero_grad()
    net(inputs(T, B, I))[0].square().sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    with torch.no_grad():
        assert not torch.equal(net.weight_hh_l0, W)
    with pytest.raises(AttributeError, match="weight_hh_l3"):
        net.weight_hh_l3  # noqa: B018


def test_loading_what_torch_saved():
    peer = torch.nn.RNN(I, N, num_layers=2)
    ours = OrthogonalRNN(I, N, 2, nonlinearity="tanh")
    with pytest.raises(RuntimeError, match="weight_hh_l0 cannot be represented by LeakyHouseholder") as refused:
        ours.load_state_dict(peer.state_dict())
    assert "key" not in str(refused.value)  # nothing is missing or unexpected: that is the one reason
    for name, parameter in peer.named_parameters():
        if "weight_hh" in name:
            torch.nn.init.orthogonal_(parameter)
    state = peer.state_dict()
    ours.load_state_dict(state)
    assert set(state) == set(peer.state_dict())
    x = inputs(T, B, I, dtype=torch.float32)
    torch.testing.assert_close(ours(x)[0], peer(x)[0], rtol=0, atol=tolerance(torch.float32, T * N))
    with pytest.raises(RuntimeError, match="biases"):
        OrthogonalRNN(I, N, 2, nonlinearity="modrelu").load_state_dict(peer.state_dict())


def test_learned_h0_and_empty_sequences():
    net = network(Householder(reflections=2), learn_h0=True)
    out, h_n = net(inputs(0, B, I))
    assert out.shape == (0, B, N)
    assert torch.equal(h_n[0], net.h0[0].expand(B, N))
    out, h_n = net(inputs(T, 0, I))
    assert out.shape == (T, 0, N)
    assert h_n.shape == (1, 0, N)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compile_by_the_default_backend():
    """It writes C++ for what builds W, which a compiler must accept on a processor with vectors."""
    torch._dynamo.reset()
    net, x = OrthogonalRNN(2, 4), torch.randn(6, 3, 2)
    expected, found = net(x)[0], torch.compile(net, fullgraph=True)(x)[0]
    bound = tolerance(torch.float32, 6 * 4)
    torch.testing.assert_close(found, expected, rtol=0, atol=bound * float(expected.detach().abs().max()))
    gradients = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out in (expected, found)]
    for eager, compiled in zip(*gradients):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=10 * bound * float(1 + eager.abs().max()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("nonlinearity", ["modrelu", "identity"])
def test_compile_with_a_sequence_packed_outside(nonlinearity):
    torch._dynamo.reset()
    net = network(Householder(reflections=2), num_layers=2, bidirectional=True, nonlinearity=nonlinearity)
    packed = pack_padded_sequence(inputs(T, B, I), torch.tensor([3, 7, 1]), enforce_sorted=False)
    # Before torch 2.10 a PackedSequence breaks the graph.
    whole = TORCH >= (2, 10)
    found = torch.compile(net, fullgraph=whole, backend="aot_eager")(packed)
    expected = net(packed)
    torch.testing.assert_close(found[0].data, expected[0].data, rtol=0, atol=EXACT)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=EXACT)


def test_cell_streams_like_the_network():
    torch.manual_seed(0)
    cell = OrthogonalRNNCell(I, N, parametrization=Householder(reflections=2), dtype=torch.float64, learn_h0=True)
    x = inputs(T, B, I)
    expected = cell.rnn(x)[0]
    with torch.no_grad():
        h = None
        for x_t, wanted in zip(x, expected):
            h = cell(x_t, h)
            torch.testing.assert_close(h, wanted, rtol=0, atol=EXACT)
    with pytest.raises(ShapeError, match="B, 2"):
        cell(x)


def test_a_cell_has_the_attributes_of_torchs_cell():
    options = {"bias": False, "nonlinearity": "tanh", "learn_h0": True, "gain": 0.9, "learn_gain": True}
    cell = OrthogonalRNNCell(I, N, parametrization=Givens(), **options)
    for name, value in {"input_size": I, "hidden_size": N, "parametrization": Givens(), **options}.items():
        assert getattr(cell, name) == value
    assert cell.bias_ih is None
    assert {"input_size", "hidden_size", "bias", "nonlinearity"} <= set(dir(cell)) & set(vars(nn.RNNCell(I, N)))
    cell = OrthogonalRNNCell(I, N, nonlinearity="relu", dtype=torch.float64)
    x, h = inputs(B, I), inputs(B, N)
    expected = torch.relu(h @ cell.weight_hh.mT + x @ cell.weight_ih.mT + cell.bias_ih)
    torch.testing.assert_close(cell(x, h), expected, rtol=0, atol=EXACT)
    assert cell.weight_ih is cell.rnn.weight_ih_l0
    for name, value in (("weight_hh", torch.eye(N)), ("weight_ih", nn.Parameter(torch.zeros(N, I))), ("bias_ih", None)):
        with pytest.raises(
            ReadOnlyError, match=rf"^Expected {name} to be set .*, but got \w+\. Set cell\.rnn\.{name}_l0\."
        ):
            setattr(cell, name, value)


def test_bad_arguments():
    for arguments, message in (
        ({"hidden_size": 0}, "hidden_size to be an integer of at least 1, but got 0"),
        ({"num_layers": 0}, "num_layers"),
        ({"dropout": 1.5}, "between 0 and 1"),
        ({"gain": float("inf")}, "gain"),
        ({"nonlinearity": "modrulu"}, r"Did you mean 'modrelu'\?"),
        ({"nonlinearity": "sigmoid"}, r"'tanh', .*but got 'sigmoid'\.$"),  # none is like it
        ({"form": "densse"}, r"'dense'\?"),
        ({"parametrization": "householder"}, "Householder\\(reflections"),
        ({"clip_backward": 0.0}, "clip_backward"),
        ({"parametrization": Householder(reflections=9)}, "reflections"),
        ({"hidden_size": 5, "nonlinearity": "complex_modrelu"}, "even"),
        ({"bidirectional": "no"}, "bidirectional to be True or False, but got 'no'"),
        ({"batch_first": 1}, "batch_first"),
    ):
        with pytest.raises(ArgumentError, match=message):
            OrthogonalRNN(**{"input_size": I, "hidden_size": N, **arguments})
    with pytest.raises(DTypeError, match="field='complex'"):
        OrthogonalRNN(I, N, dtype=torch.complex64)
    with pytest.raises(ArgumentError, match="bidirectional"):
        OrthogonalRNN(I, N, bidirectional=True).step(torch.zeros(1, I))
    with pytest.raises(ArgumentError, match="output"):
        OrthogonalRNN(I, N)(torch.zeros(T, B, I), output="lats")


def test_the_initial_state_goes_by_torchs_name_too():
    net, x, state = OrthogonalRNN(I, N), inputs(T, B, I, dtype=torch.float32), torch.randn(1, B, N)
    for named, given in zip(net(x, hx=state), net(x, state)):
        assert torch.equal(named, given)
    with pytest.raises(ArgumentError, match="Expected one initial state"):
        net(x, state, h0=state)


def test_dropout_that_cannot_act_is_said():
    with pytest.warns(UserWarning, match=r"dropout=0\.5 has no effect with one layer"):
        OrthogonalRNN(I, N, dropout=0.5)


def test_repr_names_what_is_not_default():
    text = repr(OrthogonalRNN(I, N, 2, parametrization=ScaledCayley(negatives=3), batch_first=True, gain=0.9))
    assert "2, 6, num_layers=2, parametrization=ScaledCayley(negatives=3" in text
    assert "nonlinearity='scaled_tanh'" in text
    assert "batch_first=True" in text
    assert "gain=0.9" in text
    assert "dropout" not in text


def test_every_activation_trains_in_a_network():
    x = inputs(T, B, I, dtype=torch.float32)
    for name in activations.ACTIVATIONS:
        net = OrthogonalRNN(I, N, nonlinearity=name)
        net(x)[0].square().sum().backward()
        for parameter_name, parameter in net.named_parameters():
            assert parameter.grad is not None, (name, parameter_name)
            assert parameter.grad.isfinite().all(), (name, parameter_name)


@pytest.mark.parametrize("n", [1, 2, 15, 32, 33, 40])
def test_the_default_transition_is_the_one_that_the_guide_recommends(n):
    expected = LeakyHouseholder(reflections=min(32, n))
    net, cell = OrthogonalRNN(3, n, num_layers=2), OrthogonalRNNCell(3, n)
    assert net.parametrization == cell.rnn.parametrization == expected
    for k in range(2):
        W = getattr(net, f"weight_hh_l{k}").detach()
        squares = torch.linalg.svdvals(W).square().sort(descending=True).values
        remembers = net.get_submodule(f"transition_l{k}").method.memory
        assert float(squares.max()) <= 1 + tolerance(torch.float32, n * n)
        torch.testing.assert_close(squares[: int(remembers.sum())], torch.ones(int(remembers.sum())))
    linear = OrthogonalRNN(3, n, nonlinearity="identity")
    assert linear.parametrization == OrthogonalRNN(3, n, linear_transition=True).parametrization
    assert linear.parametrization == Householder(reflections=min(32, n), base="rotations")
    W = linear.weight_hh_l0.detach()
    torch.testing.assert_close(W @ W.T, torch.eye(n), rtol=0, atol=tolerance(torch.float32, n * n))
    if n > 32:
        angles = torch.linalg.eigvals(net.weight_hh_l0).angle().abs()
        assert (angles < 1e-3).sum() < n // 4  # without a base, n - 32 of them would be 0


def test_initial_values():
    """As reset_parameters says, within a sampling error of four standard deviations."""
    n = 400
    method = Householder(reflections=1)
    net = OrthogonalRNN(50, n, parametrization=method, nonlinearity="modrelu", learn_h0=True, learn_gain=True, gain=0.9)
    bounds = {"weight_ih_l0": n**-0.5, "bias_ih_l0": 0.01, "h0": (1.5 / n) ** 0.5}
    net.reset_parameters()
    for name, bound in bounds.items():
        value = getattr(net, name).detach()
        assert value.abs().max() <= bound
        # The square of U(-b, b) has mean b^2/3 and variance 4 b^4/45.
        error = abs(float(value.square().mean()) / bound**2 - 1 / 3)
        assert error < 4 * (4 / 45 / value.numel()) ** 0.5
    assert net.gain_l0 == torch.tensor(0.9)


@pytest.mark.parametrize("n", [1, 6, 9])
def test_initial_values_of_the_nonlinearity_follow_what_remembers(n):
    for nonlinearity in (None, "scaled_tanh", "prelu"):
        net = OrthogonalRNN(I, n, nonlinearity=nonlinearity)
        memory, phi = net.transition_l0.method.memory, net.activation
        own = torch.where(memory, phi.linear, phi.initial)
        torch.testing.assert_close(net.activation_l0.detach(), own)
        assert not net.bias_ih_l0.any()
    for method in (Householder(), ScaledCayley(field="complex")):
        net = OrthogonalRNN(I, n, parametrization=method)  # the default, where all units are of one kind
        assert bool((net.activation_l0 == torch.tensor(net.activation.linear)).all())
        named = OrthogonalRNN(I, n, parametrization=method, nonlinearity="scaled_tanh")
        assert bool((named.activation_l0 == 1).all())


def test_biases_outside_the_recurrence_are_drawn():
    assert OrthogonalRNN(I, N, nonlinearity="relu", linear_transition=True).bias_ih_l0.any()


def frames_below_the_network(net, x, monkeypatch):
    """The code that runs when the compiled kernel is entered, from the kernel's caller up to OrthogonalRNN.forward."""
    compiled, found = extension.native, []

    class Watched:
        def __getattr__(self, name):
            function = getattr(compiled, name)

            def call(**arguments):
                frame = sys._getframe(1)
                while frame.f_code is not OrthogonalRNN.forward.__code__:
                    found.append(frame.f_code)
                    frame = frame.f_back
                return function(**arguments)

            return call if name == "forward" else function

    monkeypatch.setattr(extension, "native", Watched())
    net(x)
    monkeypatch.undo()
    return found


@pytest.mark.skipif("cpp" not in BACKENDS, reason="the compiled kernels are missing")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"parametrization": Householder(reflections=2)},
        {"parametrization": Householder(field="complex")},
        {"linear_transition": True},
        {"memory": "checkpoint", "segment": T},
        {"nonlinearity": "identity", "form": "rotations"},
    ],
    ids=str,
)
@pytest.mark.parametrize("trained", [False, True])
def test_from_the_module_to_the_compiled_kernel_are_at_most_eight_frames(options, trained, monkeypatch):
    """A reader who follows a tensor passes these; torch's own are counted, too, in a call that stores everything."""
    net = OrthogonalRNN(I, N, **options).requires_grad_(trained)
    found = frames_below_the_network(net, torch.randn(T, B, I), monkeypatch)
    own = [code for code in found if code.co_filename.startswith(PACKAGE)]
    assert 2 <= len(own) <= 8, [code.co_name for code in own]
    if "memory" not in options and "form" not in options:
        assert len(found) <= 8, [code.co_name for code in found]


@pytest.mark.parametrize("memory", ["store", "checkpoint"])
def test_dropout_zeroes_complex_states_as_a_whole(memory):
    """One linear step: what the second layer read is V^-1 of its output, and an entry of it 0 or twice the state."""
    options = {"parametrization": ScaledCayley(field="complex"), "nonlinearity": "identity", "bias": False}
    net = OrthogonalRNN(I, N, 2, **options, memory=memory, dropout=0.5, dtype=torch.float64)
    x = torch.randn(1, 200, I, dtype=torch.float64)
    out, final = net(x)
    read = torch.linalg.solve(torch.view_as_complex(net.weight_ih_l1), out[0].mT).mT
    kept = read.abs() > 1e-9
    torch.testing.assert_close(read, torch.where(kept, 2 * final[0], 0), rtol=1e-9, atol=1e-9)
    assert 0.4 < kept.double().mean() < 0.6
    out.abs().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in net.parameters() if p.grad is not None)
    net.eval()
    assert torch.equal(net(x)[0], net(x)[0])


@pytest.mark.parametrize("output", ["last", "all"])
def test_the_gradient_of_an_expanded_state_is_by_sequence(output):
    """Where all sequences begin in one state the response to one step serves the batch; a user's state has its rows."""
    rnn = OrthogonalRNN(1, 5, nonlinearity="identity")
    x, start = torch.randn(9, 16, 1), torch.randn(1, 1, 5)
    weight = torch.randn(16, 5)
    expanded = start.expand(1, 16, 5).requires_grad_()
    dense = start.repeat(1, 16, 1).requires_grad_()
    grads = []
    for hx in (expanded, dense):
        out = rnn(x, hx, output=output)[0]
        (grad,) = torch.autograd.grad(((out if output == "last" else out[-1]) * weight).sum(), hx)
        grads.append(grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OrthogonalRNN(3, 8, num_layers=2, memory="checkpoint"),
        lambda: OrthogonalRNN(3, 8, learn_h0=True),
        lambda: orthornn.GORU(3, 8),
        lambda: orthornn.DeltaRNN(3, 8),
        lambda: orthornn.ReflectionRNN(3, 8, num_layers=2),
        lambda: orthornn.PeepholeLSTM(3, 8),
    ],
    ids=["lockstep", "learned", "goru", "delta", "reflections", "lstm"],
)
@torch.no_grad()
def test_outputs_and_states_share_no_memory(make):
    network = make()
    for batch in (1, 4):
        calls = [network(torch.randn(6, batch, 3), output="last")]
        calls += [network.step(torch.randn(batch, 3))] if hasattr(network, "step") else []
        for out, states in calls:
            states = states if isinstance(states, tuple) else (states,)
            before = [state.clone() for state in states]
            out.fill_(7)
            assert all(map(torch.equal, states, before))
        parameters = [p.clone() for p in network.parameters()]
        for first, state in enumerate(network.initial_states(batch)):
            state.fill_(first + 1)
        assert all(map(torch.equal, network.parameters(), parameters))
        fresh = network.initial_states(batch)
        fresh[0].fill_(5)
        assert all((state != 5).all() for state in fresh[1:])


@pytest.mark.parametrize("steps", [3, 6000], ids=["short", "long"])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_a_matrix_of_all_reflections_is_built_only_for_a_long_call(steps, field, monkeypatch):
    """An update of one short sequence took four times as long as by the reflections themselves."""
    taken = []
    compact = Transition.compact
    monkeypatch.setattr(Transition, "compact", lambda self: taken.append("compact_wy") or compact(self))
    net = OrthogonalRNN(I, 9, parametrization=Householder(field=field), dtype=torch.float64)
    x, found = torch.randn(steps, 2, I, dtype=torch.float64), {}
    for form in ("dense", "auto"):
        net.form = form
        net.zero_grad()
        out = net(x)[0]
        out.abs().square().sum().backward()
        found[form] = [out.detach(), *(p.grad.clone() for p in net.parameters())]
        assert taken == (["compact_wy"] if form == "auto" and steps == 3 else [])
    for one, other in zip(found["dense"], found["auto"]):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    taken.clear()
    with torch.no_grad():  # W is built once for all calls
        net(x)
    assert not taken


@pytest.mark.filterwarnings("ignore:Expected compiled kernels")
@pytest.mark.parametrize("compiled", [True, False])
def test_without_steps_the_gradient_of_the_last_state_reaches_the_first(compiled, monkeypatch):
    """Also when that of the sequence comes with it."""
    if not compiled:
        monkeypatch.setattr(CPP, "unavailable", lambda device: "it is missing")
    h0 = torch.zeros(1, 2, 4, requires_grad=True)
    out, h_n = OrthogonalRNN(3, 4)(torch.zeros(0, 2, 3), h0)
    (out.sum() + h_n.sum()).backward()
    assert torch.equal(h0.grad, torch.ones_like(h0))


def test_the_default_compiles_to_one_graph():
    torch._dynamo.reset()
    net, x = OrthogonalRNN(2, 7), torch.randn(4, 3, 2)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], net(x)[0])
