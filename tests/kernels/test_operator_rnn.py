"""operator_rnn against dense_rnn with the matrix of the same transition: outputs and all gradients."""

from __future__ import annotations

import copy

import pytest
import torch

from orthornn import Givens, Householder, OrthogonalRNN, RestrictedUnitary, activations
from orthornn.errors import ArgumentError, TransformError
from orthornn.kernels import dense_rnn, operator_rnn
from orthornn.kernels.cost_model import operator_pays
from orthornn.modules import Transition
from support.tolerances import tolerance

METHODS = [
    Givens(layers=3),
    Givens(layers="fft"),
    Givens(layers=2, field="complex"),
    Givens(layers="fft", field="complex"),
    RestrictedUnitary(),
]
T, B, N, I = 7, 3, 6, 2


def drawn(method, packed=False, tokens=False, size=N):
    torch.manual_seed(0)
    transition = Transition(method, size, dtype=torch.float64)
    n = size * (2 if transition.method.field == "complex" else 1)
    batch_sizes = torch.tensor([3, 3, 2, 2, 1]) if packed else None
    leading = (11,) if packed else (T, B)
    x = torch.randint(0, I, leading) if tokens else torch.randn(*leading, I, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(B, n, dtype=torch.float64, requires_grad=True)
    weight_ih = torch.randn(n, I, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(n, dtype=torch.float64, requires_grad=True)
    return transition, x, h0, weight_ih, bias, batch_sizes


def both(method, activation, output="all", packed=False, tokens=False, clip=None, gain=0.9):
    transition, x, h0, weight_ih, bias, batch_sizes = drawn(method, packed, tokens)
    phi = activations.get(activation)
    size = phi.parameter_size(h0.shape[1])
    parameter = (phi.initial - torch.rand(size, dtype=torch.float64)).requires_grad_() if size else None
    gain = torch.tensor(gain, dtype=torch.float64, requires_grad=True)
    common = {"weight_ih": weight_ih, "bias": bias, "gain": gain, "batch_sizes": batch_sizes, "output": output}
    common["clip"] = clip
    W = transition.matrix()
    if W.is_complex():
        W = torch.cat([torch.cat([W.real, -W.imag], 1), torch.cat([W.imag, W.real], 1)])
    operator = transition.operator()
    want = dense_rnn(x, h0, W, phi, parameter, backend="reference", **common)
    calls = (operator.apply, operator.apply_adjoint, operator.operands)
    got = operator_rnn(x, h0, *calls, phi, parameter, **common)
    leaves = [t for t in (x, h0, weight_ih, bias, gain, parameter, *transition.free()) if t is not None]
    return got, want, [t for t in leaves if t.requires_grad]


def agree(got, want, leaves):
    bound = tolerance(torch.float64, T * N * N)
    torch.testing.assert_close(got, want, rtol=0, atol=bound * (1 + float(want.detach().abs().max())))
    weights = torch.randn_like(want)
    found = torch.autograd.grad(got, leaves, weights, materialize_grads=True, allow_unused=True)
    expected = torch.autograd.grad(want, leaves, weights, materialize_grads=True, allow_unused=True)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=bound * (1 + float(b.abs().max())))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("packed", [False, True])
def test_equals_the_dense_recurrence(method, output, packed):
    for activation in ("tanh", "modrelu", "oplu"):
        agree(*both(method, activation, output, packed))
    agree(*both(method, "identity", output, packed, tokens=True))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (0, 0)])
def test_no_steps_and_no_sequences(method, steps, batch):
    rnn = OrthogonalRNN(I, 5, parametrization=method, form="operator", learn_h0=True)
    states, h_n = rnn(torch.zeros(steps, batch, I))
    assert states.shape == (steps, batch, 5)
    assert h_n.shape == (1, batch, 5)
    (states.abs().sum() + h_n.abs().sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in rnn.parameters())
    x = torch.zeros(steps, batch, I, requires_grad=True)
    (again,) = torch.autograd.grad(rnn(x)[0].abs().sum(), x, create_graph=True)
    assert not again.any()


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_sizes(method, n):
    """A single unit has nothing to be rotated with: the angles are no numbers then."""
    torch.manual_seed(0)
    x = torch.randn(4, 2, I, dtype=torch.float64)
    rnn = OrthogonalRNN(I, n, parametrization=method, form="operator", dtype=torch.float64)
    dense = copy.deepcopy(rnn)
    dense.form = "dense"
    bound = tolerance(torch.float64, 4 * 2 * n)
    for network in (rnn, dense):
        network(x)[0].abs().sum().backward()
    torch.testing.assert_close(rnn(x)[0], dense(x)[0], rtol=0, atol=bound)
    for a, b in zip(rnn.parameters(), dense.parameters()):
        if a.numel():
            torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=bound * (1 + float(b.grad.abs().max())))


def test_clipping_acts_on_the_chain():
    agree(*both(RestrictedUnitary(), "tanh", clip=0.05))


