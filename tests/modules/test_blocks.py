"""OrthogonalBlocks: its fast paths against the step loop, its options, and what it refuses."""

from __future__ import annotations

import itertools
import math
import warnings

import pytest
import torch
from torch import Tensor, nn

from orthornn import (
    Givens,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    Rotations,
    ScaledCayley,
    Unconstrained,
    convert,
)
from orthornn.compact_wy import apply_base, base_power
from orthornn.diagnostics import hidden_gradient_norms, orthogonality_error
from orthornn.errors import ArgumentError, ArgumentTypeError, OrthornnError, ReadOnlyError, ShapeError
from orthornn.kernels.cost_model import groups_pay
from orthornn.layout import SequenceLayout
from orthornn.modules import forms, impulse
from orthornn.modules.layer import Settings
from support.tolerances import tolerance

T, B, I, D, S = 11, 6, 2, 5, 8
EXACT = tolerance(torch.float64, T * S * 20)
METHODS = [
    Rotations(),
    Rotations(decay=True, radii=(0.5, 0.9)),
    Householder(reflections=2, base="rotations"),
    ScaledCayley(negatives=3),
    Givens(layers=2),
    Unconstrained(),
]


def blocks(**options: object) -> OrthogonalBlocks:
    torch.manual_seed(0)
    return OrthogonalBlocks(I, D, S, **{"depth": 2, "dtype": torch.float64, **options})


def inputs(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*(shape or (T, B, I)), dtype=torch.float64, generator=generator)


@pytest.fixture(params=[True, False], ids=["groups", "steps"])
def grouped(request, monkeypatch):
    """Whether the first block of a network with a stride takes groups of steps, whatever that costs."""
    monkeypatch.setattr(forms, "groups_pay", lambda *sizes: request.param)
    return request.param


def by_steps(rnn: OrthogonalRNN, x: Tensor, h: Tensor | None = None) -> Tensor:
    """The states (T, B, S) of a network of one layer, from `step`."""
    states = []
    for x_t in x:
        out, h = rnn.step(x_t, h)
        states.append(out)
    return torch.stack(states)


def same_with_gradients(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)
    weights = inputs(*found.shape)
    mine, theirs = (torch.autograd.grad((out * weights).sum(), leaves, retain_graph=True) for out in (found, expected))
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT * (1 + float(b.abs().max())))


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("bias", "learned"), [(True, False), (False, False), (True, True), (False, True)])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_the_last_state_by_the_response_is_that_of_the_step_loop(method, bias, learned, monkeypatch):
    used, response = [], impulse.response
    monkeypatch.setattr(impulse, "response", lambda *given: used.append(1) or response(*given))
    torch.manual_seed(0)
    rnn = OrthogonalRNN(
        I, S, nonlinearity="identity", parametrization=method, bias=bias, learn_h0=learned, dtype=torch.float64
    )
    x = inputs(T, B + 2, I).requires_grad_()
    same_with_gradients(rnn(x, output="last")[0], by_steps(rnn, x)[-1], [x, *rnn.parameters()])
    assert used
    used.clear()
    h0 = inputs(1, B + 2, S)
    torch.testing.assert_close(rnn(x, h0, output="last")[0], by_steps(rnn, x, h0)[-1], rtol=0, atol=EXACT)
    torch.testing.assert_close(rnn(x[:, :2], output="last")[0], by_steps(rnn, x[:, :2])[-1], rtol=0, atol=EXACT)
    torch.testing.assert_close(rnn(x[:1], output="last")[0], by_steps(rnn, x[:1])[-1], rtol=0, atol=EXACT)
    assert not used  # states of their own, few sequences, one step


@pytest.mark.sampled(11)
@pytest.mark.parametrize("gain", [0.9, -0.5, 0.0, 1.7])
@pytest.mark.parametrize(("bias", "learned"), [(True, False), (False, True)])
@pytest.mark.parametrize("method", METHODS[:3], ids=repr)
def test_the_response_has_the_gain_and_its_gradient(method, bias, learned, gain, monkeypatch):
    used, response = [], impulse.response
    monkeypatch.setattr(impulse, "response", lambda *given: used.append(1) or response(*given))
    torch.manual_seed(0)
    options = {"parametrization": method, "bias": bias, "learn_h0": learned, "dtype": torch.float64}
    rnn = OrthogonalRNN(I, S, nonlinearity="identity", gain=gain, learn_gain=True, **options)
    x = inputs(T, B + 2, I).requires_grad_()
    same_with_gradients(rnn(x, output="last")[0], by_steps(rnn, x)[-1], [x, *rnn.parameters()])
    assert used == [1]
    fixed = OrthogonalRNN(I, S, nonlinearity="identity", gain=gain, **options)
    fixed.load_state_dict({name: value for name, value in rnn.state_dict().items() if not name.startswith("gain")})
    same_with_gradients(fixed(x, output="last")[0], by_steps(rnn, x)[-1], [x])
    assert used == [1, 1]


def test_a_gain_with_which_the_response_overflows():
    """3^100 is infinite in float32, and zeros before the last three steps stay zeros."""
    rnn = OrthogonalRNN(I, S, nonlinearity="identity", gain=3.0, learn_gain=True, bias=False)
    x = torch.zeros(100, B + 2, I)
    x[-3:] = inputs(3, B + 2, I).float()
    found, expected = rnn(x, output="last")[0], by_steps(rnn, x)[-1]
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_the_last_state_is_as_exact_as_all_states(dtype):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(1, S, nonlinearity="identity")
    x = inputs(300, 64, 1).float()  # so many sequences that outside of autocast the response pays
    with torch.autocast("cpu", dtype=dtype):
        every, last = rnn(x)[0], rnn(x, output="last")[0]
    assert last.dtype == every.dtype
    bound = tolerance(torch.float32, 300) * float(every.detach().abs().max())
    torch.testing.assert_close(last, every[-1], rtol=0, atol=bound)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("length", [1, 3, 4, T, 12])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_strided_states_are_those_of_the_step_loop(method, length, grouped):
    stride = 4
    options = {"parametrization": method, "depth": 1, "residual": False}
    net, full = blocks(stride=stride, **options), blocks(**options)
    full.load_state_dict(net.state_dict())
    x, h0 = inputs(length, B, I).requires_grad_(), inputs(1, B, S).requires_grad_()
    every, h_n = full(x, h0)
    found, last = net(x, h0)
    assert found.shape[0] == -(-length // stride)
    torch.testing.assert_close(last, h_n, rtol=0, atol=EXACT)
    same_with_gradients(found, every[(length - 1) % stride :: stride], [x, h0, *net.parameters()][:2])
    mine = torch.autograd.grad(found.square().sum(), list(net.parameters()))
    theirs = torch.autograd.grad(every[(length - 1) % stride :: stride].square().sum(), list(full.parameters()))
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT * (1 + float(b.abs().max())))
    torch.testing.assert_close(net(x, h0, output="last")[0], found[-1], rtol=0, atol=EXACT)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("length", [1, 4, 5, T])
