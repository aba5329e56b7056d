"""OrthogonalRNN's memory modes: layers, directions, packed and token inputs, complex states, all like `store`."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint

from orthornn import (
    Householder,
    MatrixExponential,
    OrthogonalBlocks,
    OrthogonalRNN,
    RestrictedUnitary,
    ScaledCayley,
    Stiefel,
    Unconstrained,
)
from orthornn.doctor import choice
from orthornn.errors import ArgumentError
from orthornn.learn.systems import MODEL_OPTIONS, MODELS, build
from orthornn.rotation_basis import forget, rotations_of
from support.tolerances import tolerance

SEQUENCES = [torch.randn(length, 3, generator=torch.Generator().manual_seed(length)).double() for length in (5, 9, 2)]
INPUTS = {
    "batch": torch.stack([SEQUENCES[1]] * 2, dim=1),
    "unbatched": SEQUENCES[1],
    "packed": pack_sequence(SEQUENCES, enforce_sorted=False),
    "tokens": torch.arange(18).view(9, 2) % 3,
}
NETWORKS = {
    "layers": {"num_layers": 3, "nonlinearity": "oplu"},
    "directions": {"bidirectional": True, "num_layers": 2, "parametrization": ScaledCayley(negatives=3)},
    "learned": {"learn_h0": True, "learn_gain": True, "nonlinearity": "tanh", "clip_backward": 0.3},
    "reflections": {"parametrization": Householder(reflections=2, base="rotations")},
    "linear": {"nonlinearity": "identity", "parametrization": Stiefel()},
    "linear transition": {"linear_transition": True, "nonlinearity": "relu"},
    "as rotations": {"nonlinearity": "identity", "parametrization": Stiefel(), "form": "rotations"},
    "unitary": {"parametrization": Stiefel(field="complex")},
    "exponential": {"parametrization": MatrixExponential(field="complex"), "nonlinearity": "identity", "bias": False},
    "FFT": {"parametrization": RestrictedUnitary()},
}


def gradients(rnn: OrthogonalRNN, x, output: str) -> list[torch.Tensor]:
    out, h_n = rnn(x, output=output)
    out = out.data if not isinstance(out, torch.Tensor) else out
    loss = sum((t * t.conj()).real.sum() for t in (out, h_n))
    found = torch.autograd.grad(loss, list(rnn.parameters()), allow_unused=True, materialize_grads=True)
    return [loss.detach(), *found]


@pytest.mark.parametrize("nonlinearity", ["oplu", "modrelu"])
@pytest.mark.parametrize("shape", [(4, 0, 3), (0, 2, 3)])
def test_nothing_in_every_mode(nonlinearity, shape):
    rnn = OrthogonalRNN(3, 6, nonlinearity=nonlinearity)
    rnn.bias_ih_l0.data.abs_()
    for mode in ("store", "checkpoint"):
        rnn.set_memory(mode)
        out, h_n = rnn(torch.zeros(shape))
        assert (out.shape, h_n.shape) == ((*shape[:2], 6), (1, shape[1], 6))
        (out.sum() + h_n.sum()).backward()


@pytest.mark.sampled(15)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_store(name, inputs, output):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(3, 6, dtype=torch.float64, **NETWORKS[name])
    for parameter_name, parameter in rnn.named_parameters():
        if parameter_name.startswith("bias") and rnn.nonlinearity in ("modrelu", "complex_modrelu"):
            parameter.data.abs_()
    stored = gradients(rnn, INPUTS[inputs], output)
    rnn.set_memory("checkpoint", segment=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradients(rnn, INPUTS[inputs], output)
    for got, want in zip(found, stored):
        bound = tolerance(torch.float64, 9 * 12) * (1 + float(want.abs().max()))
        torch.testing.assert_close(got, want, rtol=0, atol=bound)


def test_layers_in_lockstep_keep_no_states_of_a_segment():
    T = 400
    rnn = OrthogonalRNN(1, 8, 3, memory="checkpoint", segment=10)
    x, saved = torch.randn(T, 2, 1), {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = rnn(x, output="last")[0].sum()
    own = sum(p.numel() for p in rnn.parameters())
    assert sum(saved.values()) <= T * 2 + 3 * 2 * 8 * T / 10 + 20 * own
    assert sum(saved.values()) < T * 2 * 8  # the states of one layer
    loss.backward()
    assert rnn.weight_ih_l0.grad.abs().max() > 0


IN_SEGMENTS = {
    "layers": lambda **options: OrthogonalRNN(3, 8, 2, nonlinearity="identity", **options),
    "modrelu": lambda **options: OrthogonalRNN(3, 8, 2, **options),
    "transition": lambda **options: OrthogonalRNN(3, 8, 2, nonlinearity="tanh", linear_transition=True, **options),
    "blocks of rotations": lambda **options: OrthogonalBlocks(3, 4, 8, 1, learn_h0=True, **options),
    "blocks of reflections": lambda **options: OrthogonalBlocks(3, 4, 8, 1, parametrization=Householder(), **options),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_states_are_not_rounded_between_segments(name, low, autocast):
    torch.manual_seed(0)
    net = IN_SEGMENTS[name](dtype=None if autocast else low)
    sequences = [0.1 * torch.randn(length, 3).to(next(net.parameters()).dtype) for length in (150, 200, 40)]
    x = pack_sequence(sequences, enforce_sorted=False)
    reset = torch.rand(200, 3) < 0.01
    with torch.autocast("cpu", low, enabled=autocast):
        want = net(x, output="last", reset=reset)[1].detach()
        for segment in (1, 7, 64, None):
            net.set_memory("checkpoint", segment)
            for enabled in (False, True):
                with torch.set_grad_enabled(enabled):
                    found = net(x, output="last", reset=reset)[1]
                assert found.dtype == want.dtype
                bound = torch.finfo(found.dtype).eps if found.dtype == low else tolerance(torch.float32, 200)
                assert float((found.detach() - want).abs().max()) <= bound * float(want.abs().max())
    found.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in net.parameters())


def test_layers_in_lockstep_pass_gradients_to_inputs_and_higher_derivatives():
    rnn = OrthogonalRNN(2, 4, 2, nonlinearity="tanh", dtype=torch.float64, memory="checkpoint", segment=3)
    x, h0 = torch.randn(7, 1, 2).double().requires_grad_(), torch.randn(2, 1, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, h0: rnn(x, h0, output="last"), (x, h0))
    assert torch.autograd.gradgradcheck(lambda x, h0: rnn(x, h0, output="last")[0], (x, h0))
    packed = pack_sequence(SEQUENCES, enforce_sorted=False)
    data = packed.data.requires_grad_()
    other = OrthogonalRNN(3, 4, 2, nonlinearity="tanh", dtype=torch.float64, memory="checkpoint", segment=4)
    again = lambda data: other(packed._replace(data=data), output="last")  # noqa: E731
    assert torch.autograd.gradcheck(again, (data,))


LOCKSTEP = {
    "layers": lambda: OrthogonalRNN(2, 4, 2, dtype=torch.float64, learn_gain=True, memory="checkpoint", segment=3),
    "a matrix": lambda: OrthogonalRNN(
        2,
        4,
        2,
        parametrization=Unconstrained(),
        nonlinearity="tanh",
        dtype=torch.float64,
        memory="checkpoint",
        segment=3,
    ),
    "linear transition": lambda: OrthogonalRNN(
        2, 4, linear_transition=True, dtype=torch.float64, memory="checkpoint", segment=3
    ),
    "blocks": lambda: OrthogonalBlocks(2, 3, 4, 2, dtype=torch.float64, memory="checkpoint", segment=3),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOCKSTEP)
def test_what_changes_before_it_is_read_again_is_an_error(name):
    """An optimizer's step between the passes, or a mask written over: recomputed states would be those of another network."""
    net = LOCKSTEP[name]()
    x, reset = torch.randn(8, 3, 2, dtype=torch.float64), torch.rand(8, 3) < 0.3
    hx = net.initial_states(3)
    restart, wanted = torch.randn_like(hx), [p for p in net.parameters() if p.numel()]

    def gradients(changed):
        out = net(x, hx, output="last", reset=reset, restart=restart)[0]
        before = changed.detach().clone()
        with torch.no_grad():
            changed.logical_not_() if changed.dtype == torch.bool else changed.add_(1)
        try:
            return torch.autograd.grad(out.sum(), wanted)
        finally:
            with torch.no_grad():
                changed.copy_(before)

    for changed in (*wanted, x, reset):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(changed)
    expected = gradients(torch.zeros(1))
    assert all(map(torch.equal, gradients(hx), expected))  # it was copied
    if name == "blocks":  # as this one was
        assert all(map(torch.equal, gradients(restart), expected))
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(restart)


