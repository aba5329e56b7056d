"""OrthogonalRNN among torch's own tools: whatever replaces, freezes, assigns or saves its tensors, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence

from orthornn import (
    GORU,
    DeltaRNN,
    Givens,
    Householder,
    MatrixExponential,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    RestrictedUnitary,
    ScaledCayley,
    Stiefel,
    Unconstrained,
    activations,
)
from orthornn.errors import ArgumentError, DeviceError, DTypeError, OrthornnWarning, ReadOnlyError, ShapeError
from orthornn.modules.fold import fold
from support.tolerances import tolerance

T, B, I, N = 5, 3, 2, 6
EXACT = tolerance(torch.float64, T * N * 10)


def network(**options):
    return OrthogonalRNN(I, N, **{"dtype": torch.float64, **options})


def inputs(*shape):
    return torch.randn(*(shape or (T, B, I)), dtype=torch.float64)


def test_input_weights_under_torchs_reparametrizations():
    x = inputs()
    for wrap in (
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        lambda net, name: prune.l1_unstructured(net, name, amount=0.5),
    ):
        net, plain = network(), network()
        plain.load_state_dict(net.state_dict())
        wrap(net, "weight_ih_l0")
        with nn.utils.parametrize.cached():  # else spectral_norm iterates at each reading, and changes it
            out = net(x)[0]
            with torch.no_grad():
                plain.weight_ih_l0.copy_(net.weight_ih_l0)
        torch.testing.assert_close(out, plain(x)[0], rtol=0, atol=EXACT)
        out.square().sum().backward()
        assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.filterwarnings("ignore:.*spectral_norm:FutureWarning")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (OrthogonalRNN, "weight_ih_l0"),
        (ReflectionRNN, "weight_k_l0"),
        (DeltaRNN, "weight_v_l0"),
        (GORU, "weight_ih"),
        (PeepholeLSTM, "weight_hh"),
    ],
)
@pytest.mark.parametrize("by_step", [False, True], ids=["call", "step"])
def test_the_older_spectral_norm_makes_one_power_iteration_per_call_and_step(make, name, by_step):
    """v = W'u / |W'u| and u = Wv / |Wv|, once; none outside of training. Two calls may come before a backward pass."""
    net, plain, x = make(I, N, dtype=torch.float64), make(I, N, dtype=torch.float64), inputs()
    plain.load_state_dict(net.state_dict())
    W = getattr(net, name).detach().clone()
    nn.utils.spectral_norm(net, name)
    outs = []
    for training in (True, True, False):
        net.train(training)
        u = getattr(net, f"{name}_u").clone()
        outs.append(net.step(x[0])[0] if by_step else net(x)[0])
        if training:
            v = nn.functional.normalize(W.mT @ u, dim=0)
            u = nn.functional.normalize(W @ v, dim=0)
        v = getattr(net, f"{name}_v")
        torch.testing.assert_close(getattr(net, f"{name}_u"), u, rtol=0, atol=EXACT)
        with torch.no_grad():
            getattr(plain, name).copy_(W / (u @ W @ v))
        expected = plain.step(x[0])[0] if by_step else plain(x)[0]
        torch.testing.assert_close(outs[-1], expected, rtol=0, atol=EXACT)
    sum(out.square().sum() for out in outs).backward()
    assert getattr(net, f"{name}_orig").grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "name"), [(OrthogonalRNN, "weight_ih_l0"), (GORU, "weight_ih"), (PeepholeLSTM, "weight_hh")]
)
def test_steps_read_a_pruned_weight_as_it_is_now(make, name):
    """Pruning writes the weight before a call of the network; a step makes none."""
    net, x = make(I, N, dtype=torch.float64), inputs()
    prune.l1_unstructured(net, name, amount=0.5)
    with torch.no_grad():
        getattr(net, f"{name}_orig").add_(1)
        out = net.step(x[0])[0]
        torch.testing.assert_close(out, net(x[:1])[0][0], rtol=0, atol=EXACT)


def train(net, x, steps=3):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        out = net(x)
        (out[0] if isinstance(out, tuple) else out).square().mean().backward()
        optimizer.step()


def pruned(net, name):
    return prune.random_unstructured(net, name, amount=0.3)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    ("wrap", "parametrization", "name"),
    [
        (pruned, Householder(), "reflectors"),
        (pruned, ScaledCayley(), "skew"),
        (nn.utils.weight_norm, Unconstrained(), "weight"),
    ],
    ids=["reflectors", "skew", "weight_norm"],
)
def test_free_tensors_that_a_hook_computes_are_those_of_now(wrap, parametrization, name):
    """torch runs such a hook when its module is called, and a transition never is."""
    net, other = network(parametrization=parametrization), network(parametrization=parametrization)
    x = inputs()
    for one in (net, other):
        wrap(one.transition_l0, name)
    train(net, x)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x)[0], net(x)[0])
    free = tuple(value for value in net.transition_l0.free())
    if wrap is pruned:
        mask = getattr(net.transition_l0, f"{name}_mask")
        assert torch.equal(free[0], net.transition_l0.get_parameter(f"{name}_orig") * mask)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(ArgumentError, match=rf"Expected {name} to be a parameter, .*prune\.remove"):
        net.weight_hh_l0 = -torch.eye(N, dtype=torch.float64)
    with pytest.raises(ArgumentError, match=rf"Expected {name} to be a parameter"):
        net.transition_l0.reset_parameters()
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (OrthogonalRNN, "weight_ih_l0"),
        (OrthogonalRNN, "h0"),
        (ReflectionRNN, "weight_k_l0"),
        (ReflectionRNN, "h0"),
        (DeltaRNN, "weight_v_l0"),
    ],
)
def test_a_step_reads_pruned_weights_as_they_are_now(make, name):
    net, x = make(I, N, learn_h0=True, dtype=torch.float64), inputs()
    pruned(net, name)
    train(net, x)
    torch.testing.assert_close(net.step(x[0])[0], net(x)[0][0], rtol=0, atol=EXACT)


def test_a_cell_trains_pruned_weights():
    cell, x = OrthogonalRNNCell(I, N, dtype=torch.float64), inputs()
    pruned(cell.rnn, "weight_ih_l0")
    train(cell, x[0])
    assert torch.equal(cell(x[0]), cell.rnn.step(x[0])[0])
    torch.testing.assert_close(cell(x[0]), cell.rnn(x[:1])[0][0], rtol=0, atol=EXACT)


class Twice(nn.Module):
    def forward(self, value):
        return 2 * value

    def right_inverse(self, value):
        return value / 2


@pytest.mark.parametrize("parametrization", [Householder(), ScaledCayley(), Stiefel(field="complex")], ids=repr)
def test_assigning_weight_hh_goes_through_a_parametrization_of_the_free_tensors(parametrization):
    net, W = network(parametrization=parametrization), network(parametrization=parametrization).weight_hh_l0.detach()
    for name in net.transition_l0.method.names:
        parametrize.register_parametrization(net.transition_l0, name, Twice())
    net.weight_hh_l0 = W
    torch.testing.assert_close(net.weight_hh_l0, W, rtol=0, atol=EXACT)
    before = net.weight_hh_l0
    net.reset_parameters()
    assert not torch.equal(net.weight_hh_l0, before)


def test_a_replica_of_data_parallel_has_no_parameters_and_runs():
    def replica(module):
        made = module._replicate_for_data_parallel()
        for name, child in module._modules.items():
            made._modules[name] = replica(child)
        for name, parameter in module._parameters.items():
            if parameter is None:
                made._parameters[name] = None
            else:
                setattr(made, name, parameter.clone())
        return made

    net = network(learn_h0=True, learn_gain=True)
    made = replica(net)
    assert not list(made.parameters())
    x = inputs()
    assert torch.equal(made(x)[0], net(x)[0])
    made(x)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_frozen_transition_serves_training_after_inference_mode():
    net = network(num_layers=2)
    for _, transition in net.transitions():
        transition.requires_grad_(False)
    with torch.inference_mode():
        expected = net(inputs())[0]
    assert expected.is_inference()
    net(inputs())[0].sum().backward()
    assert net.weight_ih_l0.grad is not None


@pytest.mark.parametrize("parametrization", [Householder(), Unconstrained(), Stiefel(field="complex")], ids=repr)
def test_a_network_made_in_inference_mode(parametrization):
    x = inputs()
    with torch.inference_mode():
        net = network(parametrization=parametrization)
        expected = net(x)[0]
    with torch.no_grad():
        assert torch.equal(net(x)[0], expected)


@pytest.mark.parametrize("parametrization", [Householder(), Unconstrained(), Stiefel(field="complex")], ids=repr)
def test_tensors_may_be_swapped_after_an_evaluation(parametrization):
    net, other, x = network(parametrization=parametrization), network(parametrization=parametrization), inputs()
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with torch.no_grad():
            net(x)
        net.load_state_dict(other.state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    with torch.no_grad():
        assert torch.equal(net(x)[0], other(x)[0])


def set_data(W: torch.Tensor) -> None:
    W.data = torch.eye(N, dtype=W.dtype)


def set_a_row(W: torch.Tensor) -> None:
    W[0] = 0


IN_PLACE = {
    "eye_": nn.init.eye_,
    "orthogonal_": nn.init.orthogonal_,
    "uniform_": nn.init.uniform_,
    "copy_": lambda W: W.copy_(torch.eye(N)),
    "a view": lambda W: W.detach().T[1:].zero_(),
    "data": set_data,
    "item": set_a_row,
    "parameter": lambda W: nn.Parameter(W).zero_(),
    "foreach": lambda W: torch._foreach_mul_([W], 2.0),
    "vector_to_parameters": lambda W: nn.utils.vector_to_parameters(torch.zeros(N * N).double(), [W]),
}
USES = {
    "forward": lambda net: net(inputs()),
    "step": lambda net: net.step(inputs()[0]),
    "read": lambda net: net.weight_hh_l0,
    "state_dict": lambda net: net.state_dict(),
    "to": lambda net: net.to(torch.float64),
}


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("parametrization", [Householder(), Unconstrained()], ids=repr)
def test_a_change_in_place_of_a_weight_that_was_read_is_refused(parametrization, change, trained):
    """It would change a copy. The next use of the network says so, once, and the network is as it was."""
    net, x = network(parametrization=parametrization).requires_grad_(trained), inputs()
    expected = net(x)[0].detach()
    for use in USES.values():
        with torch.no_grad():
            IN_PLACE[change](net.weight_hh_l0)
        with pytest.raises(ReadOnlyError, match=r"rnn\.weight_hh_l0 = W; .* rnn\.weight_hh_l0\.clone\(\)"):
            use(net)
        use(net)
    assert torch.equal(net(x)[0], expected)


@pytest.mark.parametrize(
    "change",
    [lambda W: W.data.fill_(0), lambda W: W.numpy().fill(0)],
    ids=["data", "numpy"],
)
def test_a_change_that_torch_does_not_count_is_told(change):
    net, x = network(), inputs()
    with torch.no_grad():
        expected = net(x)[0]
        change(net.weight_hh_l0)
        with pytest.warns(OrthornnWarning, match=r"The value read from weight_hh_l0 .* rnn\.weight_hh_l0\.clone\(\)"):
            assert torch.equal(net(x)[0], expected)
        net(x)  # once


@pytest.mark.filterwarnings("error::orthornn.errors.OrthornnWarning")
def test_what_does_not_change_a_weight_that_was_read_is_no_error():
    """Reading, copies, graphs, assignments; and a matrix that is read and dropped is not held past the next use."""
    net, x = network(parametrization=Unconstrained()), inputs()
    W = net.weight_hh_l0
    held = weakref.ref(W)
    other = nn.Linear(N, N, bias=False, dtype=torch.float64)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            read = net.weight_hh_l0
            (read @ read).sum(), torch.linalg.eigvals(read), read.detach().numpy().sum(), repr(read)
            read.clone().zero_(), read.detach().clone().fill_(2.0), read.abs().mul_(2)
            net(x)
    with torch.no_grad():
        other.weight.copy_(net.weight_hh_l0)
        net.weight_hh_l0 *= -1
        torch.testing.assert_close(net.weight_hh_l0, -other.weight.detach(), rtol=0, atol=0)
    other.weight = nn.Parameter(net.weight_hh_l0)
    compiled = torch.compile(lambda W: (W @ W.mT).sum(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(net.weight_hh_l0), compiled(W).detach())
    copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    net.transition_l0.weight.data.add_(1)  # Unconstrained: W is this parameter, and what was read a copy
    (net.weight_hh_l0.sum() + net(x)[0].sum()).backward()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    optimizer.step()
    net(x)
    del W, read
    net(x), net(x)
    assert held() is None


@pytest.mark.parametrize("wrap", [torch.Tensor.clone, nn.Parameter], ids=["tensor", "parameter"])
def test_assigning_weight_hh(wrap):
    net = network(parametrization=ScaledCayley(), bidirectional=True)
    names = [name for name, _ in net.named_parameters()]
    Q = torch.linalg.qr(inputs(N, N))[0]
    net.weight_hh_l0_reverse = wrap(Q)
    torch.testing.assert_close(net.weight_hh_l0_reverse, Q, rtol=0, atol=EXACT)
    assert [name for name, _ in net.named_parameters()] == names
    with pytest.raises(ValueError, match="orthogonal"):
        net.weight_hh_l0 = 2 * Q


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_assign_of_a_torch_state_dict_keeps_its_dtype(dtype):
    peer = nn.RNN(I, N, dtype=dtype)
    nn.init.orthogonal_(peer.weight_hh_l0)
    for parametrization in (Householder(), Unconstrained()):
        net = OrthogonalRNN(I, N, parametrization=parametrization, nonlinearity="tanh")
        net.load_state_dict(peer.state_dict(), assign=True)
        assert all(parameter.dtype == dtype for parameter in net.parameters())
        x = inputs().to(dtype)
        torch.testing.assert_close(net(x)[0], peer(x)[0], rtol=0, atol=tolerance(dtype, T * N))


class Counted(nn.Module):
    """Another value at each access, as under spectral_norm in training."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, value):
        self.count += 1
        return value * (1 + self.count)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (PeepholeLSTM, "weight_hh"),
        (PeepholeLSTM, "weight_ih"),
        (PeepholeLSTM, "peepholes"),
        (GORU, "weight_ih"),
        (GORU, "weight_gates"),
        (GORU, "transition.theta"),
        (OrthogonalRNN, "transition_l0.reflectors"),
    ],
)
def test_a_parametrization_is_asked_once_per_sequence_and_step(make, path, trained):
    net, x = make(I, N, dtype=torch.float64), inputs()
    plain = copy.deepcopy(net)
    owner, _, name = path.rpartition(".")
    counted = Counted()
    parametrize.register_parametrization(net.get_submodule(owner), name, counted)
    with torch.set_grad_enabled(trained):
        for call, given in ((net, x), (net.step, x[0])):
            counted.count = 0
            out = call(given)[0]
            assert counted.count == 1
            with torch.no_grad():
                plain.get_parameter(path).copy_(2 * net.get_submodule(owner).parametrizations[name].original)
            expected = (plain if call is net else plain.step)(given)[0]
            torch.testing.assert_close(out, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize(
    "parametrization",
    [
        ScaledCayley(negatives=2),
        MatrixExponential(rebase_every=3),
        Givens(),
        Householder(base="rotations"),
        Unconstrained(),
    ],
    ids=repr,
)
def test_a_network_on_meta_takes_a_torch_state_dict(parametrization, assign):
    peer = nn.RNN(I, N, dtype=torch.float64)
    nn.init.orthogonal_(peer.weight_hh_l0)
    with torch.device("meta"):
        net = network(parametrization=parametrization, nonlinearity="tanh")
    if not assign:
        net.to_empty(device="cpu").reset_parameters()
    net.load_state_dict(peer.state_dict(), assign=assign)
    x = inputs()
    torch.testing.assert_close(net(x)[0], peer(x)[0], rtol=0, atol=EXACT)


COMPLEX = [
    ScaledCayley(field="complex", phases=True),
    MatrixExponential(field="complex", rebase_every=2),
    Givens(field="complex"),
    RestrictedUnitary(),
    Stiefel(field="complex"),
    Householder(field="complex"),
]


@pytest.mark.parametrize("make", [OrthogonalRNN, GORU])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("parametrization", [*COMPLEX, Householder()], ids=repr)
def test_parameters_may_be_views_of_one_vector(parametrization, first, make):
    """torch.nn.utils.vector_to_parameters and FSDP place them anywhere in it, at odd places too."""
    net = make(I, N, parametrization=parametrization, learn_h0=True, dtype=torch.float64)
    x, weights = inputs(), list(net.parameters())
    out = net(x)[0]
    expected = torch.autograd.grad(out.abs().square().sum(), weights)
    vector = torch.cat([torch.zeros(first, dtype=torch.float64), nn.utils.parameters_to_vector(weights).detach()])
    nn.utils.vector_to_parameters(vector[first:], weights)
    again = net(x)[0]
    torch.testing.assert_close(again, out, rtol=0, atol=EXACT)
    found = torch.autograd.grad(again.abs().square().sum(), weights)
    torch.testing.assert_close(found, expected, rtol=0, atol=100 * EXACT)


def test_a_complex_input_is_read_wherever_weights_are():
    net = network(parametrization=Householder(field="complex"))
    x = torch.complex(inputs(), inputs())
    expected = net(x)[0]
    for weight in net.parameters():
        weight.data = torch.cat([weight.new_zeros(1), weight.detach().flatten()])[1:].view_as(weight)
    torch.testing.assert_close(net(x)[0], expected, rtol=0, atol=EXACT)


class Doubled(OrthogonalRNN):
    """A subclass that changes what it returns."""

    def forward(self, *given, **options):
        states, h_n = super().forward(*given, **options)
        return 2 * states, h_n


def test_no_shorter_way_passes_by_the_forward_of_a_subclass():
    rnn = Doubled(I, N, nonlinearity="identity", form="rotations", dtype=torch.float64)
    readout, x = nn.Linear(N, 1, dtype=torch.float64), inputs()
    torch.testing.assert_close(rnn.forward_readout(x, readout), readout(rnn(x)[0]), rtol=0, atol=EXACT)


@pytest.mark.parametrize("form", ["rotations", "dense"])
def test_a_readout_takes_the_initial_state_under_both_names(form):
    rnn = OrthogonalRNN(I, N, nonlinearity="identity", form=form, dtype=torch.float64)
    readout, x, start = nn.Linear(N, 1, dtype=torch.float64), inputs(), torch.ones_like(rnn(inputs())[1])
    want = readout(rnn(x, start)[0])
    for found in (
        rnn.forward_readout(x, readout, start),
        rnn.forward_readout(x, readout, hx=start),
        rnn.forward_readout(x, readout, h0=start),
    ):
        torch.testing.assert_close(found, want, rtol=0, atol=EXACT)
    with pytest.raises(ArgumentError, match="got both hx and h0"):
        rnn.forward_readout(x, readout, start, h0=start)
    with pytest.raises(ShapeError, match="Expected hx to have shape"):
        rnn.forward_readout(x, readout, start[..., 1:])


@pytest.mark.parametrize("options", [{"stride": 4}, {"memory": "checkpoint", "segment": 5}], ids=str)
def test_blocks_call_the_forward_of_a_subclass(options, monkeypatch):
    monkeypatch.setattr("orthornn.modules.forms.groups_pay", lambda *_: True)
    blocks = OrthogonalBlocks(1, 4, N, parametrization=Householder(), dtype=torch.float64, **options)
    x = inputs(16, B, 1)
    blocks.blocks[0].recurrence.__class__ = Doubled
    found = blocks(x)[0]
    blocks.blocks[0].recurrence.__class__ = OrthogonalRNN
    blocks.blocks[0].recurrence.register_forward_hook(lambda *call: (2 * call[2][0], call[2][1]))
    torch.testing.assert_close(found, blocks(x)[0], rtol=0, atol=EXACT)


def test_fold_under_a_parametrization_of_the_gain():
    net = network(num_layers=2, gain=0.9, learn_gain=True)
    parametrize.register_parametrization(net, "gain_l0", Twice())
    with torch.no_grad():
        net.parametrizations.gain_l0.original.fill_(0.3)
        net.get_parameter("gain_l1").fill_(0.5)
    x, folded = inputs(), net.fold()
    torch.testing.assert_close(folded(x)[0], net(x)[0], rtol=0, atol=EXACT)
    assert net.gain_l0 == 0.6  # a class of torch's that both share is as it was
    assert isinstance(folded.parametrization, Unconstrained)


@pytest.mark.parametrize("to_torch", [False, True])
def test_fold_draws_no_random_numbers(to_torch):
    net = network(nonlinearity="tanh")
    before = torch.get_rng_state()
    net.fold(to_torch=to_torch)
    assert torch.equal(torch.get_rng_state(), before)


def test_fold_of_a_cell_and_of_a_model():
    cell = OrthogonalRNNCell(I, N, gain=0.9, dtype=torch.float64)
    model = nn.ModuleDict({"cell": cell, "head": nn.Linear(N, 1, dtype=torch.float64)})
    x, h = inputs(B, I), inputs(B, N)
    for folded in (fold(cell), fold(model)["cell"]):
        torch.testing.assert_close(folded(x, h), cell(x, h), rtol=0, atol=EXACT)
        assert isinstance(folded.rnn.parametrization, Unconstrained)
        assert folded.rnn.gain == 1
    assert not isinstance(cell.rnn.parametrization, Unconstrained)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2, "bias": False}], ids=str)