def test_the_residual_connection_of_a_stride_reads_all_inputs_since_the_reading_before(length, tokens, grouped):
    net, plain = blocks(stride=4, depth=1), blocks(stride=4, depth=1, residual=False)
    plain.load_state_dict({name: value for name, value in net.state_dict().items() if "skip" not in name})
    x = torch.randint(0, I, (length, B)) if tokens else inputs(length, B, I)
    values = nn.functional.one_hot(x, I).double() if tokens else x
    weight = net.blocks[0].skip.weight.view(D, 4, I)
    expected = plain(x)[0].clone()
    for g in range(len(expected)):
        for j in range(4):
            t = length - 1 - 4 * (len(expected) - 1 - g) - (3 - j)
            if t >= 0:
                expected[g] += values[t] @ weight[:, j].mT
    torch.testing.assert_close(net(x)[0], expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(net(x, output="last")[0], expected[-1], rtol=0, atol=EXACT)


@pytest.mark.parametrize(("name", "value"), [("clip_backward", 1e-3), ("linear_transition", True)])
def test_a_stride_heeds_what_its_recurrences_are_told(name, value, grouped):
    """Steps in groups left them out, so that a cost model decided whether gradients are clipped."""
    net, full = blocks(stride=4, depth=1, residual=False), blocks(depth=1, residual=False)
    full.load_state_dict(net.state_dict())
    for network in (net, full):
        setattr(network.blocks[0].recurrence, name, value)
    x = inputs(T, B, I).requires_grad_()
    found, every = net(x)[0], full(x)[0][(T - 1) % 4 :: 4]
    torch.testing.assert_close(found, every, rtol=0, atol=EXACT)
    mine, theirs = (torch.autograd.grad(out.square().sum(), x)[0] for out in (found, every))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)


@pytest.mark.parametrize("options", [{"form": "dense"}, {"bidirectional": True}, {"memory": "checkpoint"}], ids=str)
def test_a_stride_is_the_same_in_every_way_of_running(options, grouped):
    net, plain = blocks(stride=3, **options), blocks(stride=3, **{k: v for k, v in options.items() if k != "form"})
    plain.load_state_dict(net.state_dict())
    x = inputs()
    out = net(x)[0]
    assert out.shape == (4, B, D)
    torch.testing.assert_close(out, plain(x)[0], rtol=0, atol=EXACT)
    torch.testing.assert_close(net(x, output="last")[0], out[-1], rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    "options", [{}, {"decay": True}, {"mixing": "mlp"}, {"norm": "rms"}, {"learn_h0": True}], ids=str
)
@pytest.mark.parametrize("tokens", [False, True])
def test_step_goes_through_a_sequence(options, tokens):
    net = blocks(depth=3, **options)
    x = torch.randint(0, I, (T, B)) if tokens else inputs()
    expected, h_n = net(x)
    h, outs = None, []
    for x_t in x:
        out, h = net.step(x_t, h)
        outs.append(out)
    torch.testing.assert_close(torch.stack(outs), expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(h, h_n, rtol=0, atol=EXACT)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("segment", [None, 1, 4, 50])
@pytest.mark.parametrize("output", ["all", "last"])
def test_checkpoints_change_nothing_but_memory(segment, output):
    net, plain = blocks(depth=3, memory="checkpoint", segment=segment), blocks(depth=3)
    plain.load_state_dict(net.state_dict())
    x, h0 = inputs().requires_grad_(), inputs(3, B, S)
    (found, h_n), (expected, last) = net(x, h0, output=output), plain(x, h0, output=output)
    torch.testing.assert_close(h_n, last, rtol=0, atol=EXACT)
    torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)
    mine = torch.autograd.grad(found.square().sum(), [x, *net.parameters()])
    theirs = torch.autograd.grad(expected.square().sum(), [x, *plain.parameters()])
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT * (1 + float(b.abs().max())))
    with torch.no_grad():
        torch.testing.assert_close(net(x, h0, output=output)[0], found, rtol=0, atol=EXACT)


def test_checkpoints_with_dropout_repeat_their_draws():
    net = blocks(memory="checkpoint", segment=3, dropout=0.5)
    x = inputs().requires_grad_()
    torch.manual_seed(3)
    out = net(x)[0]
    weights = inputs(*out.shape)
    (grad,) = torch.autograd.grad((out * weights).sum(), x)
    direction = inputs(T, B, I)
    ends = []
    for sign in (1, -1):
        torch.manual_seed(3)
        ends.append((net(x + sign * 1e-5 * direction)[0] * weights).sum())
    slope = float((ends[0] - ends[1]).detach()) / 2e-5
    assert slope == pytest.approx(float((grad * direction).sum()), rel=1e-6)


def test_each_block_may_have_its_own_parametrization():
    below, above = Rotations(decay=True, radii=(0.5, 0.6)), Rotations()
    net = OrthogonalBlocks(I, D, S, 3, parametrization=[below, above, above])
    assert net.parametrization == [below, above, above]
    assert f"parametrization={[below, above, above]}" in repr(net)
    radii = [torch.linalg.matrix_norm(block.recurrence.transition_l0.matrix(), 2) for block in net.blocks]
    assert 0.5 <= radii[0] <= 0.6
    torch.testing.assert_close(torch.stack(radii[1:]), torch.ones(2))
    assert OrthogonalBlocks(I, D, S, 2, parametrization=[above, above]).parametrization == above
    assert isinstance(net.fold().parametrization, Unconstrained)
    for wrong in ([], [above], [above, above, above]):
        with pytest.raises(ArgumentError, match=f"for each of 2 blocks, but got {len(wrong)}"):
            OrthogonalBlocks(I, D, S, 2, parametrization=wrong)
    with pytest.raises(ArgumentTypeError, match="one of orthornn's parametrizations"):
        OrthogonalBlocks(I, D, S, 2, parametrization=[above, "rotations"])