def test_the_mode_of_the_backward_pass_does_not_matter():
    net = OrthogonalBlocks(2, 3, 4, 2, dropout=0.5, memory="checkpoint", segment=3)
    x, wanted, found = torch.randn(8, 3, 2), list(net.parameters()), []
    for later in (True, False):
        torch.manual_seed(0)
        out = net.train()(x)[0]
        net.train(later)
        found.append(torch.autograd.grad(out.sum(), wanted))
    assert all(map(torch.equal, *found))


def test_it_is_part_of_the_network():
    rnn = OrthogonalRNN(1, 4, memory="checkpoint", segment=7)
    assert "memory='checkpoint', segment=7" in repr(rnn)
    for other in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn)), rnn.fold()):
        assert (other.memory, other.segment) == ("checkpoint", 7)
    with pytest.raises(ArgumentError, match="memory to be one of"):
        OrthogonalRNN(1, 4, memory="revers")
    with pytest.raises(ArgumentError, match="got form='operator'"):
        OrthogonalRNN(1, 4, parametrization=RestrictedUnitary(), form="operator", memory="checkpoint")


def test_inference_keeps_nothing():
    rnn = OrthogonalRNN(1, 4, memory="checkpoint")
    x = torch.randn(30, 2, 1)
    with torch.no_grad():
        found = rnn(x, output="last")[0]
        rnn.set_memory("store")
        assert torch.equal(found, rnn(x, output="last")[0])


