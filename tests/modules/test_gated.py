"""GORU and PeepholeLSTM against loops written from their equations, and against torch's LSTM."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from orthornn import GORU, Givens, Householder, MatrixExponential, PeepholeLSTM, RestrictedUnitary
from orthornn.errors import ArgumentError, DTypeError, ShapeError
from support.tolerances import tolerance

T, B, I, N = 6, 3, 2, 5


def goru(method, **options):
    torch.manual_seed(0)
    net = GORU(I, N, parametrization=method, learn_h0=True, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        net.bias.copy_(-net.bias.abs() / 10)
    return net


def goru_loop(net, x):
    """The equations, with complex numbers where W is unitary."""
    N = net.hidden_size
    W = net.transition.matrix()
    h = torch.view_as_complex(net.h0.detach()) if net.is_complex else net.h0.detach()
    h = h.expand(x.shape[1], N)
    states = []
    for x_t in x:
        parts = torch.cat([h.real, h.imag], 1) if net.is_complex else h
        gates = torch.sigmoid(x_t @ net.weight_ih[: 2 * N].T + parts @ net.weight_gates.T + net.bias_gates)
        z, r = gates[:, :N], gates[:, N:]
        V = net.weight_ih[2 * N :]
        inner = x_t @ V.T
        if net.is_complex:
            inner = torch.complex(inner[:, :N], inner[:, N:])
        inner = inner + r * (h @ W.T)
        if net.activation.name == "modrelu" or net.is_complex:
            c = torch.relu(inner.abs() + net.bias) * torch.sgn(inner)
        else:
            c = torch.tanh(inner + net.bias)
        h = z * h + (1 - z) * c
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize(
    "method",
    [Givens(layers=2), Householder(), MatrixExponential(field="complex"), RestrictedUnitary()],
    ids=repr,
)
def test_goru_is_its_equations(method):
    net = goru(method)
    x = torch.randn(T, B, I, dtype=torch.float64)
    states, h_n = net(x)
    torch.testing.assert_close(states, goru_loop(net, x), rtol=0, atol=tolerance(torch.float64, T * N))
    assert torch.equal(h_n[0], states[-1])
    assert torch.equal(net(x, output="last")[0], states[-1])
    first, h = net(x[:2])
    rest, _ = net(x[2:], h)
    torch.testing.assert_close(torch.cat([first, rest]), states, rtol=0, atol=tolerance(torch.float64, T))
    states.abs().sum().backward()
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in net.parameters())


@pytest.mark.parametrize("method", [Givens(layers=2), RestrictedUnitary()], ids=repr)
def test_fold_of_goru(method):
    net, x = goru(method), torch.randn(T, B, I, dtype=torch.float64)
    folded = net.fold()
    torch.testing.assert_close(folded(x)[0], net(x)[0], rtol=0, atol=tolerance(torch.float64, T * N))
    assert repr(folded.parametrization) in ("Unconstrained()", "Stiefel(field='complex')")
    assert vars(folded).keys() == vars(net).keys()


def test_goru_under_tanh_and_by_name():
    net, x = goru(Givens(layers=2)), torch.randn(T, B, I, dtype=torch.float64)
    other = goru(Givens(layers=2), nonlinearity="tanh")
    torch.testing.assert_close(other(x)[0], goru_loop(other, x), rtol=0, atol=tolerance(torch.float64, T * N))
    assert [name for name, _ in net.transitions()] == ["transition"]
    assert "Givens(layers=2)" in repr(net)


@pytest.mark.parametrize("kind", [GORU, PeepholeLSTM])
def test_a_packed_sequence_of_another_size_is_refused(kind):
    with pytest.raises(ShapeError, match="Expected input to have 2 features"):
        kind(I, N)(nn.utils.rnn.pack_sequence([torch.randn(3, I + 1)]))


@pytest.mark.parametrize("field", ["real", "complex"])
def test_first_values_of_goru(field):
    """Uniform up to the bounds of the authors' code, and drawn again by reset_parameters, the transition included."""
    torch.manual_seed(0)
    n = 400
    net = GORU(I, n, parametrization=Givens(layers=2, field=field), learn_h0=True)

    def largest():
        z, r = net.bias_gates.detach().split(n)
        assert bool((r == 2).all())
        assert not net.bias.any()
        drawn = (net.weight_ih, net.weight_gates, z, net.h0, *net.transition.free())
        angles = [math.pi] * len(net.transition.free())
        for value, bound in zip(drawn, (0.01, 0.01, (3 / n) ** 0.5, (1.5 / n) ** 0.5, *angles), strict=True):
            low, high = float(value.detach().min()), float(value.detach().max())
            assert -bound <= low < -0.95 * bound  # of at least 200 numbers: all of them miss it once in 30000 times
            assert 0.95 * bound < high <= bound * (1 + 1e-6)
        return [value.detach().clone() for value in drawn]

    first = largest()
    net.reset_parameters()
    for before, after in zip(first, largest()):
        assert not torch.equal(before, after)