@pytest.mark.parametrize("options", [{}, {"memory": "checkpoint"}, {"bidirectional": True}], ids=str)
def test_resets_of_no_sequences(options):
    net = blocks(**options)
    out, h_n = net(inputs(T, 0, I), reset=torch.zeros(T, 0, dtype=torch.bool))
    assert (out.shape, h_n.shape) == ((T, 0, D), (2 * net.num_directions, 0, S))


def test_decay_is_what_the_recurrences_have():
    assert blocks(decay=True).decay
    assert blocks(parametrization=[Rotations(), Rotations(decay=True)]).decay
    assert not blocks(decay=False).decay
    assert blocks().decay
    assert blocks().parametrization == Rotations(decay=True, leaky=0.75)
    assert blocks(radii=(0.5, 0.6)).parametrization == Rotations(decay=True, leaky=0.75, radii=(0.5, 0.6))
    assert blocks(form="rotations").parametrization == Rotations()  # which needs an orthogonal W
    assert not convert(blocks(decay=True), Unconstrained()).decay
    with pytest.raises(ReadOnlyError, match="Expected decay to stay as the network was built"):
        blocks().decay = True


def test_orthogonal_without_decay_and_a_contraction_with_it():
    for decay in (False, True):
        for block in blocks(decay=decay).blocks:
            W = block.recurrence.weight_hh_l0.detach()
            if decay:
                assert float(torch.linalg.matrix_norm(W, 2)) < 1
            else:
                assert orthogonality_error(W) <= tolerance(torch.float64, S)


def test_a_gradient_reaches_the_first_step_of_a_long_sequence_undiminished():
    net = blocks(depth=1, decay=False, mixing="gelu", residual=False)
    (found,) = hidden_gradient_norms(net, inputs(300, 2, I), lambda out: out[-1].sum())
    assert float(found[0]) == pytest.approx(float(found[-1]), rel=1e-9)


def test_fold_has_the_same_outputs():
    for options in ({}, {"decay": True}, {"parametrization": ScaledCayley()}, {"bidirectional": True}):
        net = blocks(**options)
        folded = net.fold()
        torch.testing.assert_close(folded(inputs())[0], net(inputs())[0], rtol=0, atol=EXACT)
        assert folded.parametrization == Unconstrained()


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("k", [1, 2, 3, 13])
def test_powers_of_a_base(n, k):
    c, s = inputs(n), inputs(n)
    identity = torch.eye(n, dtype=torch.float64)
    W, power = (apply_base(identity, base).mT for base in ((c, s), base_power((c, s), k)))
    expected = torch.linalg.matrix_power(W, k)
    torch.testing.assert_close(power, expected, rtol=0, atol=EXACT * (1 + float(expected.abs().max())))


def test_what_it_refuses():
    even, given = "even state_size", "only for pure rotations"
    for options, message in (
        ({"state_size": 7}, even),
        ({"parametrization": Rotations(), "state_size": 7}, even),
        ({"decay": True, "parametrization": ScaledCayley()}, given),
        ({"decay": True, "form": "rotations"}, "form='auto' with decay"),
        ({"parametrization": Rotations(decay=True), "form": "rotations"}, "form='auto' with decay"),
        ({"decay": False, "radii": (0.5, 0.9)}, "radii only with decay=True"),
        ({"decay": "all"}, "decay to be True or False"),
        ({"decay": True, "radii": (0.5, 1.0)}, "0 < low <= high < 1"),
        ({"mixing": "gl"}, "Did you mean 'glu'"),
        ({"norm": "batch"}, "norm to be one of"),
        ({"stride": 0}, "stride to be an integer of at least 1"),
        ({"depth": 0}, "depth to be an integer of at least 1"),
    ):
        sizes = {"input_size": I, "d_model": D, "state_size": S, **options}
        with pytest.raises(ArgumentError, match=message):
            OrthogonalBlocks(**sizes)
    OrthogonalBlocks(I, D, 7, parametrization=ScaledCayley())  # odd sizes are for matrices
    with pytest.raises(ShapeError, match="at least one step"):
        blocks()(inputs(0, B, I))
    with pytest.raises(ArgumentError, match="bidirectional"):
        blocks(bidirectional=True).step(inputs(B, I))
    with pytest.raises(ArgumentError, match="stride=2"):
        blocks(stride=2).step(inputs(B, I))
    packed = nn.utils.rnn.pack_sequence([inputs(3, I), inputs(2, I)])
    with pytest.raises(ArgumentError, match="PackedSequence"):
        blocks(stride=2)(packed)
    with pytest.raises(ArgumentError, match="both hx and h0"):
        blocks()(inputs(), inputs(2, B, S), h0=inputs(2, B, S))
    for h in (inputs(B, S), inputs(3, B, S), inputs(2, B + 1, S)):
        with pytest.raises(ShapeError):
            blocks().step(inputs(B, I), h)
    with pytest.raises(ArgumentError, match="0 < low <= high < 1"):
        Rotations(decay=True, radii=(0.9, 0.5))
    for options in ({"radii": (0.5, 0.9)}, {"leaky": 0.5}):
        with pytest.raises(ArgumentError, match=f"{next(iter(options))} only with decay=True"):
            Rotations(**options)
    with pytest.raises(ArgumentError, match="leaky to be a number between 0 and 1"):
        Rotations(decay=True, leaky=1.5)


def test_a_state_has_twice_as_many_units_as_outputs_have_features():
    net = OrthogonalBlocks(I, 3)
    assert net.state_size == 6
    assert repr(net).startswith("OrthogonalBlocks(\n  2, 3, 6, depth=1, parametrization=")