def test_models_have_it_where_their_core_does():
    assert {"memory", "segment"} <= set(MODEL_OPTIONS)
    for name in MODELS:
        if "memory" in MODELS[name].options():
            core = build(name, 1, 1, hidden_size=6, memory="checkpoint", segment=5).core
            assert (core.memory, core.segment) == ("checkpoint", 5)
        else:
            assert not isinstance(build(name, 1, 1, hidden_size=6).core, OrthogonalRNN)
            with pytest.raises(ArgumentError, match=f"{name} has no memory"):
                build(name, 1, 1, hidden_size=6, memory="checkpoint")


def test_doctor_says_what_each_mode_holds():
    lines = "\n".join(choice(128, None, 1, 10**6))
    assert "store: 512 MB" in lines
    assert "checkpoint: 1.77 MB at the peak, in segments of 578 steps, which need the least" in lines


def test_a_checkpoint_repeats_its_call_though_the_rotations_of_W_are_known_by_then():
    net = OrthogonalRNN(1, 128, parametrization=ScaledCayley(), nonlinearity="identity")
    x = torch.randn(600, 1, 1)  # so long that known rotations would pay
    expected = torch.autograd.grad(net(x)[0].square().sum(), list(net.parameters()))
    out = checkpoint(net, x, use_reentrant=False)[0]
    assert rotations_of(net.weight_hh_l0) is not None  # what a call on a longer sequence looks up
    found = torch.autograd.grad(out.square().sum(), list(net.parameters()))
    torch.testing.assert_close(found, expected)