def test_goru_says_what_is_wrong():
    with pytest.raises(ShapeError, match="Expected input to have 2 features"):
        goru(Givens())(torch.randn(T, B, I + 1).double())
    with pytest.raises(DTypeError, match="Expected input to be real"):
        goru(RestrictedUnitary())(torch.randn(T, B, I, dtype=torch.complex128))
    with pytest.raises(ShapeError, match="Expected hx"):
        goru(Givens())(torch.randn(T, B, I).double(), torch.zeros(2, B, N))
    with pytest.raises(ArgumentError, match="an activation without a parameter, or modrelu, but got prelu"):
        GORU(I, N, nonlinearity="prelu")
    with pytest.raises(DTypeError, match="field='complex'"):
        GORU(I, N, dtype=torch.complex64)


def test_without_peepholes_it_is_torchs_lstm():
    torch.manual_seed(0)
    ours = PeepholeLSTM(I, N, peepholes=False, dtype=torch.float64)
    theirs = nn.LSTM(I, N, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight_ih)
        theirs.weight_hh_l0.copy_(ours.weight_hh)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.zero_()
    x = torch.randn(T, B, I, dtype=torch.float64)
    state = (torch.randn(1, B, N, dtype=torch.float64), torch.randn(1, B, N, dtype=torch.float64))
    got, (h, c) = ours(x, state)
    want, (h_want, c_want) = theirs(x, state)
    for a, b in ((got, want), (h, h_want), (c, c_want)):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance(torch.float64, T * N))
    got.sum().backward()
    want.sum().backward()
    for a, b in ((ours.weight_hh, theirs.weight_hh_l0), (ours.bias, theirs.bias_ih_l0)):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=tolerance(torch.float64, T * N * B))


@pytest.mark.parametrize("steps", [0, 1, T])
@pytest.mark.parametrize("packed", [False, True])
def test_the_two_states_of_the_lstm_are_tensors_of_their_own(steps, packed):
    """A loop over segments detaches both in place, and sets one of them to zero, as with torch.nn.LSTM."""
    net, x = PeepholeLSTM(I, N, dtype=torch.float64), torch.randn(steps, B, I, dtype=torch.float64)
    if packed and steps:
        x = nn.utils.rnn.pack_padded_sequence(x, torch.full((B,), steps), enforce_sorted=False)
    for h, c in (net(x)[1], net(x, output="last")[1], net.step(torch.zeros(B, I, dtype=torch.float64))[1]):
        loss = c.square().sum()
        with torch.no_grad():
            h.zero_()
        loss.backward()
        h.detach_()
        c.detach_()


