"""h_t = gain W h_{t-1} + phi(V x_t + b): Henaff et al., 2016."""

from __future__ import annotations

import pytest
import torch

from orthornn import Givens, Householder, MatrixExponential, OrthogonalRNN, RestrictedUnitary, ScaledCayley
from support.tolerances import tolerance

T, B, I, N = 6, 3, 2, 6


def loop(rnn, x, h):
    (layer,) = rnn.layers()
    W, V = layer.matrix(), layer.input_weight(x)
    bias, parameter = layer.bias()
    gain = layer.gain
    states, h = [], layer.state_in(h)
    for x_t in x:
        a = x_t @ V.T
        h = gain * h @ W.T + rnn.activation(a if bias is None else a + bias, parameter)
        states.append(layer.state_out(h))
    return torch.stack(states)


@pytest.mark.sampled(14)
@pytest.mark.parametrize("form", ["dense", "auto", "operator"])
@pytest.mark.parametrize(
    "method",
    [Householder(reflections=2), Givens(layers=2), MatrixExponential(field="complex"), RestrictedUnitary()],
    ids=repr,
)
@pytest.mark.parametrize("nonlinearity", ["relu", "modrelu", "scaled_tanh"])
def test_is_its_equation(method, form, nonlinearity):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(
        I,
        N,
        parametrization=method,
        nonlinearity=nonlinearity,
        linear_transition=True,
        learn_gain=True,
        gain=0.9,
        form=form,
        dtype=torch.float64,
    )
    x = torch.randn(T, B, I, dtype=torch.float64)
    h0 = torch.randn(1, B, N, dtype=torch.complex128 if rnn.is_complex else torch.float64)
    found, expected = rnn(x, h0)[0], loop(rnn, x, h0[0])
    bound = tolerance(torch.float64, T * N)
    torch.testing.assert_close(found, expected, rtol=0, atol=bound)
    torch.testing.assert_close(rnn.step(x[0], h0)[0], expected[0], rtol=0, atol=bound)

    def gradients(states):
        return torch.autograd.grad(states.abs().square().sum(), list(rnn.parameters()))

    for a, b in zip(gradients(found), gradients(expected)):
        torch.testing.assert_close(a, b, rtol=0, atol=bound * (1 + float(b.abs().max())))


def test_tokens_and_packed_sequences():
    torch.manual_seed(0)
    rnn = OrthogonalRNN(I, N, nonlinearity="relu", linear_transition=True, dtype=torch.float64)
    tokens = torch.randint(0, I, (T, B))
    x = torch.nn.functional.one_hot(tokens, I).double()
    close = {"rtol": 0, "atol": tolerance(torch.float64, T * N)}
    torch.testing.assert_close(rnn(tokens)[0], rnn(x)[0], **close)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1]))
    h_n = rnn(packed)[1][0]
    for b, length in enumerate((6, 4, 1)):
        torch.testing.assert_close(h_n[b], rnn(x[:length, b])[1][0], **close)
    assert "linear_transition=True" in repr(rnn)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "method",
    [ScaledCayley(field="complex", phases=True), Givens(layers=2)],
    ids=repr,
)
def test_compiled_without_breaks(method):
    torch.manual_seed(0)
    torch._dynamo.reset()
    form = "dense" if method.bind(N).operator_cost is None else "operator"
    rnn = OrthogonalRNN(I, N, parametrization=method, form=form)
    x = torch.randn(2, B, I)
    want = rnn(x)[0]
    found = torch.compile(rnn, fullgraph=True, backend="aot_eager")(x)[0]
    torch.testing.assert_close(found, want, rtol=0, atol=tolerance(torch.float32, T * N))
    found.abs().sum().backward()
    assert all(parameter.grad is not None for parameter in rnn.parameters())


@pytest.mark.parametrize("learn_h0", [False, True])
def test_last_states_restart_at_resets_however_large_the_batch(learn_h0):
    torch.manual_seed(0)
    batch = 4 * (I + 2)  # enough for one response to serve all sequences, were there no resets
    rnn = OrthogonalRNN(I, N, nonlinearity="identity", learn_h0=learn_h0, dtype=torch.float64)
    x, reset = torch.randn(T, batch, I, dtype=torch.float64), torch.rand(T, batch) < 0.3
    last, every = rnn(x, output="last", reset=reset)[0], rnn(x, reset=reset)[0]
    torch.testing.assert_close(last, every[-1], rtol=0, atol=tolerance(torch.float64, T * N))
    assert not torch.allclose(last, rnn(x, output="last")[0])


@pytest.mark.parametrize("form", ["dense", "operator"])
def test_episodes_restart_from_the_state_that_is_given(form):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(
        I,
        N,
        parametrization=Givens(layers=2),
        nonlinearity="relu",
        linear_transition=True,
        form=form,
        dtype=torch.float64,
    )
    x, h0, restart = (torch.randn(*shape, dtype=torch.float64) for shape in ((T, B, I), (1, B, N), (1, B, N)))
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[2] = True
    states = rnn(x, h0, reset=reset, restart=restart)[0]
    expected = torch.cat([loop(rnn, x[:2], h0[0]), loop(rnn, x[2:], restart[0])])
    torch.testing.assert_close(states, expected, rtol=0, atol=tolerance(torch.float64, T * N))


@pytest.mark.parametrize("nonlinearity", ["tanh", "modrelu"])
def test_under_autocast_the_input_is_projected_in_single_precision(nonlinearity):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(I, N, nonlinearity=nonlinearity, linear_transition=True)
    x = torch.randn(T, B, I)
    want = rnn(x)[0]
    with torch.autocast("cpu", dtype=torch.float16):  # in which no state is stored
        assert torch.equal(rnn(x)[0], want)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = rnn(x)[0]
    assert found.dtype == torch.bfloat16
    # the projected rows are stored in bfloat16, and so is every state: two roundings per step
    torch.testing.assert_close(
        found.float(), want, rtol=0, atol=2 * T * torch.finfo(torch.bfloat16).eps * float(want.detach().abs().max())
    )


def test_under_autocast_states_are_stored_in_bfloat16():
    rnn, saved = OrthogonalRNN(I, N, nonlinearity="tanh", linear_transition=True), []
    x = torch.randn(T, B, I)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        rnn(x)
    rows = [tensor for tensor in saved if tensor.numel() == T * B * N]
    assert [tensor.dtype for tensor in rows].count(torch.float32) == 1  # that of tanh itself