def test_fold_to_a_torch_rnn(options, nonlinearity):
    net = network(nonlinearity=nonlinearity, gain=0.8, learn_gain=True, batch_first=True, **options).eval()
    with torch.no_grad():
        net.get_parameter("gain_l0").fill_(0.7)
    folded = net.fold(to_torch=True)
    assert type(folded) is nn.RNN
    assert not folded.training
    lengths = torch.tensor([5, 2, 4])
    packed = pack_padded_sequence(inputs(3, 5, I), lengths, batch_first=True, enforce_sorted=False)
    h0 = inputs(len(net.suffixes), 3, N)
    for given in ((inputs(3, 5, I),), (inputs(3, 5, I), h0), (inputs(5, I),)):
        for mine, theirs in zip(folded(*given), net(*given)):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)
    torch.testing.assert_close(folded(packed, h0)[0].data, net(packed, h0)[0].data, rtol=0, atol=EXACT)
    back = network(nonlinearity=nonlinearity, parametrization=Unconstrained(), batch_first=True, **options).eval()
    back.load_state_dict(folded.state_dict())
    torch.testing.assert_close(back(packed)[0].data, net(packed)[0].data, rtol=0, atol=EXACT)
    folded(inputs(3, 5, I))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in folded.parameters())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_fold_to_a_torch_rnn_under_torchs_reparametrizations():
    net = network(nonlinearity="tanh")
    nn.utils.parametrizations.weight_norm(net, "weight_ih_l0")
    x = inputs()
    torch.testing.assert_close(net.fold(to_torch=True)(x)[0], net(x)[0], rtol=0, atol=EXACT)