def test_peepholes_see_the_cell():
    """One step by hand: i and f see c_0, o sees c_1."""
    torch.manual_seed(0)
    net = PeepholeLSTM(1, 1, learn_state=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    x = torch.tensor([[[0.7]]], dtype=torch.float64)
    a = (0.7 * net.weight_ih + net.weight_hh @ net.h0.T).flatten() + net.bias
    p, c0 = net.peepholes.flatten(), net.c0.flatten()
    i, f = torch.sigmoid(a[0] + p[0] * c0), torch.sigmoid(a[1] + p[1] * c0)
    c = f * c0 + i * torch.tanh(a[2])
    h = torch.sigmoid(a[3] + p[2] * c) * torch.tanh(c)
    out, (h_n, c_n) = net(x)
    torch.testing.assert_close(out.flatten(), h)
    torch.testing.assert_close(c_n.flatten(), c)
    torch.testing.assert_close(net(x, output="last")[0].flatten(), h)
    assert torch.equal(h_n[0], out[0])


@pytest.mark.parametrize("forget_bias", [1.0, 5.0])
def test_first_values_of_the_lstm(forget_bias):
    torch.manual_seed(0)
    net = PeepholeLSTM(I, N, forget_bias=forget_bias, init="orthogonal")
    assert net.bias.tolist() == [0.0] * N + [forget_bias] * N + [0.0] * 2 * N
    for U in net.weight_hh.detach().double().split(N):
        assert torch.linalg.matrix_norm(U.T @ U - torch.eye(N)) < tolerance(torch.float32, N)
    assert not net.peepholes.any()
    assert sum(p.numel() for p in net.parameters()) == 4 * N * (I + N + 1) + 3 * N
    with pytest.raises(ArgumentError, match="init"):
        PeepholeLSTM(I, N, init="identity")
    with pytest.raises(ShapeError, match=r"Expected hx\[1\]"):
        net(torch.randn(T, B, I), (torch.zeros(1, B, N), torch.zeros(1, N)))


@pytest.mark.parametrize("flag", ["dense", 1, 0, None, "False"], ids=repr)
def test_flags_are_true_or_false(flag):
    for make, names in (
        (GORU, ("batch_first", "learn_h0")),
        (PeepholeLSTM, ("batch_first", "learn_state", "peepholes")),
    ):
        for name in names:
            with pytest.raises(ArgumentError, match=f"{name} to be True or False"):
                make(2, 3, **{name: flag})


@pytest.mark.parametrize("name", ["hx", "h0", "restart"])
def test_a_state_that_the_network_cannot_hold_is_refused(name):
    """Its imaginary part, or its last digits, would be lost without a word; narrower ones lose nothing."""
    x, reset = torch.randn(T, B, I), torch.ones(T, B, dtype=torch.bool)
    real, unitary = GORU(I, N), GORU(I, N, parametrization=Householder(field="complex"))
    state = torch.randn(1, B, N)

    def call(net, value):
        return net(x, **{name: value}, **({"reset": reset} if name == "restart" else {}))

    for net, dtypes in (
        (real, (torch.complex64, torch.float64, torch.int64, torch.bool)),
        (unitary, (torch.complex128, torch.float64, torch.int64)),
    ):
        for dtype in dtypes:
            with pytest.raises(DTypeError, match=f"Expected {name}"):
                call(net, state.to(dtype))
    half = state.bfloat16()
    assert torch.equal(call(real, half)[0], call(real, half.float())[0])
    assert torch.equal(call(unitary, state)[0], call(unitary, state.to(torch.complex64))[0])


@pytest.mark.parametrize("sizes", [[2, 3], [0, 6], [6, -1], [], [2, 2]], ids=repr)
@pytest.mark.parametrize("kind", [GORU, PeepholeLSTM])
def test_step_sizes_that_do_not_fit_are_refused(kind, sizes):
    packed = nn.utils.rnn.PackedSequence(torch.randn(6, I), torch.tensor(sizes, dtype=torch.int64))
    with pytest.raises(ShapeError, match="batch_sizes"):
        kind(I, N)(packed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_unitary_states_of_sixteen_bit_weights_are_complex64(dtype):
    net = goru(RestrictedUnitary())
    x = torch.randn(T, B, I, dtype=torch.float64)
    expected = net(x)[0].detach()
    out, h_n = net.to(dtype)(x.to(dtype))
    assert out.dtype == h_n.dtype == torch.complex64
    bound = tolerance(dtype, 8) * float(expected.abs().max())
    torch.testing.assert_close(out, expected.to(torch.complex64), rtol=0, atol=bound)
    again = net(x.to(dtype), h_n)[0]
    torch.view_as_real(again).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("make", [goru, lambda method: PeepholeLSTM(I, N, dtype=torch.float64)], ids=["GORU", "LSTM"])
def test_without_steps_the_state_is_handed_on(make):
    net = make(RestrictedUnitary() if make is goru else None)
    _, state = net(torch.randn(T, B, I, dtype=torch.float64))
    out, final = net(torch.zeros(0, B, I, dtype=torch.float64), state)
    assert out.shape == (0, B, N)
    for found, given in zip(*((state, final) if isinstance(state, tuple) else ((state,), (final,)))):
        assert torch.equal(found, given)
        assert found.data_ptr() != given.data_ptr()


def test_narrower_inputs_and_states_lose_nothing():
    for net in (GORU(I, N), PeepholeLSTM(I, N)):
        x = torch.randn(T, B, I).bfloat16()
        out, state = net(x)
        assert out.dtype == torch.float32
        assert torch.equal(out, net(x.float())[0])
        narrow = tuple(s.bfloat16() for s in state) if isinstance(state, tuple) else state.bfloat16()
        wide = tuple(s.float() for s in narrow) if isinstance(state, tuple) else narrow.float()
        assert torch.equal(net(x, narrow)[0], net(x, wide)[0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", [Givens(layers=2), Householder(), RestrictedUnitary()], ids=repr)
@pytest.mark.parametrize("bits", ["autocast", "weights"])
def test_sixteen_bits_do_not_make_the_transition_of_goru_grow_or_vanish(method, bits):
    """With open gates and without input h_t = W h_{t-1}, whose norm stays, but not that of W h with W in bfloat16."""
    torch.manual_seed(0)
    n, steps = 32, 1000
    net = GORU(I, n, parametrization=method)
    state = torch.randn(1, B, n, dtype=torch.complex64 if net.is_complex else torch.float32)
    x = torch.zeros(steps, B, I)
    with torch.no_grad():
        net.weight_gates.zero_()
        net.bias_gates[:n], net.bias_gates[n:] = -40, 40
        if bits == "weights":
            net, state = net.bfloat16(), state if net.is_complex else state.bfloat16()
            h = net(x.bfloat16(), state)[1]
            assert h.dtype == state.dtype
        else:
            expected = net(x, state)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = net(x, state)
            assert torch.equal(found[0], expected[0])
            h = found[1]
    ratio = h.norm(dim=-1) / state.norm(dim=-1)
    rounding = torch.finfo(state.dtype).eps  # of the state that is returned
    assert float((ratio - 1).abs().max()) < rounding + tolerance(torch.float32, steps)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_through_the_transition_of_goru_are_not_rounded_under_autocast(compiled):
    """Where the backward pass runs under autocast, as torch.compile's does: |dL/dh_0| = |dL/dh_T|."""
    torch.manual_seed(0)
    n, steps = (8, 3) if compiled else (32, 300)
    net, x, h0 = GORU(I, n), torch.zeros(steps, B, I), torch.randn(1, B, n, requires_grad=True)
    with torch.no_grad():
        net.weight_gates.zero_()
        net.bias_gates[:n], net.bias_gates[n:] = -40, 40
    grad = torch.randn(1, B, n)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h_n = (torch.compile(net, backend="aot_eager") if compiled else net)(x, h0)[1]
        (found,) = torch.autograd.grad(h_n, h0, grad)
    torch.testing.assert_close(found.norm(), grad.norm(), rtol=tolerance(torch.float32, steps), atol=0)


def test_goru_under_transforms_and_autocast_is_goru():
    net, x = GORU(I, N), torch.randn(2, T, B, I)
    expected = torch.stack([net(one)[0] for one in x])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.func.vmap(lambda one: net(one)[0])(x)
        _, tangent = torch.func.jvp(lambda one: net(one)[0], (x[0],), (x[1],))
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance(torch.float32, T * N))
    assert tangent.isfinite().all()


def test_a_complex_state_that_has_faded_away_has_a_finite_gradient():
    """After silence the state is so small that squares of it underflow."""
    goru = GORU(1, 4, parametrization=Householder(field="complex"))
    torch.nn.init.constant_(goru.bias, -0.01)
    x = torch.cat([torch.ones(1, 1, 1), torch.zeros(150, 1, 1)])
    states, _ = goru(x, torch.full((1, 1, 4), 0.1 + 0.1j))
    assert 0 < float(states[-1].detach().abs().max()) < 1e-20
    torch.view_as_real(states).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in goru.parameters())
