"""OrthogonalRNN with Unconstrained() and tanh or relu is torch.nn.RNN: outputs and every gradient."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from orthornn import OrthogonalRNN, OrthogonalRNNCell, Unconstrained
from orthornn.errors import ReadOnlyError
from support.tolerances import tolerance

T, B, I, N = 6, 4, 3, 5


def pair(nonlinearity="tanh", **options):
    """A torch.nn.RNN and an OrthogonalRNN that has loaded its state_dict, both in float64."""
    peer = torch.nn.RNN(I, N, nonlinearity=nonlinearity, dtype=torch.float64, **options)
    num_layers = options.pop("num_layers", 1)
    ours = OrthogonalRNN(
        I, N, num_layers, parametrization=Unconstrained(), nonlinearity=nonlinearity, dtype=torch.float64, **options
    )
    ours.load_state_dict(peer.state_dict())
    return peer, ours


def gradients(network, tensors, loss):
    """By name, with torch.nn.RNN's names; our single bias has the gradient of either of its two."""
    names = dict(network.named_parameters())
    values = torch.autograd.grad(loss, [*names.values(), *tensors], allow_unused=True)
    found = {
        name.replace("transition_", "weight_hh_").removesuffix(".weight"): grad for name, grad in zip(names, values)
    }
    return found, values[len(names) :]


def assert_same(ours, peer, inputs):
    bound = tolerance(torch.float64, T * N * 4)
    (out, h_n), (peer_out, peer_h_n) = ours(*inputs), peer(*inputs)
    if isinstance(out, PackedSequence):
        for mine, theirs in zip(out[1:], peer_out[1:]):
            assert (mine is None and theirs is None) or torch.equal(mine, theirs)
        out, peer_out = out.data, peer_out.data
    assert out.shape == peer_out.shape
    assert h_n.shape == peer_h_n.shape
    torch.testing.assert_close(out, peer_out, rtol=0, atol=bound)
    torch.testing.assert_close(h_n, peer_h_n, rtol=0, atol=bound)
    weights, final_weights = torch.randn_like(out), torch.randn_like(h_n)
    leaves = [t.data if isinstance(t, PackedSequence) else t for t in inputs]
    leaves = [t for t in leaves if t is not None and t.requires_grad]
    mine, mine_inputs = gradients(ours, leaves, (out * weights).sum() + (h_n * final_weights).sum())
    theirs, their_inputs = gradients(peer, leaves, (peer_out * weights).sum() + (peer_h_n * final_weights).sum())
    assert set(mine) == {name for name in theirs if "bias_hh" not in name}
    for name, grad in mine.items():
        torch.testing.assert_close(grad, theirs[name], rtol=0, atol=bound * 20)
    for grad, their_grad in zip(mine_inputs, their_inputs):
        torch.testing.assert_close(grad, their_grad, rtol=0, atol=bound * 20)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_batched(nonlinearity, num_layers, bidirectional, batch_first, bias):
    peer, ours = pair(
        nonlinearity, num_layers=num_layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias
    )
    for with_state in (False, True):
        x = torch.randn((B, T, I) if batch_first else (T, B, I), dtype=torch.float64, requires_grad=True)
        h0 = torch.randn(num_layers * (1 + bidirectional), B, N, dtype=torch.float64, requires_grad=True)
        assert_same(ours, peer, (x, h0) if with_state else (x,))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_unbatched(num_layers, bidirectional):
    peer, ours = pair(num_layers=num_layers, bidirectional=bidirectional)
    x = torch.randn(T, I, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(num_layers * (1 + bidirectional), N, dtype=torch.float64, requires_grad=True)
    assert_same(ours, peer, (x, h0))
    assert_same(ours, peer, (x,))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize(("lengths", "is_sorted"), [([6, 3, 3, 1], True), ([2, 6, 1, 4], False), ([4, 4, 4, 4], True)])
def test_packed(lengths, is_sorted, num_layers, bidirectional, nonlinearity):
    peer, ours = pair(nonlinearity, num_layers=num_layers, bidirectional=bidirectional)
    padded = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    packed = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=is_sorted)
    h0 = torch.randn(num_layers * (1 + bidirectional), B, N, dtype=torch.float64, requires_grad=True)
    assert_same(ours, peer, (packed, h0))
    assert_same(ours, peer, (packed,))