def test_a_network_that_is_no_torch_rnn_is_not_folded_to_one():
    net = network(
        nonlinearity="modrelu",
        parametrization=Stiefel(field="complex"),
        linear_transition=True,
        learn_h0=True,
        clip_backward=1.0,
    )
    with pytest.raises(ArgumentError, match=r"modrelu.*complex.*linear_transition.*learn_h0.*clip_backward=1\.0"):
        net.fold(to_torch=True)
    for option in ({"learn_h0": True}, {"clip_backward": 0.5}, {"linear_transition": True}):
        with pytest.raises(ArgumentError, match=next(iter(option))):
            network(nonlinearity="tanh", **option).fold(to_torch=True)
    with pytest.raises(ArgumentError, match="to_torch to be True or False"):
        net.fold(to_torch="yes")
    assert isinstance(net.fold(), OrthogonalRNN)


@pytest.mark.parametrize(
    "parametrization", [Householder(), Householder(field="complex"), ScaledCayley(field="complex")], ids=repr
)
def test_one_unit_has_every_gradient(parametrization):
    """Empty tensors too: DistributedDataParallel waits for the gradient of every parameter."""
    net = OrthogonalRNN(1, 1, parametrization=parametrization)
    net(torch.randn(T, B, 1))[0].abs().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("parametrization", [Householder(reflections=2), Householder(field="complex")], ids=repr)