def test_higher_derivatives_and_transforms():
    got, want, leaves = both(Givens(layers=2, field="complex"), "tanh")

    def second(out):
        (first,) = torch.autograd.grad(out.square().sum(), leaves[1], create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaves[-1])[0]

    # a second derivative is a sum over pairs of steps
    expected = second(want)
    bound = tolerance(torch.float64, T * T * N * N)
    torch.testing.assert_close(second(got), expected, rtol=0, atol=bound * (1 + float(expected.abs().max())))
    transition, x, h0, weight_ih, bias, _ = drawn(Givens(layers=2))
    operator = transition.operator()

    def total(h, clip=None):
        calls = (operator.apply, operator.apply_adjoint, tuple(o.detach() for o in operator.operands))
        return operator_rnn(x.detach(), h, *calls, "tanh", weight_ih=weight_ih, bias=bias, clip=clip).sum()

    by_func = torch.func.grad(total)(h0.detach())
    by_node = torch.autograd.grad(total(h0), h0)[0]
    torch.testing.assert_close(by_func, by_node, rtol=0, atol=tolerance(torch.float64, T * N * N))
    with pytest.raises(TransformError, match="clip"):
        torch.func.grad(lambda h: total(h, 1.0))(h0.detach())


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_network_gives_the_same_in_either_form(method):
    x = torch.randn(5, 2, I)

    def run(form):
        torch.manual_seed(3)
        rnn = OrthogonalRNN(I, 7, parametrization=method, form=form, learn_h0=True, learn_gain=True)
        out, h_n = rnn(x)
        (out.abs().square().sum() + h_n.abs().sum()).backward()
        return out.detach(), [p.grad for p in rnn.parameters()]

    (dense, by_dense), (operator, by_operator) = run("dense"), run("operator")
    bound = tolerance(torch.float32, 5 * 7)
    torch.testing.assert_close(operator, dense, rtol=0, atol=bound * float(dense.abs().max()))
    for a, b in zip(by_operator, by_dense):
        torch.testing.assert_close(a, b, rtol=0, atol=bound * (1 + float(b.abs().max())))


def test_the_cost_model_prefers_the_matrix_when_small_and_the_fft_when_large():
    def pays(n, *sizes):
        return operator_pays(RestrictedUnitary().bind(n).operator_cost, 2 * n, *sizes)

    assert not pays(64, 1)
    assert not pays(128, 50)
    assert not pays(512, 1)
    assert pays(2048, 1)
    assert pays(2048, 50)


@pytest.mark.parametrize("method", [Givens(layers=2), Givens(layers="fft"), RestrictedUnitary()])
def test_a_matrix_is_built_for_enough_steps_only(method):
    n = 512
    cost = method.bind(n).operator_cost
    for batch in (1, 8):
        chosen = [operator_pays(cost, n, batch, steps) for steps in (1, 10, 100, 10_000, 100_000)]
        assert chosen[0]
        assert not chosen[-1]
        assert chosen == sorted(chosen, reverse=True)  # the longer call is the one for which the matrix pays


def test_what_has_no_operator_form_and_wrong_arguments():
    assert Transition(Householder(), 4).operator() is None
    transition, x, h0, weight_ih, _, _ = drawn(Givens(layers=1))
    operator = transition.operator()
    calls = (operator.apply, operator.apply_adjoint, operator.operands)
    with pytest.raises(ArgumentError, match="trainable vector"):
        operator_rnn(x, h0, *calls, "modrelu", weight_ih=weight_ih)
    with pytest.raises(ArgumentError, match="clip"):
        operator_rnn(x, h0, *calls, "tanh", weight_ih=weight_ih, clip=-1.0)


def test_an_initial_state_that_is_a_lazy_negation():
    """Tensor.new_tensor fails on such a state; the gain must not be made by it."""
    h0 = torch.randn(2, 3, dtype=torch.float64)
    x, W = torch.randn(4, 2, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)

    def run(h):
        return operator_rnn(x, h, lambda h, W: h @ W.mT, lambda g, W: g @ W, (W,), "tanh")

    assert torch.equal(run(torch._neg_view(-h0)), run(h0))
    rnn = OrthogonalRNN(3, 3, parametrization=Givens(), form="operator", dtype=torch.float64)
    assert torch.equal(rnn(x, torch._neg_view(-h0[None]))[0], rnn(x, h0[None])[0])


def test_a_gain_is_trained_where_apply_reads_a_trained_tensor_of_its_own():
    W = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    gain = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    x, h0 = torch.randn(4, 2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    states = operator_rnn(x, h0, lambda h: h @ W.mT, lambda g: g @ W, (), "tanh", gain=gain)
    found = torch.autograd.grad(states.sum(), gain)[0]
    h, expected = h0, []
    for row in x:
        h = torch.tanh(gain * h @ W.mT + row)
        expected.append(h)
    torch.testing.assert_close(found, torch.autograd.grad(torch.stack(expected).sum(), gain)[0])


def test_a_backward_pass_under_autocast_has_the_gradients_of_one_outside():
    """The product of each step would be rounded to 16 bits, and the errors would add up along the chain."""
    W = torch.linalg.qr(torch.randn(N, N))[0].requires_grad_()
    x, h0 = torch.randn(T, B, N, requires_grad=True), torch.randn(B, N, requires_grad=True)
    found = []
    for enabled in (False, True):
        out = operator_rnn(x, h0, lambda h, W: h @ W.mT, lambda g, W: g @ W, (W,), "tanh")
        loss = out.square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            found.append(torch.autograd.grad(loss, (x, h0, W)))
    assert all(map(torch.equal, *found))
