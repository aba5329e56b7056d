"""What torch asks of its own recurrent modules, asked of OrthogonalRNN: arguments, hooks, state dicts, lengths, copies."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from orthornn import GORU, Householder, MatrixExponential, OrthogonalRNN, OrthogonalRNNCell, ScaledCayley, Unconstrained
from support.tolerances import tolerance

T, B, I, N = 5, 3, 2, 6
EXACT = tolerance(torch.float64, T * N * 10)
KINDS = [Householder(), Householder(field="complex"), ScaledCayley(negatives=3), MatrixExponential(), Unconstrained()]
EVERY = pytest.mark.parametrize("method", KINDS, ids=repr)
SHAPES = pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (1, True), (2, True)])


def network(method=None, layers=1, both=False, **options):
    return OrthogonalRNN(
        I, N, layers, parametrization=method, bidirectional=both, **{"dtype": torch.float64, **options}
    )


def sequences():
    return torch.randn(T, B, I, dtype=torch.float64)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=EXACT)


# Arguments


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_must_be_positive(size):
    for arguments in ((size, N), (I, size), (I, N, size)):
        with pytest.raises(ValueError, match=f"got {size}"):
            OrthogonalRNN(*arguments)


@pytest.mark.parametrize("size", [2.0, "2", None, torch.tensor(2)], ids=repr)
def test_sizes_must_be_integers(size):
    with pytest.raises(ValueError, match="hidden_size to be an integer"):
        OrthogonalRNN(I, size)


def test_dropout_is_a_probability_and_needs_a_second_layer():
    for wrong in (-0.1, 1.1, "0.5", True, None):
        with pytest.raises(ValueError, match="dropout to be a number between 0 and 1"):
            OrthogonalRNN(I, N, 2, dropout=wrong)
    with pytest.warns(UserWarning, match="no effect with one layer"):
        OrthogonalRNN(I, N, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrthogonalRNN(I, N, 2, dropout=0.5)


def test_projections_are_refused():
    with pytest.raises(TypeError, match="proj_size"):
        OrthogonalRNN(I, N, proj_size=3)


@SHAPES
def test_inputs_and_states_of_other_sizes_are_refused(layers, both):
    net, x = network(layers=layers, both=both), sequences()
    directions = 2 if both else 1
    right = (layers * directions, B, N)
    net(x, torch.zeros(right, dtype=torch.float64))
    for wrong in ((right[0] + 1, B, N), (right[0], B + 1, N), (right[0], B, N + 1), (B, N), (1, *right)):
        with pytest.raises(RuntimeError, match="hx"):
            net(x, torch.zeros(wrong, dtype=torch.float64))
    for wrong in (x[..., :1], x[0, 0], x[None]):
        with pytest.raises((RuntimeError, ValueError)):
            net(wrong)
    with pytest.raises(RuntimeError):
        net(x.float().to("meta"))
    with pytest.raises((TypeError, ValueError)):
        network(dtype=torch.float32)(x)


# Shapes and states


@EVERY
@SHAPES
def test_shapes_of_outputs(method, layers, both):
    directions = 2 if both else 1
    for batch_first in (False, True):
        net = network(method, layers, both, batch_first=batch_first)
        x = sequences().transpose(0, 1) if batch_first else sequences()
        out, h_n = net(x)
        assert out.shape == ((B, T) if batch_first else (T, B)) + (N * directions,)
        assert h_n.shape == (layers * directions, B, N)
        out, h_n = net(x[0] if batch_first else x[:, 0])
        assert out.shape == (T, N * directions)
        assert h_n.shape == (layers * directions, N)


@EVERY
@SHAPES
def test_no_state_is_a_state_of_zeros(method, layers, both):
    net, x = network(method, layers, both), sequences()
    out, h_n = net(x)
    zeros = torch.zeros_like(h_n)
    for found in (net(x, zeros), net(x, hx=zeros)):
        assert torch.equal(found[0], out)
        assert torch.equal(found[1], h_n)


@EVERY
def test_batch_first_is_a_transposition(method):
    net, x = network(method, 2, True), sequences()
    turned = network(method, 2, True, batch_first=True)
    turned.load_state_dict(net.state_dict())
    close(turned(x.transpose(0, 1))[0], net(x)[0].transpose(0, 1))
    close(turned(x.transpose(0, 1))[1], net(x)[1])  # states of the last step keep their layout


@EVERY
@SHAPES
def test_a_packed_batch_is_its_sequences_alone(method, layers, both):
    net, x = network(method, layers, both), sequences()
    lengths = [2, 5, 1]
    padded = torch.full_like(x, float("nan"))  # padding is never read
    for b, length in enumerate(lengths):
        padded[:length, b] = x[:length, b]
    h0 = torch.randn(layers * (2 if both else 1), B, N, dtype=net(x)[1].dtype)
    packed = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=False)
    out, h_n = net(packed, h0)
    assert isinstance(out, PackedSequence)
    states, found_lengths = pad_packed_sequence(out)
    assert found_lengths.tolist() == lengths
    for b, length in enumerate(lengths):
        alone, last = net(x[:length, b], h0[:, b])
        close(states[:length, b], alone)
        close(h_n[:, b], last)
        assert not states[length:, b].any()


def test_a_packed_sequence_of_equal_lengths_is_the_batch():
    net, x = network(), sequences()
    out, h_n = net(pack_sequence(list(x.unbind(1))))
    close(pad_packed_sequence(out)[0], net(x)[0])
    close(h_n, net(x)[1])


@SHAPES
def test_the_end_of_the_output_is_the_final_state(layers, both):
    net = network(layers=layers, both=both)
    out, h_n = net(sequences())
    if both:
        close(out[-1, :, :N], h_n[-2])
        close(out[0, :, N:], h_n[-1])
    else:
        close(out[-1], h_n[-1])


def test_a_cell_in_a_loop_is_the_network():
    net, x = network(), sequences()
    cell = OrthogonalRNNCell(I, N, dtype=torch.float64)
    cell.rnn.load_state_dict(net.state_dict())
    h = torch.zeros(B, N, dtype=torch.float64)
    for t, wanted in enumerate(net(x)[0]):
        h = cell(x[t], h)
        close(h, wanted)


# Training


@EVERY
def test_every_parameter_gets_a_gradient_and_the_graph_can_be_kept(method):
    net, x = network(method, 2, True), sequences().requires_grad_()
    loss = net(x)[0].abs().square().sum()
    leaves = [x, *net.parameters()]
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    again = torch.autograd.grad(loss, leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaves)


def test_dropout_changes_with_the_mode_and_when_it_is_set():
    net, x = network(layers=3, dropout=0.5), sequences()
    assert not torch.equal(net(x)[0], net(x)[0])
    torch.manual_seed(1)
    one = net(x)[0]
    torch.manual_seed(1)
    assert torch.equal(net(x)[0], one)
    plain = network(layers=3)
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(x)[0], plain(x)[0])
    net.train().dropout = 0.0
    assert torch.equal(net(x)[0], plain(x)[0])
    net.dropout = 1.0
    silent = network(layers=1)
    silent.load_state_dict({k: v for k, v in silent.state_dict().items()})
    assert torch.equal(net(x)[0], net(torch.zeros_like(x))[0])  # nothing of the input passes the first layer


def test_freezing_a_part_leaves_the_rest_trained():
    net = network(layers=2)
    net.weight_ih_l0.requires_grad_(False)
    net(sequences())[0].sum().backward()
    assert net.weight_ih_l0.grad is None
    assert all(p.grad is not None for name, p in net.named_parameters() if name != "weight_ih_l0")
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


# Hooks


@EVERY
def test_hooks_see_arguments_and_results(method):
    net, x, seen = network(method), sequences().requires_grad_(), []
    h0 = torch.zeros_like(net(x)[1])
    handles = [
        net.register_forward_pre_hook(lambda module, args: seen.append(("before", module, args))),
        net.register_forward_hook(lambda module, args, result: seen.append(("after", module, args, result))),
    ]
    out, h_n = net(x, h0)
    (_, first, given), (_, second, again, result) = seen
    assert first is second is net
    assert given == again
    assert given[0] is x
    assert given[1] is h0
    assert result[0] is out
    assert result[1] is h_n
    for handle in handles:
        handle.remove()
    net(x)
    assert len(seen) == 2


def test_hooks_may_change_what_goes_in_and_out():
    net, x = network(), sequences()
    wanted = net(2 * x)[0]
    net.register_forward_pre_hook(lambda _, args: (2 * args[0], *args[1:]))
    assert torch.equal(net(x)[0], wanted)
    net.register_forward_hook(lambda _, args, result: (result[0] + 1, result[1]))
    assert torch.equal(net(x)[0], wanted + 1)
    net.register_forward_pre_hook(lambda _, args, kwargs: (args, {"output": "last"}), with_kwargs=True)
    assert torch.equal(net(x)[0], wanted[-1] + 1)


def test_backward_hooks_see_gradients():
    net, x, seen = network(), sequences().requires_grad_(), []
    net.register_full_backward_hook(lambda _, by_input, by_output: seen.append((by_input, by_output)))
    net(x)[0].sum().backward()
    ((by_input, by_output),) = seen
    close(by_input[0], x.grad)
    assert torch.equal(by_output[0], torch.ones(T, B, N, dtype=torch.float64))
    assert by_output[1] is None or not by_output[1].any()


def test_hooks_on_parameters():
    net = network()
    net.weight_ih_l0.register_hook(lambda grad: torch.zeros_like(grad))
    net(sequences())[0].sum().backward()
    assert not net.weight_ih_l0.grad.any()


# State dicts and copies


@EVERY
@SHAPES
def test_state_dicts_carry_the_whole_network(method, layers, both):
    net, other, x = network(method, layers, both), network(method, layers, both), sequences()
    assert not torch.equal(net(x)[0], other(x)[0])
    result = other.load_state_dict(net.state_dict())
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert torch.equal(net(x)[0], other(x)[0])
    holder = nn.ModuleDict({"net": network(method, layers, both)})
    assert set(holder.state_dict()) == {f"net.{name}" for name in net.state_dict()}
    holder.load_state_dict({f"net.{name}": value for name, value in net.state_dict().items()})
    assert torch.equal(holder["net"](x)[0], net(x)[0])


def test_state_dicts_that_do_not_fit_are_refused_by_name():
    net = network(layers=2)
    state = net.state_dict()
    missing = {name: value for name, value in state.items() if name != "weight_ih_l1"}
    with pytest.raises(RuntimeError, match=r'Missing key.*"weight_ih_l1"'):
        network(layers=2).load_state_dict(missing)
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"weight_ih_l1"'):
        network().load_state_dict(state)
    with pytest.raises(RuntimeError, match="size mismatch for weight_ih_l0"):
        network(layers=2).load_state_dict({**state, "weight_ih_l0": torch.zeros(N, I + 1)})
    result = network(layers=2).load_state_dict(missing, strict=False)
    assert result.missing_keys == ["weight_ih_l1"]


def test_hooks_on_state_dicts_are_run():
    net = network()
    net.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.update(extra=torch.ones(1)))
    assert "extra" in net.state_dict()
    seen = []
    other = network()
    other.register_load_state_dict_post_hook(lambda module, keys: seen.append(keys.unexpected_keys))
    other.load_state_dict(net.state_dict(), strict=False)
    assert seen == [["extra"]]


@EVERY
def test_copies_and_pickles_are_independent(method):
    net, x = network(method, 2), sequences()
    with torch.no_grad():
        wanted = net(x)[0].clone()
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert torch.equal(other(x)[0], wanted)
            for parameter in other.parameters():
                parameter.zero_()
            assert torch.equal(net(x)[0], wanted)


def test_modes_dtypes_and_repr():
    net = network(layers=2, both=True, dropout=0.25, batch_first=True)
    assert net.training
    assert not net.eval().training
    assert all(p.dtype == torch.float32 for p in net.float().parameters())
    text = repr(net)
    for part in ("2, 6", "num_layers=2", "batch_first=True", "dropout=0.25", "bidirectional=True"):
        assert part in text
    assert net.flatten_parameters() is None
    assert {name.split("_")[0] for name, _ in net.named_parameters()} == {"weight", "bias", "transition", "activation"}
    assert GORU(I, N, batch_first=True).batch_first
