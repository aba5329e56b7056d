"""Networks of rotations over irregular time: what they compute, in every way of running, and what refuses it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from orthornn import (
    DeltaRNN,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    PeepholeLSTM,
    ReflectionRNN,
    Rotations,
)
from orthornn.errors import ArgumentError, DTypeError, ShapeError

METHODS = {
    "orthogonal": Rotations(),
    "decay": Rotations(decay=True, radii=(0.5, 0.9)),
    "part": Rotations(decay=True, leaky=0.5, radii=(0.5, 0.9)),
}


def linear(method: str = "part", n: int = 7, **options: object) -> OrthogonalRNN:
    torch.manual_seed(0)
    options = {"nonlinearity": "identity", "parametrization": METHODS[method], "dtype": torch.float64, **options}
    return OrthogonalRNN(3, n, **options)


def blocks(**options: object) -> OrthogonalBlocks:
    torch.manual_seed(0)
    return OrthogonalBlocks(3, 5, **{"state_size": 8, "depth": 2, "dtype": torch.float64, **options})


def inputs(steps: int = 9, batch: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, batch, 3, dtype=torch.float64, generator=generator)
    return x, torch.randn(steps, batch, dtype=torch.float64, generator=generator).exp()


NETWORKS = {
    **{method: lambda method=method, **options: linear(method, **options) for method in METHODS},
    "two_layers": lambda **options: linear(num_layers=2, **options),
    "trained_h0": lambda **options: linear(learn_h0=True, n=6, **options),
    "linear_transition": lambda **options: linear(linear_transition=True, nonlinearity="tanh", **options),
    "blocks": blocks,
    "blocks_without_decay": lambda **options: blocks(decay=False, norm="rms", mixing="mlp", learn_h0=True, **options),
}
every = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
close = {"rtol": 1e-11, "atol": 1e-11}


@pytest.mark.parametrize("make", [*(NETWORKS[name] for name in METHODS), NETWORKS["trained_h0"]])
def test_half_of_the_samples_end_where_all_do_with_zeros_between(make):
    """A step of dt = 2 is two steps, the first with no input. Of one layer: one above it reads states that are not zero."""
    net = make(bias=False)
    x, _ = inputs(10)
    full = torch.zeros(20, 4, 3, dtype=torch.float64)
    full[1::2] = x
    states, h_n = net(full)
    some, last = net(x, dt=torch.full((10, 4), 2.0, dtype=torch.float64))
    torch.testing.assert_close(last, h_n, **close)
    torch.testing.assert_close(some, states[1::2], **close)


@every
def test_one_everywhere_is_the_same_bits(make):
    net = make()
    x, _ = inputs()
    ones = torch.ones(9, 4)
    for own, other in zip(net(x, dt=ones), net(x)):
        assert torch.equal(own, other)
    for own, other in zip(net.step(x[0], dt=ones[0]), net.step(x[0])):
        assert torch.equal(own, other)
    # To rounding where the time is a variable, which takes the way of any time.
    for own, other in zip(net(x, dt=ones.requires_grad_()), net(x)):
        torch.testing.assert_close(own, other, **close)


@every
def test_steps_go_through_a_sequence(make):
    net = make()
    x, dt = inputs()
    reset = torch.rand(9, 4, generator=torch.Generator().manual_seed(2)) < 0.3
    out, h_n = net(x, reset=reset, dt=dt)
    h, outs = None, []
    for t in range(9):
        o, h = net.step(x[t], h, reset=reset[t], dt=dt[t])
        outs.append(o)
    torch.testing.assert_close(torch.stack(outs), out, **close)
    torch.testing.assert_close(h, h_n, **close)


@every
def test_layouts_are_one_network(make):
    net, other = make(), make(batch_first=True)
    x, dt = inputs()
    out, h_n = net(x, dt=dt)
    out_b, h_b = other(x.transpose(0, 1), dt=dt.mT)
    assert torch.equal(out_b.transpose(0, 1), out)
    assert torch.equal(h_b, h_n)
    torch.testing.assert_close(net(x[:, 2], dt=dt[:, 2])[0], out[:, 2], **close)
    torch.testing.assert_close(net(x, output="last", dt=dt)[0], out[-1], **close)
    o, _ = net.step(x[0, 1], dt=dt[0, 1])
    torch.testing.assert_close(o, out[0, 1], **close)


@every
def test_unequal_lengths(make):
    net = make()
    x, dt = inputs()
    lengths = torch.tensor([4, 9, 1, 7])
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    for b, length in enumerate(lengths):
        dt[length:, b] = 0.0  # what pads it is no time
    out, h_n = net(packed, dt=dt)
    also, _ = net(packed, dt=pack_padded_sequence(dt, lengths, enforce_sorted=False))
    assert torch.equal(also.data, out.data)
    padded, _ = pad_packed_sequence(out)
    for b, length in enumerate(lengths):
        alone, last = net(x[:length, b : b + 1], dt=dt[:length, b : b + 1])
        torch.testing.assert_close(padded[:length, b : b + 1], alone, **close)
        torch.testing.assert_close(h_n[:, b : b + 1], last, **close)


@every
@pytest.mark.parametrize("output", ["all", "last"])
def test_checkpoints_change_nothing_but_memory(make, output):
    results = []
    for options in ({}, {"memory": "checkpoint", "segment": 2}):
        net = make(**options)
        x, dt = (t.requires_grad_() for t in inputs())
        h0 = net.initial_states(4).detach().add(0.3).requires_grad_()
        reset = torch.rand(9, 4, generator=torch.Generator().manual_seed(2)) < 0.2
        out, h_n = net(x, h0, output, reset=reset, dt=dt)
        loss = out.square().sum() + h_n.sin().sum()
        results.append((out, h_n, *torch.autograd.grad(loss, [x, dt, h0, *net.parameters()], allow_unused=True)))
    for stored, recomputed in zip(*results):
        assert (stored is None) == (recomputed is None)
        if stored is not None:
            torch.testing.assert_close(recomputed, stored, **close)


@every
def test_gradients_against_differences(make):
    net = make()
    x, dt = (t.requires_grad_() for t in inputs(4, 2))
    parameters = dict(net.named_parameters())

    def function(x: Tensor, dt: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        return torch.func.functional_call(net, dict(zip(parameters, values)), (x,), {"dt": dt})

    leaves = [p.detach().clone().requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(function, (x, dt, *leaves), fast_mode=True)


@pytest.mark.parametrize("make", [NETWORKS["part"], blocks], ids=["rnn", "blocks"])
def test_backwards_the_time_between_two_steps_is_the_same(make):
    net, x_dt = make(bidirectional=True), inputs()
    x, dt = x_dt
    if isinstance(net, OrthogonalBlocks):
        assert net(x, dt=dt)[0].shape == (9, 4, 5)
        net = net.blocks[0].recurrence
    out, h_n = net(x, dt=dt)
    one_way = OrthogonalRNN(3, net.hidden_size, nonlinearity="identity", parametrization=net.parametrization).double()
    found = {name: value for name, value in net.state_dict().items() if "_reverse" in name}
    one_way.load_state_dict({name.replace("_reverse", ""): value for name, value in found.items()})
    back = torch.cat([torch.ones(1, 4, dtype=torch.float64), dt[1:].flip(0)])
    states, last = one_way(x.flip(0), dt=back)
    torch.testing.assert_close(out[..., net.hidden_size :], states.flip(0), **close)
    torch.testing.assert_close(h_n[1:], last, **close)


def test_a_readout_reads_the_states():
    net, readout = linear(), nn.Linear(7, 2, dtype=torch.float64)
    x, dt = inputs()
    torch.testing.assert_close(net.forward_readout(x, readout, dt=dt), readout(net(x, dt=dt)[0]), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_times_are_as_precise_as_they_are_given(dtype):
    """float64 times next to narrower weights: 1e5 turns are known to the last digit of the state."""
    net = linear("orthogonal").to(dtype)
    h0, x = torch.ones(1, 1, 7, dtype=dtype), torch.zeros(1, 1, 3, dtype=dtype)
    dt = torch.full((1, 1), 123456.789, dtype=torch.float64)
    wide = linear("orthogonal").to(dtype).double()
    wide.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    (_, found), (_, exact) = net(x, h0, dt=dt), wide(x.double(), h0.double(), dt=dt)
    assert found.dtype == dtype
    assert float((found.double() - exact).detach().abs().max()) <= 2 * torch.finfo(dtype).eps


def test_under_autocast_as_without():
    net, (x, dt) = linear().float(), inputs()
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = net(x.float(), dt=dt)
    assert out.dtype == torch.bfloat16
    exact, _ = net(x.float(), dt=dt)
    torch.testing.assert_close(out.float(), exact, rtol=2**-8, atol=1e-6)


def test_an_exported_program_takes_times():
    net, (x, dt) = linear().eval(), inputs()
    program = torch.export.export(net, (x,), {"dt": dt}).module()
    torch.testing.assert_close(program(x, dt=dt)[0], net(x, dt=dt)[0], **close)


REFUSED = {
    "nonlinearity='tanh'": lambda: OrthogonalRNN(3, 4, nonlinearity="tanh"),
    "parametrization=Householder(": lambda: OrthogonalRNN(3, 4, nonlinearity="identity", parametrization=Householder()),
    "gain=0.5": lambda: linear(gain=0.5),
    "learn_gain=True": lambda: linear(learn_gain=True),
    "clip_backward=1.0": lambda: linear(clip_backward=1.0),
    "form='dense'": lambda: linear(form="dense"),
    "stride=2": lambda: blocks(stride=2),
    "ReflectionRNN": lambda: ReflectionRNN(3, 4),
    "DeltaRNN": lambda: DeltaRNN(3, 4),
    "PeepholeLSTM": lambda: PeepholeLSTM(3, 4),
    "got parametrization=": lambda: linear().fold(),
}


@pytest.mark.parametrize("found", REFUSED)
def test_networks_that_are_not_exact_between_steps_refuse_times(found):
    net = REFUSED[found]()
    x = torch.zeros(5, 2, 3, dtype=next(net.parameters()).dtype)
    for times in (torch.full((5, 2), 2.0), torch.ones(5, 2)):
        with pytest.raises(ArgumentError, match=r"linear recurrence of rotations.*leave dt out") as error:
            net(x, dt=times)
        assert found in str(error.value)
    if found != "stride=2":
        with pytest.raises(ArgumentError, match="linear recurrence of rotations"):
            net.step(x[0], dt=torch.ones(2))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none(bad):
    net, (x, dt) = linear(), inputs()
    dt[3, 1] = bad
    with pytest.raises(
        ArgumentError, match=r"Expected dt to be positive and finite, but got values from .* Pass the time"
    ):
        net(x, dt=dt)
    with pytest.raises(ArgumentError, match="Expected dt to be positive and finite"):
        net.step(x[3], dt=dt[3])


def test_times_of_another_kind():
    net, (x, dt) = linear(), inputs()
    for wrong in (dt[:-1], dt.mT, dt[:, 0], dt.unsqueeze(-1)):
        with pytest.raises(ShapeError, match=r"Expected dt of shape \(9, 4\)"):
            net(x, dt=wrong)
    with pytest.raises(ShapeError, match=r"Expected dt of shape \(4,\)"):
        net.step(x[0], dt=dt[0, 0])
    with pytest.raises(DTypeError, match="Expected dt in a floating-point dtype"):
        net(x, dt=dt.long())


def test_the_time_goes_where_the_reset_goes_in_every_combination():
    """Both directions, ragged or not, checkpointed or not: the states of one sequence do not depend on its company."""
    x, dt = inputs(6, 3)
    reset = torch.rand(6, 3, generator=torch.Generator().manual_seed(5)) < 0.3
    lengths = torch.tensor([6, 2, 5])
    for both, memory in itertools.product((False, True), ("store", "checkpoint")):
        net = linear(bidirectional=both, memory=memory)
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, _ = net(packed, reset=reset, dt=dt)
        padded, _ = pad_packed_sequence(out)
        for b, length in enumerate(lengths):
            alone, _ = net(x[:length, b], reset=reset[:length, b], dt=dt[:length, b])
            torch.testing.assert_close(padded[:length, b], alone, **close)