def test_forms_of_rotations_agree():
    x = inputs()
    for decay, form in itertools.product((False, True), ("dense", "compact_wy", "rotations")):
        if decay and form == "rotations":
            continue
        net, plain = blocks(decay=decay, form=form), blocks(decay=decay)
        plain.load_state_dict(net.state_dict())
        torch.testing.assert_close(net(x)[0], plain(x)[0], rtol=0, atol=EXACT)


def test_a_response_that_overflows_is_not_used(grouped):
    """W = 3 I: the response to one step is infinite after 300 steps, and zeros before the last three steps stay zeros."""
    x = torch.zeros(301, 64, 1)
    x[-3:] = torch.randn(3, 64, 1)
    rnn = OrthogonalRNN(1, 4, nonlinearity="identity", parametrization=Unconstrained(), bias=False)
    rnn.weight_hh_l0 = 3 * torch.eye(4)
    states = rnn(x)[0]
    assert torch.equal(rnn(x, output="last")[0], states[-1])
    net = OrthogonalBlocks(1, 4, 4, parametrization=Unconstrained(), stride=100, bias=False)
    net.blocks[0].recurrence.weight_hh_l0 = 3 * torch.eye(4)
    _, h_n = net(x)
    torch.testing.assert_close(
        h_n[0], x[-3:, :, 0].mT @ (torch.tensor([[9.0], [3.0], [1.0]]) * net.blocks[0].recurrence.weight_ih_l0.mT)
    )


def test_a_step_of_two_wrong_arguments_names_one():
    net = OrthogonalBlocks(2, 3, 4)
    for x in ([1.0, 2.0], 7, torch.tensor(0.5)):
        with pytest.raises(OrthornnError, match="Expected"):
            net.step(x, torch.zeros(4, 2, 4))


