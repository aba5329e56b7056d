"""ReflectionRNN: what no other module has. What all modules must do is in test_conformance.py."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from orthornn import DeltaRNN, Householder, OrthogonalRNN, ReflectionRNN, convert
from orthornn.errors import ArgumentError, ArgumentTypeError, ShapeError, TransformError
from support.tolerances import tolerance

T, B, I, N = 9, 4, 3, 6
EXACT = tolerance(torch.float64, T * N * 10)
KINDS = {
    "plain": {},
    "strengths, gate, angles": {"reflections": 3, "beta": "input", "gate": "diagonal", "base": "input"},
    "heads": {"reflections": 2, "heads": 3, "beta": 1.3, "gate": "scalar", "base": "fixed"},
    "rotation": {"transition": "rotation", "heads": 2},
}
EVERY = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def network(**options: object) -> ReflectionRNN:
    torch.manual_seed(0)
    net = ReflectionRNN(I, N, dtype=torch.float64, **{"learn_h0": True, **options})
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


@EVERY
@pytest.mark.parametrize("tokens", [False, True])
def test_it_is_its_matrices(kind, tokens):
    net = network(nonlinearity="tanh", **kind)
    x = torch.randint(I, (T, B)) if tokens else torch.randn(T, B, I, dtype=torch.float64)
    W = net.transition_matrices(x)
    assert W.shape == (T, B, N, N)
    rows = nn.functional.one_hot(x, I).double() if tokens else x
    h = net.h0.expand(B, N)
    for t in range(T):
        h = torch.tanh(torch.einsum("bij,bj->bi", W[t], h) + rows[t] @ net.weight_ih_l0.T + net.bias_ih_l0)
    torch.testing.assert_close(net(x)[1][0], h, rtol=0, atol=EXACT)
    torch.testing.assert_close(net.transition_matrices()[x] if tokens else W, W, rtol=0, atol=EXACT)


@EVERY
def test_steps_are_the_sequence(kind):
    net, x = network(num_layers=2, **kind), torch.randn(T, B, I, dtype=torch.float64)
    states, h_n = net(x)
    h = None
    for x_t, state in zip(x, states):
        out, h = net.step(x_t, h)
        torch.testing.assert_close(out, state, rtol=0, atol=EXACT)
    torch.testing.assert_close(h, h_n, rtol=0, atol=EXACT)
    tokens = torch.randint(I, (B,))
    torch.testing.assert_close(net.step(tokens)[0], net(tokens[None])[0][0], rtol=0, atol=EXACT)


def test_a_rotation_turns_a_into_b_and_nothing_else():
    net = network(transition="rotation", additive=False, bias=False)
    x = torch.randn(5, I, dtype=torch.float64)
    for W, ab in zip(net.transition_matrices(x).detach(), (x @ net.weight_k_l0.detach().T).unflatten(-1, (2, N))):
        a, b = nn.functional.normalize(ab, dim=-1)
        torch.testing.assert_close(W @ a, b, rtol=0, atol=EXACT)
        torch.testing.assert_close(W.mT @ W, torch.eye(N, dtype=torch.float64), rtol=0, atol=EXACT)
        rest = torch.linalg.svd(torch.stack([a, b]))[2][2:]  # orthogonal to both
        torch.testing.assert_close(rest @ W.mT, rest, rtol=0, atol=EXACT)
        assert float(torch.linalg.det(W)) == pytest.approx(1)
        cosine = float(a @ b)
        assert float(W.trace()) == pytest.approx(N - 2 + 2 * cosine)  # by the angle between them


@pytest.mark.parametrize("kind", ["a", "b", "both", "opposite"])
def test_a_rotation_of_vanishing_vectors_has_a_finite_gradient(kind):
    net = network(transition="rotation", additive=False, bias=False)
    with torch.no_grad():
        a, b = net.weight_k_l0.split(N)
        if kind in ("a", "both"):
            a.zero_()
        if kind in ("b", "both"):
            b.zero_()
        if kind == "opposite":
            b.copy_(-a)
    out, _ = net(torch.randn(T, B, I, dtype=torch.float64))
    assert out.isfinite().all()
    out.square().sum().backward()
    assert net.weight_k_l0.grad.isfinite().all()


def test_strengths_and_gates_reach_both_ends():
    net = network(beta="input", gate="scalar", additive=False)
    with torch.no_grad():
        for name in ("weight_beta_l0", "weight_gate_l0", "bias_gate_l0"):
            net.get_parameter(name).zero_()
        net.bias_beta_l0.fill_(math.pi)
    orthogonal = net.transition_matrices(torch.zeros(1, I, dtype=torch.float64))[0].detach()
    identity = torch.eye(N, dtype=torch.float64)
    torch.testing.assert_close(orthogonal.mT @ orthogonal, identity, rtol=0, atol=EXACT)
    with torch.no_grad():
        net.bias_beta_l0.zero_()
    assert torch.equal(net.transition_matrices(torch.zeros(1, I, dtype=torch.float64))[0], identity)
    values = network(beta="input", gate="diagonal")._maps("l0", 100 * torch.randn(50, I, dtype=torch.float64))
    assert values[1].min() >= 0
    assert values[1].max() <= 2
    assert values[2].min() > 0
    assert values[2].max() <= 1


def test_a_symbol_keeps_the_norm_and_needs_no_memory_per_step():
    net = ReflectionRNN(7, 16, reflections=3, additive=False, bias=False, learn_h0=True)
    _, h_n = net(torch.randint(7, (20_000, 2)), output="last")
    assert float((h_n.norm(dim=-1) / net.h0.norm() - 1).abs().max().detach()) < 1e-4


def test_two_layers_and_dropout():
    net = network(num_layers=2, dropout=0.5)
    x = torch.randn(T, B, I, dtype=torch.float64)
    net.eval()
    assert torch.equal(net(x)[0], net(x)[0])
    net.train()
    assert not torch.equal(net(x)[0], net(x)[0])
    with pytest.warns(UserWarning, match="dropout=0.5 has no effect with one layer"):
        network(dropout=0.5)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("module", [OrthogonalRNN, ReflectionRNN, DeltaRNN])
def test_a_packed_sequence_of_no_sequences_has_no_outputs(module, bidirectional):
    net, width = module(I, N, bidirectional=bidirectional), N * (1 + bidirectional)
    none = PackedSequence(torch.zeros(0, I), torch.zeros(0, dtype=torch.int64))
    assert net(none, output="last")[0].shape == net(none)[0].data.shape == (0, width)
    assert net(none)[1].shape[:2] == (1 + bidirectional, 0)


def test_a_delta_network_looks_tokens_up_without_reading_them_first(monkeypatch):
    """To read their least and largest is to wait for a GPU, once for each of the five maps of a layer."""
    net, tokens = DeltaRNN(I, N, gate="scalar"), torch.randint(I, (T, B))
    expected = net(tokens)[0]
    monkeypatch.setattr(torch.Tensor, "aminmax", None)
    assert torch.equal(net(tokens)[0], expected)
    monkeypatch.undo()
    for wrong in (-1, I):
        with pytest.raises(IndexError, match=rf"tokens in \[0, {I}\), but got numbers from {wrong} to {wrong}"):
            net(torch.full((T, B), wrong))


@pytest.mark.parametrize("module", [ReflectionRNN, DeltaRNN])
def test_vmap_maps_over_tokens(module):
    net = module(I, N, dtype=torch.float64)
    tokens = torch.randint(I, (3, T, B))
    found = torch.func.vmap(lambda one: net(one)[0])(tokens)
    torch.testing.assert_close(found, torch.stack([net(one)[0] for one in tokens]), rtol=0, atol=EXACT)
    if module is ReflectionRNN:
        matrices = torch.func.vmap(net.transition_matrices)(tokens)
        torch.testing.assert_close(matrices, net.transition_matrices(tokens.flatten(0, 1)).view_as(matrices))


def test_clip_backward():
    net = network(clip_backward=0.25, nonlinearity="identity")
    x = torch.randn(T, B, I, dtype=torch.float64)
    (1000 * net(x)[0].sum()).backward()
    assert float(net.bias_ih_l0.grad.abs().max()) == T * B * 0.25


def test_under_autocast_it_stays_in_single_precision():
    net, x = network().float(), torch.randn(T, B, I)
    want = net(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(net(x)[0], want)


def test_it_learns_words_of_s3():
    """To a tenth of the loss of the best answer that does not look at the letters."""
    elements = list(itertools.permutations(range(3)))
    after = torch.tensor([[elements.index(tuple(b[k] for k in a)) for a in elements] for b in elements])  # b after a
    net, head = ReflectionRNN(6, 4, reflections=2, additive=False, bias=False, learn_h0=True), nn.Linear(4, 6)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=0.05)
    for _ in range(200):
        products = tokens = torch.randint(6, (8, 64))
        for k in range(1, len(tokens)):
            products = torch.cat([products[:k], after[tokens[k], products[k - 1]][None], tokens[k + 1 :]])
        loss = nn.functional.cross_entropy(head(net(tokens)[0]).flatten(0, 1), products.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.1 * math.log(6)


def test_it_is_refused_where_one_matrix_is_needed():
    net = ReflectionRNN(I, N)
    for wrong in (net, nn.Sequential(OrthogonalRNN(I, N), net)):
        with pytest.raises(ArgumentError, match="transition depends on the input"):
            convert(wrong, Householder())
    with pytest.raises(ArgumentError, match=r"transition_matrices\(x\)"):
        net.fold()
    with pytest.raises(TransformError, match=r"torch\.jit\.trace"):
        torch.jit.script(net)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reflections": 7}, "between 1 and 6"),
        ({"reflections": 4, "heads": 2}, "between 1 and 3"),
        ({"reflections": 0}, "between 1 and 6"),
        ({"heads": 4}, "heads that divide hidden_size=6"),
        ({"beta": 2.1}, "between 0 and 2"),
        ({"beta": -1}, "between 0 and 2"),
        ({"beta": "inputs"}, "'input'"),
        ({"gate": "vector"}, "Expected gate to be one of"),
        ({"base": "free"}, "Expected base to be one of"),
        ({"transition": "rotations"}, "Did you mean 'rotation'"),
        ({"transition": "rotation", "beta": 1.0}, "neither reflections nor beta"),
        ({"transition": "rotation", "reflections": 2}, "neither reflections nor beta"),
        ({"additive": 1}, "Expected additive to be True or False"),
        ({"clip_backward": 0}, "clip_backward"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        ReflectionRNN(I, N, **options)


def test_bad_calls_are_refused():
    net, x = ReflectionRNN(I, N), torch.randn(T, B, I)
    with pytest.raises(ArgumentTypeError):
        ReflectionRNN(I, N, beta="two")
    with pytest.raises(IndexError):
        net(torch.full((T, B), -1))
    with pytest.raises(ArgumentError, match="one initial state"):
        net(x, torch.zeros(1, B, N), h0=torch.zeros(1, B, N))
    with pytest.raises(ShapeError):
        net.step(x)
    with pytest.raises(ArgumentError, match="bidirectional"):
        ReflectionRNN(I, N, bidirectional=True).step(x[0])
    with pytest.raises(ArgumentError, match="layer"):
        net.transition_matrices(layer=1)


@pytest.mark.parametrize(
    ("make", "maps"),
    [
        (lambda: ReflectionRNN(3, 8, transition="rotation"), ("weight_k_l0", "bias_k_l0")),
        (lambda: DeltaRNN(3, 8), ("weight_q_l0", "bias_q_l0")),
    ],
)
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 2.0**64), (torch.float32, 2.0**120), (torch.float64, 2.0**600)]
)
def test_only_directions_matter_also_where_squares_overflow(make, maps, dtype, scale):
    small, large = make().to(dtype), make().to(dtype)
    large.load_state_dict({name: v * scale if name in maps else v for name, v in small.state_dict().items()})
    x = torch.randn(5, 4, 3, dtype=dtype)
    outs = [network(x)[0] for network in (small, large)]
    torch.testing.assert_close(outs[1], outs[0], rtol=0, atol=tolerance(dtype, 5 * 8))
    grad = torch.randn_like(outs[0])
    for out in outs:
        out.backward(grad)
    for (name, p), q in zip(small.named_parameters(), large.parameters()):
        found = q.grad * scale if name in maps else q.grad
        torch.testing.assert_close(found, p.grad, rtol=0, atol=tolerance(dtype, 5 * 4 * 8) * float(p.grad.abs().max()))