def test_shapes_on_the_meta_device(parametrization):
    net = OrthogonalRNN(I, N, parametrization=parametrization, device="meta")
    x = torch.empty(T, B, I, device="meta")
    for _ in range(2):
        assert net(x)[0].shape == (T, B, N)
        assert net.step(x[0])[0].shape == (B, N)
        net.requires_grad_(False)  # W is now kept


def test_what_returned_states_are_kept_for_cannot_be_spoilt_silently():
    for name in activations.ACTIVATIONS:
        for form in ("compact_wy", "dense"):
            net = network(nonlinearity=name, form=form, parametrization=Householder(reflections=2))
            x, h0 = inputs(), inputs(1, B, N)
            packed = pack_padded_sequence(inputs(), torch.tensor([5, 4, 1]))
            for spoilt in (x, h0, packed.batch_sizes, net.weight_ih_l0):
                out = net(packed if spoilt is packed.batch_sizes else x, h0)[0]
                loss = (out if isinstance(out, torch.Tensor) else out.data).square().sum()
                with torch.no_grad():
                    spoilt.mul_(1)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
            out = net(x, h0)[0]
            expected = torch.autograd.grad(3 * out.sum(), net.weight_ih_l0, retain_graph=True)[0]
            loss = out.mul_(3).sum()
            if activations.get(name).reads == "state":
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
            else:  # the backward pass reads something else, which is not what was changed
                torch.testing.assert_close(torch.autograd.grad(loss, net.weight_ih_l0)[0], expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("mine", [OrthogonalRNN, OrthogonalRNNCell])
def test_refused_dtypes_are_errors_that_torch_raises_too(mine):
    net, peer = mine(I, N), nn.RNN(I, N)
    shape = (T, B, I) if mine is OrthogonalRNN else (B, I)
    state = (1, B, N) if mine is OrthogonalRNN else (B, N)
    with pytest.raises(ValueError, match="type"):
        peer(inputs())
    with pytest.raises(
        ValueError,
        match=r"input of no more precision than the weights, .* got torch.float64. .*\.to\(torch.float32\), or the network",
    ):
        net(inputs(*shape))
    x = inputs(*shape).float()
    with pytest.raises(DTypeError, match=r"Expected hx of no more precision .* got torch\.float64"):
        net(x, inputs(*state))
    with pytest.raises(DTypeError, match=r"Expected hx in a floating-point dtype, but got torch\.int64"):
        net(x, torch.zeros(state, dtype=torch.int64))
    for dtype in (torch.uint8, torch.bool):
        with pytest.raises(DTypeError, match="signed integer"):
            net(torch.zeros(shape[:-1], dtype=dtype))
    with pytest.raises(ValueError, match="real"):
        net(x.to(torch.complex64))
    with pytest.raises(DTypeError, match="complex128"):
        mine(I, N, parametrization=Householder(field="complex"))(inputs(*shape).to(torch.complex128))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert copy.deepcopy(net).bfloat16()(x) is not None
    with pytest.raises(ArgumentError, match="Expected input to be a tensor, but got ndarray"):
        net(x.numpy())
    with pytest.raises(ArgumentError, match="Expected hx to be a tensor, but got tuple"):
        OrthogonalRNN(I, N)(x if x.dim() == 3 else x.unsqueeze(0), (inputs(1, B, N),) * 2)
    with pytest.raises(DeviceError, match="input on cpu, the device of the module, but got meta"):
        net(x.to("meta"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_tokens_of_any_signed_dtype(dtype):
    net, tokens = network(), torch.randint(0, I, (T, B))
    assert torch.equal(net(tokens.to(dtype))[0], net(tokens)[0])
    torch.testing.assert_close(net.step(tokens[0].to(dtype))[0], net(tokens)[0][0], rtol=0, atol=EXACT)
    for wrong in (I, -1):
        tokens[1, 0] = wrong
        with pytest.raises(IndexError, match=rf"okens .*in \[0, 2\).* got .*{wrong}"):
            net(tokens.to(dtype))
        with pytest.raises(IndexError, match=rf"okens .*in \[0, 2\).* got .*{wrong}"):
            net.step(tokens[1].to(dtype))


@pytest.mark.parametrize("parametrization", [Householder(), ScaledCayley(), None], ids=repr)
def test_a_loop_over_steps_builds_the_matrix_once_inside_cached(parametrization, monkeypatch):
    """A step in training built W and its gradient: at 128 units a loop took eight times as long as with a plain W."""
    cell, x = OrthogonalRNNCell(I, N, parametrization=parametrization, dtype=torch.float64), inputs()
    built, bound = [], type(cell.rnn.transition_l0.method)
    monkeypatch.setattr(bound, "forward", lambda self, *free, of=bound.forward: built.append(1) or of(self, *free))

    def loop():
        h = None
        for step in x:
            h = cell(step, h)
        return torch.autograd.grad(h.square().sum(), [*cell.parameters()])

    wanted = loop()
    assert len(built) == len(x)
    built.clear()
    for _ in range(2):
        with nn.utils.parametrize.cached():
            found = loop()
    assert len(built) == 2  # once in each context, since parameters may have changed in between
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=0, atol=EXACT)


def test_a_matrix_inside_cached_follows_its_free_tensors():
    cell, (x, *_) = OrthogonalRNNCell(I, N, dtype=torch.float64), inputs()
    h = inputs(B, N)
    with nn.utils.parametrize.cached():
        before = cell(x, h)
        with torch.no_grad():
            cell.rnn.transition_l0.reflectors.add_(inputs(*cell.rnn.transition_l0.reflectors.shape))
            after = cell(x, h)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(cell(x, h), after, rtol=0, atol=EXACT)
        others = {name: inputs(*p.shape) for name, p in cell.named_parameters()}
        called = torch.func.functional_call(cell, others, (x, h))
        torch.testing.assert_close(cell(x, h), after, rtol=0, atol=EXACT)
        grads = torch.func.grad(lambda free: torch.func.functional_call(cell, free, (x, h)).sum())(others)
        assert grads["rnn.transition_l0.reflectors"].abs().max() > 0
    cayley = OrthogonalRNNCell(I, N, parametrization=ScaledCayley(), dtype=torch.float64)
    with nn.utils.parametrize.cached():
        before = cayley.weight_hh
        cayley.rnn.transition_l0.method.D.neg_()
        torch.testing.assert_close(cayley.weight_hh, -before, rtol=0, atol=EXACT)
    cell.load_state_dict(others, strict=False)
    torch.testing.assert_close(cell(x, h), called, rtol=0, atol=EXACT)
    assert not nn.utils.parametrize._cache


@pytest.mark.parametrize("fused", [False, True])
def test_a_matrix_inside_cached_follows_an_optimizer(fused):
    cell, (x, *_) = OrthogonalRNNCell(I, N, dtype=torch.float64), inputs()
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.5, fused=fused)
    with nn.utils.parametrize.cached():
        for _ in range(3):  # a graph of the matrix before an update would be gone
            optimizer.zero_grad()
            cell(x).square().sum().backward()
            optimizer.step()
            with torch.no_grad():
                expected = cell(x)
            torch.testing.assert_close(cell(x), expected, rtol=0, atol=EXACT)


def test_a_matrix_inside_cached_has_the_gradient_of_what_is_trained_now():
    method = Householder(reflections=2, base="rotations", train_angles=True)
    cell, (x, *_) = OrthogonalRNNCell(I, N, parametrization=method, dtype=torch.float64), inputs()
    h, reflectors = inputs(B, N), cell.rnn.transition_l0.reflectors
    reflectors.requires_grad_(False)
    with nn.utils.parametrize.cached():
        cell(x, h).sum().backward()
        reflectors.requires_grad_(True)
        (found,) = torch.autograd.grad(cell(x, h).sum(), reflectors)
    (expected,) = torch.autograd.grad(cell(x, h).sum(), reflectors)
    torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)


def _of_fft(seed):
    torch.manual_seed(seed)
    return network(parametrization=RestrictedUnitary(), form="operator")


def _gradients(out, tensors):
    return torch.autograd.grad(out.abs().square().sum(), list(tensors))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_buffers_of_a_functional_call_also_count_in_the_backward_pass(device):
    """The permutation of RestrictedUnitary was read from the module, which has its own again by then."""
    skeleton, net, x = _of_fft(0).to(device), _of_fft(1), inputs()
    own = {name: value.detach().clone().requires_grad_() for name, value in net.named_parameters()}
    out = torch.func.functional_call(skeleton, (own, dict(net.named_buffers())), (x,))[0]
    expected = net(x)[0]
    assert torch.equal(out, expected)
    for found, wanted in zip(_gradients(out, own.values()), _gradients(expected, net.parameters())):
        torch.testing.assert_close(found, wanted, rtol=0, atol=EXACT * (1 + float(wanted.abs().max())))


def test_a_permutation_that_changes_before_the_backward_pass_is_an_error():
    net = _of_fft(0)
    out = net(inputs())[0]
    with torch.no_grad():
        permutation = net.transition_l0.method.permutation
        permutation.copy_(permutation.roll(1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _gradients(out, net.parameters())
