"""OrthogonalRNN under what torch lets one do with a torch.nn.RNN: batched gradients, traces, fake and sharded tensors."""

from __future__ import annotations

import contextlib
import inspect
import io
import types
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import prune
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

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
)
from orthornn.errors import ArgumentError, ArgumentTypeError, OrthornnError, ReadOnlyError, TransformError
from orthornn.modules import impulse
from orthornn.modules.layer import Layer
from orthornn.optim import CayleySGD, JointOptimizer, attach, param_groups
from support import captured
from support.tolerances import tolerance
from support.versions import TORCH

T, B, I, N = 7, 3, 2, 6
EXACT = tolerance(torch.float64, T * N * 10)
SOME = [
    Householder(),
    Householder(reflections=2),
    ScaledCayley(field="complex"),
    MatrixExponential(rebase_every=2),
    Givens(),
    Stiefel(field="complex"),
    Unconstrained(),
]


def network(**options):
    return OrthogonalRNN(I, N, **{"dtype": torch.float64, **options})


def inputs(*shape):
    return torch.randn(*(shape or (T, B, I)), dtype=torch.float64)


@pytest.mark.parametrize("parametrization", SOME, ids=repr)
def test_a_weight_that_was_read_is_the_readers_own(parametrization):
    """In every way past autograd's version counter: NumPy, .data, a detached view; of W, real or complex."""
    net, x = network(parametrization=parametrization, form="dense"), inputs()
    cell = OrthogonalRNNCell(I, N, parametrization=parametrization, dtype=torch.float64)
    # Of weight_hh_l0 torch's users expect that it is a parameter: tests/modules/test_as_a_torch_module.py.
    with torch.no_grad():
        expected, step, one = net(x)[0], net.step(x[0])[0], cell(x[0])
        for read in (
            lambda: net.transition_l0.matrix(),
            lambda: net.layers()[0].matrix(),
            lambda: cell.rnn.transition_l0.matrix(),
        ):
            for change in (
                lambda W: np.subtract(W.numpy(), np.eye(len(W)), out=W.numpy()),
                lambda W: W.data.zero_(),
                lambda W: W.detach().T.fill_(3.0),
                lambda W: W.add_(1),
            ):
                change(read())
            assert torch.equal(net(x)[0], expected)
            assert torch.equal(net.step(x[0])[0], step)
            assert torch.equal(cell(x[0]), one)
    net.transition_l0.matrix().data.zero_()  # with gradient W may be a parameter itself
    with torch.no_grad():
        assert torch.equal(net(x)[0], expected)


def test_reading_a_weight_has_a_gradient():
    net = network(parametrization=Unconstrained())
    net.weight_hh_l0.sum().backward()
    assert torch.equal(net.transition_l0.weight.grad, torch.ones(N, N, dtype=torch.float64))


NETWORKS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"memory": "checkpoint", "segment": 3},
    {"memory": "checkpoint", "segment": 3, "num_layers": 2},
    {"parametrization": Givens(), "form": "operator"},
    {"parametrization": RestrictedUnitary(), "form": "operator"},
    {"parametrization": ScaledCayley(field="complex")},
    {"nonlinearity": "identity", "form": "rotations"},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("options", NETWORKS, ids=str)
def test_jacobians_of_many_rows_at_once(options, output):
    net, x = network(**options), inputs()

    def states(x):
        out = net(x, output=output)[0]
        return torch.view_as_real(out) if out.is_complex() else out

    slow = torch.autograd.functional.jacobian(states, x)
    fast = torch.autograd.functional.jacobian(states, x, vectorize=True)
    torch.testing.assert_close(fast, slow, rtol=0, atol=EXACT)
    out, wanted = states(x), [p for p in net.parameters() if p.numel()]
    vectors = torch.randn(2, *out.shape, dtype=torch.float64)
    at_once = torch.autograd.grad(out, wanted, vectors, retain_graph=True, is_grads_batched=True)
    for row, vector in enumerate(vectors):
        for a, b in zip(torch.autograd.grad(out, wanted, vector, retain_graph=True), at_once):
            torch.testing.assert_close(b[row], a, rtol=0, atol=EXACT)