def test_a_part_that_draws_random_numbers_draws_them_again():
    """Where the blocks themselves draw none: the gradient is that of finite differences with the same numbers."""
    torch.manual_seed(0)
    double = {"dtype": torch.float64}
    blocks = OrthogonalBlocks(2, 4, 6, depth=2, memory="checkpoint", segment=5, **double)
    for block in blocks.blocks:
        block.mix = nn.Sequential(nn.Linear(6, 8, **double), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 4, **double))
    x, weight = torch.randn(20, 3, 2, **double), blocks.blocks[0].mix[0].weight

    def loss():
        torch.manual_seed(7)
        return blocks(x)[0].square().sum()

    loss().backward()
    for index in ((0, 1), (5, 3)):
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight[index] += step
                values.append(loss())
                weight[index] -= step
        torch.testing.assert_close(weight.grad[index], (values[0] - values[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trained", ["bias", "readout"])
def test_torchs_checkpoint_repeats_the_form_where_the_transition_is_frozen(trained):
    """Whatever lengths were run in between, and whether W's rotations are known by then."""
    torch.manual_seed(0)
    forget()
    rnn = OrthogonalRNN(4, 200, nonlinearity="identity", parametrization=ScaledCayley()).requires_grad_(False)
    readout = nn.Linear(200, 1).requires_grad_(trained == "readout")
    rnn.bias_ih_l0.requires_grad_(trained == "bias")
    loss = torch.zeros(())
    for T in (60, 4000):
        run = (lambda x: rnn(x, output="last")[0]) if trained == "bias" else (lambda x: rnn.forward_readout(x, readout))
        loss = loss + checkpoint(run, torch.randn(T, 8, 4), use_reentrant=False).square().mean()
    loss.backward()
    assert (rnn.bias_ih_l0 if trained == "bias" else readout.weight).grad.isfinite().all()


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_segments_run_again_with_the_parameters_of_a_functional_call(name, output):
    """By the time of the backward pass functional_call has put the network's own back: gradients were of those."""
    found = []
    for memory in ("store", "checkpoint"):
        torch.manual_seed(0)
        net = IN_SEGMENTS[name](memory=memory, segment=4 if memory == "checkpoint" else None, dtype=torch.float64)
        x = torch.randn(11, 3, net.input_size, dtype=torch.float64)
        own = {name: (v.detach() + 0.3 * torch.randn_like(v)).requires_grad_() for name, v in net.named_parameters()}
        out = torch.func.functional_call(net, own, (x,), {"output": output})[0]
        found.append((out, *torch.autograd.grad(out.abs().square().sum(), list(own.values()))))
    for store, again in zip(*found):
        torch.testing.assert_close(again, store, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_a_frozen_network_takes_inputs_of_inference_mode(name, output):
    net = IN_SEGMENTS[name](memory="checkpoint", segment=4).requires_grad_(False)
    with torch.inference_mode():
        x = torch.randn(11, 3, net.input_size)
    assert not net(x, output=output)[0].requires_grad


class Counting(nn.Module):
    """Scales by the number of calls, in a buffer that each call replaces."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x):
        self.n = self.n + 1
        return self.inner(x) * self.n


def test_a_buffer_that_a_part_replaces_counts_in_the_next_segment():
    net = OrthogonalBlocks(3, 4, 6, depth=2, memory="checkpoint", segment=5)
    for block in net.blocks:
        block.mix = Counting(block.mix)
    x = torch.randn(20, 2, 3)
    with torch.no_grad():
        net(x)
    assert [float(block.mix.n) for block in net.blocks] == [4, 4]
    net(x)
    assert [float(block.mix.n) for block in net.blocks] == [8, 8]