def test_cell():
    peer = torch.nn.RNNCell(I, N, dtype=torch.float64)
    cell = OrthogonalRNNCell(I, N, parametrization=Unconstrained(), nonlinearity="tanh", dtype=torch.float64)
    with torch.no_grad():
        cell.rnn.weight_ih_l0.copy_(peer.weight_ih)
        cell.rnn.bias_ih_l0.copy_(peer.bias_ih + peer.bias_hh)
        cell.rnn.transition_l0.set_weight_(peer.weight_hh)
    x, h = torch.randn(B, I, dtype=torch.float64), torch.randn(B, N, dtype=torch.float64)
    bound = tolerance(torch.float64, N + I)
    for inputs in ((x, h), (x,), (x[0], h[0]), (x[0],)):
        torch.testing.assert_close(cell(*inputs), peer(*inputs), rtol=0, atol=bound)
    assert cell.input_size == I
    assert cell.hidden_size == N


def test_dropout_acts_between_layers_in_training_only():
    _, ours = pair(num_layers=2, dropout=0.5)
    x = torch.randn(T, B, I, dtype=torch.float64)
    assert not torch.equal(ours(x)[0], ours(x)[0])
    assert torch.equal(ours(x)[1][0], ours(x)[1][0])  # neither the input nor the first layer's own state
    ours.eval()
    assert torch.equal(ours(x)[0], ours(x)[0])
    peer, ours = pair(num_layers=2, dropout=1.0)
    torch.testing.assert_close(ours(x)[0], peer(x)[0], rtol=0, atol=tolerance(torch.float64, T * N))


def test_errors_are_those_of_torch():
    """What a caller of torch.nn.RNN catches, it catches here."""
    x = torch.randn(T, B, I, dtype=torch.float64)
    bad = {
        "four dimensions": (x.unsqueeze(0),),
        "one dimension": (x[0, 0],),
        "input size": (x[..., :2],),
        "batch of h0": (x, torch.zeros(1, B + 1, N, dtype=torch.float64)),
        "size of h0": (x, torch.zeros(1, B, N + 1, dtype=torch.float64)),
        "dimensions of h0": (x, torch.zeros(B, N, dtype=torch.float64)),
    }
    peer, ours = pair()
    for inputs in bad.values():
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            peer(*inputs)
        with pytest.raises(theirs.type):
            ours(*inputs)


@pytest.mark.parametrize(("num_layers", "bidirectional"), list(itertools.product([1, 2], [False, True])))
def test_parameter_names_are_those_of_torch(num_layers, bidirectional):
    peer, ours = pair(num_layers=num_layers, bidirectional=bidirectional)
    assert [name for name, _ in peer.named_parameters() if "ih" in name and "weight" in name] == [
        name for name, _ in ours.named_parameters() if "weight_ih" in name
    ]
    for name, value in peer.named_parameters():
        if "weight_hh" in name:
            assert torch.equal(getattr(ours, name), value)


def test_padded_output_of_a_packed_sequence():
    _, ours = pair()
    padded = torch.randn(T, B, I, dtype=torch.float64)
    packed = pack_padded_sequence(padded, torch.tensor([2, 6, 1, 4]), enforce_sorted=False)
    out, h_n = ours(packed)
    states, lengths = pad_packed_sequence(out)
    for b, length in enumerate(lengths):
        alone = ours(padded[:length, b])[0]
        torch.testing.assert_close(states[:length, b], alone, rtol=0, atol=tolerance(torch.float64, T * N))
        torch.testing.assert_close(h_n[0, b], alone[-1], rtol=0, atol=tolerance(torch.float64, T * N))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_mode_and_all_weights(nonlinearity, options):
    peer, ours = pair(nonlinearity, **options)
    assert ours.mode == peer.mode
    assert len(ours.all_weights) == len(peer.all_weights)
    for mine, theirs in zip(ours.all_weights, peer.all_weights):
        torch.testing.assert_close(mine[:2], theirs[:2], rtol=0, atol=0)
        assert len(mine) == 2 + ours.bias
        torch.testing.assert_close(mine[2:], [sum(theirs[2:])] if ours.bias else [], rtol=0, atol=0)
    own = {id(parameter) for parameter in ours.parameters()}
    assert all(id(weights[0]) in own for weights in ours.all_weights)
    sum(weight.square().sum() for weights in ours.all_weights for weight in weights).backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())  # of what W is made of, too


def test_all_weights_of_other_nonlinearities():
    net = OrthogonalRNN(I, N, 2, nonlinearity="prelu", learn_gain=True, learn_h0=True)
    assert net.mode == "RNN_PRELU"
    for k, weights in enumerate(net.all_weights):
        assert [id(w) for w in weights[2:]] == [
            id(net.get_parameter(f"{kind}_l{k}")) for kind in ("bias_ih", "activation", "gain")
        ]
    for name in ("mode", "all_weights"):
        with pytest.raises(ReadOnlyError, match=name):
            setattr(net, name, None)