@pytest.mark.parametrize("options", [o for o in NETWORKS if "num_layers" not in o], ids=str)
@pytest.mark.parametrize("output", ["all", "last"])
def test_outputs_may_be_changed_in_place(options, output):
    net, x = network(**options), inputs()
    y = net(x, output=output)[0]
    y += 1
    with torch.no_grad():
        z = net(x, output=output)[0]
        torch.testing.assert_close(y.detach(), z + 1, rtol=0, atol=EXACT)
    z += torch.ones((), dtype=torch.float64, requires_grad=True)
    assert z.requires_grad


@pytest.mark.sampled(4)
@pytest.mark.parametrize("parametrization", [*SOME, RestrictedUnitary()], ids=repr)
def test_networks_of_fake_tensors(parametrization):
    with FakeTensorMode():
        net = OrthogonalRNN(I, N, parametrization=parametrization)
        out = net(torch.randn(T, B, I))[0]
        assert out.shape == (T, B, N)
        out.abs().sum().backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())
    assert type(OrthogonalRNN(I, N, parametrization=parametrization)(torch.randn(T, B, I))[0]) is torch.Tensor


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bidirectional": True, "num_layers": 2},
        {"memory": "checkpoint", "segment": 2},
        {"memory": "checkpoint", "segment": 2, "num_layers": 2},
        {"nonlinearity": "oplu", "memory": "checkpoint", "segment": 2},
        {"nonlinearity": "identity", "form": "rotations"},
        {"parametrization": Givens(), "form": "operator"},
        {"parametrization": ScaledCayley(init="uniform")},
    ],
    ids=str,
)
def test_a_default_device_does_not_reach_inside(options):
    """Everything is made where the network and its input are, also where other tensors would be elsewhere."""
    lengths = torch.tensor([B, B, B, 2, 2, 1, 1])
    x = inputs()
    torch.manual_seed(1)
    expected = OrthogonalRNN(I, N, **options)
    with torch.device("meta"):
        torch.manual_seed(1)
        net = OrthogonalRNN(I, N, device="cpu", **options)
        assert not any(t.is_meta for t in (*net.parameters(), *net.buffers()))
        net.load_state_dict(expected.state_dict())
        for given in (x.float(), PackedSequence(inputs_on_cpu(int(lengths.sum())), lengths)):
            out = net(given)[0]
            out = out if isinstance(out, torch.Tensor) else out.data
            assert out.device.type == "cpu"
            out.abs().sum().backward()
            want = expected(given)[0]
            assert torch.equal(out, want if isinstance(want, torch.Tensor) else want.data)
        net.weight_hh_l0 = expected.weight_hh_l0.detach()
    gated = GORU(I, N)
    with torch.device("meta"):
        assert gated(x.float())[0].device.type == "cpu"


def inputs_on_cpu(rows):
    return torch.zeros(rows, I, device="cpu") + 0.5