class Replaced(nn.Module):
    """A linear layer as tools for quantization and adapters leave it: a module with no weight that can be read."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.inner = linear

    def weight(self) -> Tensor:
        return self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("tokens", [False, True], ids=["vectors", "tokens"])
@pytest.mark.parametrize("stride", [1, 4])
def test_linear_layers_may_be_replaced(stride, tokens):
    net = blocks(stride=stride)
    x = torch.randint(I, (T, B), generator=torch.Generator().manual_seed(2)) if tokens else inputs()
    expected = net(x)[0]
    for block in net.blocks:
        block.mix[0] = Replaced(block.mix[0])
        block.skip = None if block.skip is None else Replaced(block.skip)
    torch.testing.assert_close(net(x)[0], expected, rtol=0, atol=EXACT)
    if stride == 1:
        torch.testing.assert_close(net.step(x[0])[0], expected[0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_weights_with_unitary_states(dtype):
    """There is no 16-bit complex arithmetic: states are complex64, outputs have the dtype of the weights."""
    net = blocks(parametrization=ScaledCayley(field="complex"))
    x, expected = inputs(), net(inputs())[0].detach()
    out, h_n = net.to(dtype)(x.to(dtype))
    assert out.dtype == dtype
    assert h_n.dtype == torch.complex64
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance(dtype, 4) * float(expected.abs().max()))
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("memory", ["store", "checkpoint"])
def test_dropout_is_between_blocks_and_in_training(memory):
    """Nothing is dropped after the last block, everything before it at probability 1, nothing in evaluation."""
    options = {"memory": memory, "segment": 4 if memory == "checkpoint" else None}
    x, two = inputs(), blocks(depth=2, dropout=1.0, **options)
    of_nothing = two.blocks[1](torch.zeros(T, B, D, dtype=torch.float64), SequenceLayout(T, B), None, False)[0]
    torch.testing.assert_close(two(x)[0], of_nothing, rtol=0, atol=EXACT)
    plain = blocks(depth=2)
    plain.load_state_dict(two.state_dict())
    torch.testing.assert_close(two.eval()(x)[0], plain(x)[0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("segment", [1, 4])
def test_checkpoints_of_unequal_sequences_with_episodes(segment, output):
    net, plain = blocks(depth=3, memory="checkpoint", segment=segment), blocks(depth=3)
    plain.load_state_dict(net.state_dict())
    packed = nn.utils.rnn.pack_padded_sequence(inputs(), torch.tensor([5, 11, 1, 4, 8, 8]), enforce_sorted=False)
    generator = torch.Generator().manual_seed(2)
    reset = packed._replace(data=torch.rand(len(packed.data), generator=generator) < 0.3)
    h0, restart = inputs(3, B, S), inputs(3, B, S).flip(0)
    (found, h_n), (expected, last) = (
        each(packed, h0, output=output, reset=reset, restart=restart) for each in (net, plain)
    )
    if output == "all":
        found, expected = found.data, expected.data
    torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(h_n, last, rtol=0, atol=EXACT)


def test_a_bidirectional_network_in_segments_is_itself():
    net, plain = blocks(bidirectional=True, memory="checkpoint", segment=3), blocks(bidirectional=True)
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(inputs())[0], plain(inputs())[0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("residual", [True, False])
def test_the_modules_are_those_that_the_options_name(residual):
    def kinds(**options):
        return [type(module) for module in blocks(residual=residual, **options).blocks[1].mix]

    assert kinds() == [nn.Linear, nn.GLU]
    assert kinds(mixing="gelu") == [nn.Linear, nn.GELU]
    assert kinds(mixing="mlp", expansion=3) == [nn.Linear, nn.GELU, nn.Linear]
    assert blocks(mixing="mlp", expansion=3).blocks[0].mix[0].out_features == 3 * D
    for name, kind in (("layer", nn.LayerNorm), ("rms", nn.RMSNorm), ("none", type(None))):
        net = blocks(norm=name, residual=residual)
        assert [type(block.norm) for block in net.blocks] == [type(None), kind]
        assert [type(block.skip) for block in net.blocks] == [nn.Linear if residual else type(None), type(None)]
    radii = torch.linalg.svdvals(blocks(decay=True, radii=(0.2, 0.3)).blocks[0].recurrence.weight_hh_l0.detach())
    assert 0.2 - EXACT <= float(radii.min()) <= float(radii.max()) <= 0.3 + EXACT


@pytest.mark.parametrize("residual", [True, False])
def test_without_a_residual_connection_a_block_is_its_mixing(residual):
    net = blocks(depth=2, residual=residual)
    x = inputs(T, B, D)
    block = net.blocks[1]
    mixed = block.mix(block.recurrence(block.norm(x))[0])
    found = block(x, SequenceLayout(T, B), None, False)[0]
    torch.testing.assert_close(found, x + mixed if residual else mixed, rtol=0, atol=EXACT)


def test_drawing_again_draws_every_parameter_that_is_drawn():
    net = blocks(depth=2, mixing="mlp")
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    with torch.no_grad():
        for value in net.parameters():
            value.fill_(7.0)
    net.reset_parameters()
    for name, value in net.named_parameters():
        assert not bool((value == 7.0).any()), name
        assert torch.equal(value, before[name]) == ("norm" in name or "bias_ih" in name), name


def test_gradient_norms_of_a_strided_network_are_those_of_every_step():
    net, plain = blocks(depth=1, stride=4, residual=False), blocks(depth=1, residual=False)
    plain.load_state_dict(net.state_dict())
    found = hidden_gradient_norms(net, inputs(), lambda out: out[-1].square().sum())
    want = hidden_gradient_norms(plain, inputs(), lambda out: out[-1].square().sum())
    torch.testing.assert_close(found, want)


def test_blocks_have_states_of_one_field():
    unitary = ScaledCayley(field="complex")
    for methods, where in (([unitary, Rotations()], "block 0"), ([Rotations(), unitary, unitary], "block 1, 2")):
        with pytest.raises(ArgumentError, match=f"all real or all complex, but got complex states only in {where} of"):
            blocks(depth=len(methods), parametrization=methods)
    x, net = inputs(), blocks(parametrization=[unitary, unitary])
    torch.testing.assert_close(net(x[4:], net(x[:4])[1])[0], net(x)[0][4:], rtol=0, atol=EXACT)


def test_options_without_effect_are_refused_or_told():
    with pytest.raises(ArgumentError, match=r"expansion only with mixing='mlp', but got expansion=3 with mixing='glu'"):
        blocks(expansion=3)
    assert blocks(mixing="mlp", expansion=3).blocks[0].mix[0].out_features == 3 * D
    with pytest.warns(UserWarning, match="dropout=0.5 has no effect with one layer"):
        blocks(depth=1, dropout=0.5)
    made = repr(blocks(bias=False, learn_h0=True, form="dense", norm="rms", stride=2)).splitlines()[1]
    assert all(
        f"{option}" in made for option in ("bias=False", "learn_h0=True", "form='dense'", "norm='rms'", "stride=2")
    )


def test_a_state_of_a_step_is_named_with_the_shape_that_it_needs():
    net = blocks()
    for name in ("h", "restart"):
        given = {"h": inputs(2, B, S), "reset": torch.ones(B, dtype=torch.bool), name: inputs(2, 1, S)}
        with pytest.raises(ShapeError, match=rf"Expected {name} to have shape \(2, 6, 8\), but got \(2, 1, 8\)"):
            net.step(inputs(B, I), **given)


def replica(module: nn.Module) -> nn.Module:
    """What DataParallel makes of a module: its parameters are plain tensors."""
    made = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        made._modules[name] = None if child is None else replica(child)
    for name, parameter in module._parameters.items():
        made._parameters[name] = None
        if parameter is not None:
            del made._parameters[name]
            setattr(made, name, parameter.clone())
    return made


@pytest.mark.parametrize("stride", [1, 3])
def test_weights_that_are_no_parameters(stride, grouped):
    """Under torch's reparametrizations and in a replica, in sequences and step by step."""
    net, x = blocks(stride=stride, learn_h0=True), inputs()
    made = replica(net)
    assert not list(made.parameters())
    torch.testing.assert_close(made(x)[0], net(x)[0], rtol=0, atol=EXACT)
    made(x)[0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    plain = blocks(stride=stride, learn_h0=True)
    nn.utils.parametrizations.weight_norm(net.blocks[0].recurrence, "weight_ih_l0")
    nn.utils.parametrizations.weight_norm(net.blocks[1].mix[0])
    out = net(x)[0]
    torch.testing.assert_close(out, plain(x)[0], rtol=0, atol=EXACT)  # the same weights, in two parts
    if stride == 1:
        for one in (made, net):
            torch.testing.assert_close(one.step(x[0])[0], out[0], rtol=0, atol=EXACT)


def test_a_hook_sees_the_residual_connection_of_tokens():
    net, seen = blocks(), []
    net.blocks[0].skip.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    tokens = torch.zeros(T, B, dtype=torch.long)
    net(tokens)
    net.step(tokens[0])
    assert seen == [(T, B, D), (B, D)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", [Rotations(), Rotations(decay=True), ScaledCayley()], ids=repr)
def test_a_stride_in_sixteen_bits_and_in_a_trace(method, grouped):
    net = blocks(stride=3, parametrization=method).eval()
    x = inputs()
    expected = net(x)[0].detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of constants in the trace
        traced = torch.jit.trace(net, (x,))
    torch.testing.assert_close(traced(2 * x)[0], net(2 * x)[0], rtol=0, atol=EXACT)
    for dtype in (torch.bfloat16, torch.float16):
        net = blocks(stride=3, parametrization=method).to(dtype)
        out = net(x.to(dtype))[0]
        assert out.dtype == dtype
        bound = tolerance(dtype, 4) * float(expected.abs().max())
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=bound)
        out.sum().backward()
        assert all(parameter.grad is not None for parameter in net.parameters())
    net = blocks(stride=3, parametrization=method).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x.float())[0]
    bound = tolerance(torch.bfloat16, 4) * float(expected.abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("options", [{}, {"parametrization": Householder(reflections=2)}, {"decay": True}], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_reaches_no_earlier_output_of_a_stride(bad, options, grouped):
    net, x = blocks(stride=3, **options), inputs(11, B, I)  # read after the steps 1, 4, 7, 10
    for output, at, first in (("all", 5, 2), ("all", 4, 1), ("last", 0, 0)):
        given = x.clone()
        given[at, 0, 1] = bad
        found, clean = (net(z, output=output)[0] for z in (given, x))
        found, clean = (out if output == "all" else out.unsqueeze(0) for out in (found, clean))
        assert not found[first:, 0].isfinite().any()
        found = torch.cat([found[:first].flatten(0, 1), found[:, 1:].flatten(0, 1)])
        clean = torch.cat([clean[:first].flatten(0, 1), clean[:, 1:].flatten(0, 1)])
        torch.testing.assert_close(found, clean, rtol=0, atol=EXACT)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batch", [3, 40])  # for one of them the last states, and groups, cost less by the response
@pytest.mark.parametrize("options", [{}, {"stride": 3}, {"stride": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_is_for_any_sizes(strict, output, options, batch):
    """Its example chooses nothing that limits the number of sequences or of steps."""
    stride = options.get("stride", 1)
    if strict and stride > 1:
        pytest.skip("the strict mode of torch.export hides which sizes are open")
    net = blocks(**options).eval()
    # With a stride torch's views of (groups, B, ...) as rows take two of both: a size of 1 is a constant of a graph.
    least, one = (1, 1) if stride == 1 else (stride + 1, 2)
    dims = {0: torch.export.Dim("T", min=least, max=99), 1: torch.export.Dim("B", min=one, max=99)}
    program = torch.export.export(
        net, (inputs(T, batch, I),), {"output": output}, dynamic_shapes={"input": dims, "output": None}, strict=strict
    )
    for length, count in ((T, one), (T, 7), (T, 50), (least, 30), (5, 2), (9, 3), (13, 4)):
        x = inputs(length, count, I)
        found, h_n = program.module()(x, output=output)
        expected, last = net(x, output=output)
        torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)
        torch.testing.assert_close(h_n, last, rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    ("batch", "inputs_", "stride", "method", "expected"),
    [
        (100, 1, 14, None, True),
        (100, 16, 2, None, True),
        (1, 1, 14, None, False),
        (8, 16, 2, None, False),
        (100, 17, 14, None, False),
        (100, 1, 14, ScaledCayley(), True),
        (4, 1, 14, ScaledCayley(), False),
    ],
    ids=str,
)
def test_groups_of_steps_are_for_large_batches(batch, inputs_, stride, method, expected, monkeypatch):
    """Their response and the power of W cost more than the steps of a few sequences."""
    used, every_kth = [], impulse.every_kth
    monkeypatch.setattr(impulse, "every_kth", lambda *given: used.append(1) or every_kth(*given))
    net = OrthogonalBlocks(inputs_, 4, 64, stride=stride, parametrization=method)
    with torch.no_grad():
        net(torch.zeros(784, batch, inputs_))
    assert bool(used) == expected


def test_the_cost_of_groups_falls_with_the_batch_and_rises_with_the_power():
    for m in (0, 2, None):
        chosen = [groups_pay(128, m, 1, batch, 300, 10) for batch in (1, 4, 16, 64, 256, 1024)]
        assert chosen == sorted(chosen)
        assert chosen[0] is False
        assert chosen[-1] is True
        assert not groups_pay(128, m, 1, 10**9, 300, 1)  # nothing is saved
        assert not groups_pay(128, m, 10**9, 64, 300, 10)
    assert not groups_pay(256, None, 1, 8, 784, 14)  # the power of W costs more than the steps


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_segments_build_a_transition_once(method, monkeypatch):
    """Values and gradients are those of the whole, with resets, sequences of unequal lengths, and each form."""
    x, reset = inputs(), torch.rand(T, B, generator=torch.Generator().manual_seed(0)) < 0.3
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 11, 1, 11, 7, 2]), enforce_sorted=False)
    for form in ("auto", "dense", "operator"):
        options = {"parametrization": method, "form": form, "depth": 2}
        net, plain = blocks(memory="checkpoint", segment=2, **options), blocks(**options)
        plain.load_state_dict(net.state_dict())
        for given, more in ((x, {"reset": reset}), (packed, {}), (packed, {"output": "last"}), (x, {"output": "last"})):
            found, expected = net(given, **more), plain(given, **more)
            torch.testing.assert_close(found[1], expected[1], rtol=0, atol=EXACT)
            mine, theirs = (one[0] if isinstance(one[0], Tensor) else one[0].data for one in (found, expected))
            torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)
            for a, b in zip(
                torch.autograd.grad(mine.square().sum(), list(net.parameters())),
                torch.autograd.grad(theirs.square().sum(), list(plain.parameters())),
            ):
                torch.testing.assert_close(a, b, rtol=0, atol=EXACT * (1 + float(b.abs().max())))
    if method.bind(S).num_reflections == 0:
        return
    net, built = blocks(memory="checkpoint", segment=2, parametrization=method), []
    kind = type(net.blocks[0].recurrence.transition_l0.method)
    for name in ("forward", "compact"):
        original = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, *free, name=name, original=original: built.append(name) or original(self, *free)
        )
    net(x)[0].sum().backward()
    assert max(built.count(name) for name in set(built)) <= 2 * net.depth  # not once per segment and pass