def quietly(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parametrization", [p for p in SOME if p.bind(2).field == "real"], ids=repr)
@pytest.mark.parametrize(
    "options", [{"nonlinearity": "tanh"}, {"bidirectional": True, "num_layers": 2, "batch_first": True}], ids=str
)
def test_traces_hold_the_network_and_its_parameters(parametrization, options):
    net, x = network(parametrization=parametrization, **options), inputs()
    traced = quietly(torch.jit.trace, net, (x,))  # its own check compares two traces
    with torch.no_grad():
        torch.testing.assert_close(traced(2 * x)[0], net(2 * x)[0], rtol=0, atol=EXACT)
        net.weight_ih_l0.mul_(0.5)
        for value in net.transition_l0.free():
            value.mul_(0.5)
        torch.testing.assert_close(traced(x)[0], net(x)[0], rtol=0, atol=EXACT)


def test_script_is_refused_and_takes_traces():
    class Head(nn.Module):
        def __init__(self, rnn):
            super().__init__()
            self.rnn = rnn

        def forward(self, x):
            return self.rnn(x)[0] * 2

    net, x = network(), inputs()
    for module in (net, Head(net), OrthogonalRNNCell(I, N)):
        with pytest.raises(TransformError, match=r"torch\.jit\.trace"):
            quietly(torch.jit.script, module)
    scripted = quietly(torch.jit.script, Head(quietly(torch.jit.trace, net, (x,))))
    torch.testing.assert_close(scripted(x), 2 * net(x)[0], rtol=0, atol=EXACT)


def test_onnx_by_way_of_torchscript():
    pytest.importorskip("onnx")
    for parametrization in (Householder(), Householder(reflections=2), Givens()):
        for peer in (True, False):
            net = OrthogonalRNN(I, N, parametrization=parametrization, nonlinearity="tanh").eval()
            file = io.BytesIO()
            state = (torch.zeros(1, B, N),) if peer else ()
            quietly(torch.onnx.export, net, (inputs().float(), *state), file, dynamo=False, opset_version=17)
            assert file.getvalue()


def test_forward_takes_what_torchs_takes():
    for mine, theirs in ((OrthogonalRNN, nn.RNN), (OrthogonalRNNCell, nn.RNNCell)):
        parameters = inspect.signature(mine.forward).parameters
        assert list(parameters)[:3] == list(inspect.signature(theirs.forward).parameters)[:3]
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    net, cell, x, h = network(), OrthogonalRNNCell(I, N, dtype=torch.float64), inputs(), inputs(B, N)
    assert torch.equal(net(x, hx=h.unsqueeze(0))[0], net(x, h0=h.unsqueeze(0))[0])
    assert torch.equal(cell(x[0], hx=h), cell(x[0], h=h))
    for call in (lambda: net(x, h.unsqueeze(0), h0=h.unsqueeze(0)), lambda: cell(x[0], h, h=h)):
        with pytest.raises(ArgumentError, match="Expected one initial state"):
            call()


WRONG = {
    "input_size": [{"input_size": value} for value in ("3", 3.0, None, 0, -1)],
    "hidden_size": [{"hidden_size": value} for value in ("8", 8.0, None, 0)],
    "num_layers": [{"num_layers": value} for value in ("1", 1.5, None, 0)],
    "flags": [{"bias": "no"}, {"bias": None}, {"batch_first": "no"}],
    "dropout": [{"num_layers": 2, "dropout": value} for value in ("a", 2.0, None, True)],
    "nonlinearity": [{"nonlinearity": value} for value in ("foo", 3)],
    "dtype": [{"dtype": "float32"}, {"dtype": torch.int64}],
    "unknown": [{"foo": 1}],
}


@pytest.mark.parametrize("arguments", [a for group in WRONG.values() for a in group], ids=str)
def test_wrong_arguments_raise_what_torch_raises(arguments):
    arguments = {"input_size": I, "hidden_size": N, **arguments}
    expected: type[Exception] = OrthornnError  # earlier releases accept some of these, or fail at the first tensor
    try:
        nn.RNN(**arguments)
    except (TypeError, ValueError) as theirs:
        expected = type(theirs)
    except RuntimeError:
        pass
    with pytest.raises(expected) as mine:
        OrthogonalRNN(**arguments)
    if "foo" not in arguments:
        assert isinstance(mine.value, ValueError)


def test_wrong_types_are_type_errors():
    net, x = OrthogonalRNN(I, N), torch.randn(T, B, I)
    cell = OrthogonalRNNCell(I, N)
    for call in (
        lambda: net(None),
        lambda: net([[1.0]]),
        lambda: net(x.numpy()),
        lambda: net(x, "h"),
        lambda: net(x, (torch.zeros(1, B, N),)),
        lambda: net.step([1.0]),
        lambda: cell(None),
        lambda: cell(x[0], (torch.zeros(B, N),)),
        lambda: cell(x[0, 0], "h"),
        lambda: OrthogonalRNN(I, N, parametrization="householder"),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert isinstance(caught.value, ArgumentTypeError)
        assert isinstance(caught.value, ArgumentError)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_refused_with_what_to_do(layout):
    parts = [torch.randn(3, I), torch.randn(5, I)]
    nested = quietly(torch.nested.nested_tensor, parts, layout=layout)
    for net in (OrthogonalRNN(I, N, batch_first=True), GORU(I, N, batch_first=True)):
        with pytest.raises(ArgumentTypeError, match=r"nested tensor\. Pack .*pack_sequence"):
            net(nested)


def test_a_sharded_network_is_read_set_and_trained():
    """fully_shard on one process: parameters are DTensors outside of forward."""
    if TORCH < (2, 7):
        pytest.skip("fully_shard of torch 2.6 runs on GPUs only: its stream of the CPU records no events")
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("no process group can be made here")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        for parametrization in (Householder(), ScaledCayley(), MatrixExponential(rebase_every=1)):
            net, x = network(parametrization=parametrization), inputs()
            W, out = net.weight_hh_l0.detach().clone(), net(x)[0].detach()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fsdp.fully_shard(net, mesh=mesh)
                y = net(x)[0]
            torch.testing.assert_close(y.detach(), out, rtol=0, atol=EXACT)
            y += 1
            torch.testing.assert_close(net.weight_hh_l0.detach(), W, rtol=0, atol=EXACT)
            with torch.no_grad():
                torch.testing.assert_close(net.weight_hh_l0, W, rtol=0, atol=EXACT)
            net.weight_hh_l0.sum().backward()
            assert net.transition_l0.free()[0].grad is not None
            Q = MatrixExponential().bind(N)(*MatrixExponential().bind(N).initial())
            Q = Q if torch.linalg.det(W) > 0 else Q @ torch.diag(torch.tensor([-1.0] + [1.0] * (N - 1)).double())
            net.weight_hh_l0 = Q
            torch.testing.assert_close(net.weight_hh_l0.detach(), Q, rtol=0, atol=EXACT)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_what_follows_a_step_is_done_to_the_whole_of_a_sharded_network(tmp_path):
    """On two processes; on one a shard is the whole."""
    if TORCH < (2, 7):
        pytest.skip("fully_shard of torch 2.6 runs on GPUs only: its stream of the CPU records no events")
    torch.multiprocessing.spawn(_train_a_shard, (str(tmp_path / "store"),), nprocs=2)


def _train_a_shard(rank: int, store: str) -> None:
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", store=distributed.FileStore(store, 2), rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for parametrization in (
        MatrixExponential(rebase_every=2),
        Householder(unit=True),
        Householder(u1="soft"),
        Stiefel(),
    ):
        finals = []
        for sharded in (False, True):
            torch.manual_seed(0)
            net = network(parametrization=parametrization, learn_h0=True)
            x = inputs()
            if sharded:
                fully_shard(net, mesh=mesh)
            groups = param_groups(net, 0.3)
            parts = [torch.optim.SGD([group for group in groups if group["name"] != "manifold"])]
            on_manifold = [group for group in groups if group["name"] == "manifold"]
            parts += [CayleySGD(on_manifold)] if on_manifold else []
            optimizer = JointOptimizer(*parts)
            attach(net, optimizer)
            for _ in range(5):
                optimizer.zero_grad()
                net(x)[0].square().sum().backward()
                optimizer.step()
            finals.append((net.weight_hh_l0.detach(), net.initial_states(B).detach()))
        for one, other in zip(*finals):
            torch.testing.assert_close(one, other, rtol=0, atol=100 * EXACT)
    distributed.destroy_process_group()


def test_a_functional_call_with_another_w_leaves_the_network_as_it_was():
    net, x = network(parametrization=MatrixExponential()), inputs()
    before, W = net.weight_hh_l0.detach(), network(parametrization=MatrixExponential()).weight_hh_l0.detach()
    out = torch.func.functional_call(net, {"weight_hh_l0": W}, (x,))[0]
    torch.testing.assert_close(net.weight_hh_l0.detach(), before, rtol=0, atol=EXACT)
    net.weight_hh_l0 = W
    torch.testing.assert_close(net(x)[0], out, rtol=0, atol=EXACT)


@pytest.mark.parametrize("make", [GORU, PeepholeLSTM])
def test_the_bias_of_a_gated_network_may_be_pruned_and_parametrized(make):
    net = make(I, N)
    prune.l1_unstructured(net, "bias", 0.25)
    net(torch.randn(T, B, I))[0].sum().backward()
    assert (net.bias == 0).sum() >= N // 4
    prune.remove(net, "bias")
    with pytest.raises(ReadOnlyError):
        net.hidden_size = 3


def test_a_trace_by_fx_names_the_way():
    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = OrthogonalRNN(I, N)

        def forward(self, x):
            return self.rnn(x)[0]

    with pytest.raises(ArgumentTypeError, match=r"Proxy\. Trace with .*is_leaf_module.*torch\.export"):
        torch.fx.symbolic_trace(Whole())


CAPTURED = {
    "Cayley": lambda: network(parametrization=ScaledCayley(negatives=2)),
    "exponential": lambda: network(parametrization=MatrixExponential(rebase_every=2), nonlinearity="tanh"),
    "reflections": lambda: network(parametrization=Householder(reflections=2)),
    "operator": lambda: network(parametrization=Givens(layers=2), form="operator"),
    "complex operator": lambda: network(parametrization=RestrictedUnitary(), form="operator", learn_h0=True),
    "linear, last": lambda: network(parametrization=ScaledCayley(), nonlinearity="identity"),
    "two ways": lambda: network(num_layers=2, bidirectional=True),
    "blocks": lambda: OrthogonalBlocks(I, 4, N, stride=3, dtype=torch.float64),
    "blocks of reflections": lambda: OrthogonalBlocks(
        I, 4, N, stride=3, parametrization=ScaledCayley(), dtype=torch.float64
    ),
    "input-dependent": lambda: ReflectionRNN(I, N, reflections=2, dtype=torch.float64),
    "delta": lambda: DeltaRNN(I, N, dtype=torch.float64),
    "GORU": lambda: GORU(I, N, dtype=torch.float64),
}


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("name", CAPTURED)
def test_a_pass_while_cuda_captures_reads_nothing_on_the_host(name, tokens, monkeypatch):
    torch.manual_seed(0)
    net = CAPTURED[name]()
    x = torch.randint(0, I, (T, 4 * B)) if tokens else inputs(T, 4 * B, I)
    options = {"output": "last"} if "last" in name else {}
    # On a GPU no layer runs in the basis of its rotations, which the host would look for.
    monkeypatch.setattr(Layer, "_may_rotate", lambda *_: False)

    def both():
        states = net(x, **options)[0]
        gradients = torch.autograd.grad(states.abs().square().sum(), list(net.parameters()), allow_unused=True)
        with torch.no_grad():
            return states, net(x, **options)[0], *gradients

    expected = both()
    with monkeypatch.context() as patches:
        captured.begin(patches)
        found = both()
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=EXACT, atol=EXACT)