def linear(method: object, **options: object) -> OrthogonalRNN:
    torch.manual_seed(0)
    options = {"nonlinearity": "identity", "parametrization": method, "dtype": torch.float64, **options}
    return OrthogonalRNN(I, S, **options)


def test_a_trained_state_that_is_zero_has_its_gradient():
    """Zeros are the state from which the response begins, but only those that nothing trains."""
    rnn, x, h0 = linear(Rotations()), inputs(T, B + 2, I), torch.zeros(1, B + 2, S, dtype=torch.float64)
    h0.requires_grad_()
    same_with_gradients(rnn(x, h0, output="last")[0], by_steps(rnn, x, h0)[-1], [h0])


@pytest.mark.parametrize("method", [Rotations(), Householder(reflections=2)], ids=repr)
def test_last_states_of_sequences_that_restart_or_have_unequal_lengths(method):
    rnn, x = linear(method, learn_h0=True), inputs(T, B + 2, I)
    reset = torch.rand(T, B + 2, generator=torch.Generator().manual_seed(2)) < 0.3
    found, every = rnn(x, output="last", reset=reset)[0], rnn(x, reset=reset)[0]
    torch.testing.assert_close(found, every[-1], rtol=0, atol=EXACT)
    h = None
    for x_t, reset_t in zip(x, reset):
        out, h = rnn.step(x_t, h, reset_t)
    torch.testing.assert_close(found, out, rtol=0, atol=EXACT)
    lengths = [T, T, T, 7, 4, 4, 2, 1]
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
    found = rnn(packed, output="last")[0]
    for k, length in enumerate(lengths):
        torch.testing.assert_close(found[k], by_steps(rnn, x[:length, k : k + 1])[-1, 0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("restart", ["own", "zeros", "common", "different"])
@pytest.mark.parametrize(
    "options",
    [{"learn_h0": True}, {"bias": False}, {"gain": 0.9, "learn_gain": True}, {"parametrization": ScaledCayley()}],
)
def test_the_response_serves_sequences_that_restart(options, restart, monkeypatch):
    """Values and gradients are those of the step loop; an earlier episode may hold anything."""
    used, response = [], impulse.response
    monkeypatch.setattr(impulse, "response", lambda *given: used.append(1) or response(*given))
    count, options = 40, dict(options)
    rnn = linear(options.pop("parametrization", Rotations()), **options)
    x = inputs(T, count, I).requires_grad_()
    reset = torch.rand(T, count, generator=torch.Generator().manual_seed(2)) < 0.15
    assert not reset.any(0).all()
    reset[0, 0] = reset[-1, 1] = True
    given = {
        "own": None,
        "zeros": torch.zeros(1, count, S, dtype=torch.float64),
        "common": inputs(1, 1, S).expand(-1, count, -1),
        "different": inputs(1, count, S),
    }[restart]
    found = rnn(x, output="last", reset=reset, restart=given)[0]
    assert bool(used) == (restart in ("own", "zeros"))  # an expanded state is made one with a row per sequence
    h, expected = rnn.initial_states(count), None
    for x_t, reset_t in zip(x, reset):
        expected, h = rnn.step(x_t, h, reset_t, given)
    same_with_gradients(found, expected, [x, *rnn.parameters()])
    last = reset.long().mul(torch.arange(T).unsqueeze(1)).amax(0)
    spoiled = x.detach().clone()
    spoiled[torch.arange(T).unsqueeze(1) < last] = torch.nan
    torch.testing.assert_close(rnn(spoiled, output="last", reset=reset, restart=given)[0], found)


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("options", [{}, {"depth": 2, "learn_h0": True}, {"depth": 2, "memory": "checkpoint"}], ids=str)
def test_strided_blocks_read_each_episode_alone(options, output):
    """Each output is the last one of a call with the episode up to that step."""
    steps, stride = 23, 4
    net, x = blocks(stride=stride, **options), inputs(steps, B, I).requires_grad_()
    reset = torch.rand(steps, B, generator=torch.Generator().manual_seed(3)) < 0.15
    h, restart = (inputs(net.depth, B, S) for _ in range(2))
    found, h_n = net(x, h, output, reset=reset, restart=restart)
    for k in range(B):
        starts = [0, *(t for t in reset[:, k].nonzero().flatten().tolist() if t), steps]
        for first, last in itertools.pairwise(starts):
            read = [t for t in range(first, last) if (steps - 1 - t) % stride == 0]
            begun = (restart if reset[first, k] else h)[:, k : k + 1]
            for t in read if output == "all" else read[-1:] if last == steps else []:
                alone, after = net(x[first : t + 1, k : k + 1], begun, "last")
                mine = found[k] if output == "last" else found[-1 - (steps - 1 - t) // stride, k]
                torch.testing.assert_close(mine, alone[0], rtol=0, atol=EXACT)
                if t == steps - 1:
                    torch.testing.assert_close(h_n[:, k : k + 1], after, rtol=0, atol=EXACT)
    if output == "last":
        return
    (gradient,) = torch.autograd.grad(found[-1].sum(), x)
    since = reset.long().mul(torch.arange(steps).unsqueeze(1)).amax(0)
    assert not gradient[torch.arange(steps).unsqueeze(1) < since].any()


@pytest.mark.parametrize("options", [{"gain": 0.5}, {"gain": 0.5, "learn_gain": True}, {"learn_gain": True}], ids=str)
def test_last_states_with_a_gain(options):
    rnn, x = linear(Rotations(), **options), inputs(T, B + 2, I).requires_grad_()
    same_with_gradients(rnn(x, output="last")[0], by_steps(rnn, x)[-1], [x, *rnn.parameters()])


@pytest.mark.parametrize("method", [Rotations(), Rotations(decay=True), ScaledCayley()], ids=repr)
@pytest.mark.parametrize("options", [{"gain": 0.9}, {"gain": 1.1, "learn_gain": True}], ids=str)
def test_every_kth_state_with_a_gain(method, options):
    rnn, x = linear(method, **options), inputs(12, B, I)
    (layer,) = rnn.layers()
    h0 = inputs(B, S).requires_grad_()
    found = layer.every_kth(x, h0, 4, Settings())
    same_with_gradients(found, by_steps(rnn, x, h0.unsqueeze(0))[3::4], [h0, *rnn.parameters()])


@pytest.mark.parametrize("method", [Rotations(), ScaledCayley()], ids=repr)
def test_every_kth_state_is_refused_where_the_power_of_the_gain_overflows(method):
    """The states themselves stay finite: they are zero."""
    (layer,) = linear(method, gain=1e300, bias=False).layers()
    zeros = torch.zeros(4, B, I, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih.zero_()
        assert layer.every_kth(zeros, torch.zeros(B, S, dtype=torch.float64), 4, Settings()) is None


def test_last_states_of_a_unitary_layer_and_with_clipped_gradients():
    rnn, x = linear(ScaledCayley(field="complex")), inputs(T, B + 2, I).requires_grad_()
    torch.testing.assert_close(rnn(x, output="last")[0], by_steps(rnn, x)[-1], rtol=0, atol=EXACT)
    rnn = linear(Rotations(), clip_backward=0.1)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (rnn(x, output="last")[0], rnn(x)[0][-1])]
    torch.testing.assert_close(*grads, rtol=0, atol=EXACT)
    assert not torch.equal(grads[0], torch.autograd.grad(linear(Rotations())(x)[0][-1].square().sum(), x)[0])


@pytest.fixture
def in_groups(monkeypatch):
    """The first block of a network with a stride takes groups of steps, whatever that costs."""
    monkeypatch.setattr(forms, "groups_pay", lambda *sizes: True)


def test_a_power_that_overflows_is_not_used(in_groups):
    """W^100 = 3^100 is infinite in float32, and the response is not, since no input reaches that unit."""
    net = OrthogonalBlocks(1, 4, 4, parametrization=Unconstrained(), stride=100, bias=False)
    net.blocks[0].recurrence.weight_hh_l0 = torch.diag(torch.tensor([3.0, 1.0, 1.0, 1.0]))
    with torch.no_grad():
        net.blocks[0].recurrence.weight_ih_l0[0] = 0
    out, h_n = net(torch.ones(301, 2, 1))
    assert bool(out.isfinite().all())
    assert float(h_n[0, 0, 0].detach()) == 0.0


@pytest.mark.parametrize("method", [Rotations(), ScaledCayley()], ids=repr)
def test_a_power_is_as_precise_as_its_dtype(method, in_groups):
    """Powers of W in float32 would lose a digit every three squarings."""
    k = 1024
    net = OrthogonalBlocks(1, 4, S, parametrization=method, stride=k, bias=False)
    x, h = torch.zeros(k + 1, 2, 1), torch.randn(1, 2, S, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        start = net(x[:1], h)[1][0]
        (layer,) = net.blocks[0].recurrence.layers()
        compact = layer.transition.compact()
        if compact is not None:
            W = apply_base(torch.eye(S, dtype=torch.float64), tuple(t.double() for t in compact[1])).mT
        else:
            W = layer.matrix().double()
        expected = start.double() @ torch.linalg.matrix_power(W, k).mT
        found = net(x, h)[1][0].double()
    assert float((found - expected).norm() / expected.norm()) < 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("memory", ["store", "checkpoint"])
def test_dropout_is_between_blocks_in_training_only(memory):
    """Of the outputs of all blocks but the last: with p = 1 the last block reads zeros, and none of its outputs is zero."""
    net, x = blocks(dropout=1.0, norm="none", memory=memory), inputs()
    out = net(x)[0]
    assert bool((out != 0).all())
    last = net.blocks[1]
    layout = SequenceLayout(T, B)
    expected = last(torch.zeros(T, B, D, dtype=torch.float64), layout, None, False)[0]
    torch.testing.assert_close(out, expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(net.eval()(x)[0], blocks(norm="none")(x)[0], rtol=0, atol=EXACT)
    torch.testing.assert_close(net.train().step(x[0])[0], net.eval()(x[:1])[0][0], rtol=0, atol=EXACT)


def test_reset_parameters_draws_all_of_them():
    net = blocks(depth=3, learn_h0=True, mixing="mlp")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7.0)
    net.reset_parameters()
    for name, value in net.state_dict().items():
        assert not bool((value == 7.0).any()), name
        if ".norm." in name or "bias_ih" in name:
            assert torch.equal(value, before[name])
        elif value.is_floating_point():
            assert not torch.equal(value, before[name]), name


def test_norms_are_torchs():
    x = inputs()
    for name, kind in (("layer", nn.LayerNorm), ("rms", nn.RMSNorm)):
        net = blocks(norm=name)
        assert [type(block.norm) for block in net.blocks] == [type(None), kind]
        assert float((net(x)[0] - blocks(norm="none")(x)[0]).detach().abs().max()) > 0.01


@pytest.mark.parametrize("options", [{"stride": 3}, {"bidirectional": True}], ids=str)
def test_memory_is_that_of_each_recurrence_where_blocks_share_no_segments(options):
    net = blocks(memory="checkpoint", segment=2, **options)
    assert [(block.recurrence.memory, block.recurrence.segment) for block in net.blocks] == [("checkpoint", 2)] * 2
    net.set_memory("store")
    assert [block.recurrence.memory for block in net.blocks] == ["store", "store"]


def test_segments_with_no_sequences_under_transforms_and_from_a_restart():
    net, plain = blocks(memory="checkpoint", segment=2), blocks()
    out, h_n = net(inputs(T, 0, I))
    assert (out.shape, h_n.shape) == ((T, 0, D), (2, 0, S))
    x = inputs(2, T, B, I)
    found = torch.vmap(lambda one: net(one)[0])(x)
    torch.testing.assert_close(found[1], plain(x[1])[0], rtol=0, atol=EXACT)
    slope = torch.func.grad(lambda one: net(one)[0].square().sum())(x[0])
    leaf = x[0].clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(plain(leaf)[0].square().sum(), leaf)[0], rtol=0, atol=1e-9)
    reset, restart = torch.rand(T, B, generator=torch.Generator().manual_seed(0)) < 0.4, inputs(2, B, S)
    for one in (net, plain):
        again = one(x[0], reset=reset, restart=restart)[0]
        h = None
        for t in range(T):
            y, h = plain.step(x[0, t], h, reset[t], restart)
            torch.testing.assert_close(again[t], y, rtol=0, atol=EXACT)


def test_hooks_see_all_steps_of_a_stride(in_groups):
    net, seen = blocks(stride=3), []
    net.blocks[0].recurrence.register_forward_hook(lambda module, given, out: seen.append(out[0].shape[0]))
    net(inputs())
    assert seen == [T]


def test_last_outputs_of_two_directions_and_unequal_lengths():
    net, x, lengths = blocks(bidirectional=True), inputs(), [4, T, 1, T, 7, 2]
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    found, h_n = net(packed, output="last")
    for k, length in enumerate(lengths):
        out, last = net(x[:length, k : k + 1])
        torch.testing.assert_close(found[k], out[-1, 0], rtol=0, atol=EXACT)
        torch.testing.assert_close(h_n[:, k], last[:, 0], rtol=0, atol=EXACT)


def test_a_memory_that_is_refused_changes_nothing():
    network = OrthogonalBlocks(2, 8, state_size=6, form="operator", bidirectional=True)
    with pytest.raises(ArgumentError):
        network.set_memory("checkpoint")
    assert network.memory == "store"
    assert all(block.recurrence.memory == "store" for block in network.blocks)