def test_the_response_does_not_look_at_initial_states_while_cuda_captures(monkeypatch):
    call = types.SimpleNamespace(x=inputs(), h0=torch.zeros(B, N, dtype=torch.float64), layout=None, restart=None)
    captured.begin(monkeypatch)
    assert impulse.last_state(None, call) is None


@pytest.mark.parametrize("recomputes", ["counted", "selective"])
@pytest.mark.parametrize("kind", [OrthogonalRNN, ReflectionRNN, DeltaRNN, OrthogonalBlocks])
def test_activation_checkpointing_of_a_custom_operator(kind, recomputes):
    """It unpacks what was saved once; the operators asked for it twice."""
    more = (4,) if kind is OrthogonalBlocks else ()
    net, x = kind(I, N, *more, dtype=torch.float64), inputs()
    wanted = torch.autograd.grad(net(x)[0].square().sum(), [*net.parameters()])
    policy = partial(create_selective_checkpoint_contexts, lambda *_, **__: CheckpointPolicy.MUST_RECOMPUTE)
    options = {"context_fn": policy} if recomputes == "selective" else {}
    with FlopCounterMode(display=False) if recomputes == "counted" else contextlib.nullcontext():
        checkpoint(net, x, use_reentrant=False, **options)[0].square().sum().backward()
    for one, other in zip([p.grad for p in net.parameters()], wanted):
        torch.testing.assert_close(one, other, rtol=EXACT, atol=EXACT)
