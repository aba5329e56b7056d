"""What every recurrent module must do, in one list. A new module, or a new kind of one, adds a line to SUBJECTS."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from orthornn import (
    GORU,
    DeltaRNN,
    Givens,
    Hadamard,
    Householder,
    LeakyHouseholder,
    MatrixExponential,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    activations,
    modules,
    orthogonalize,
)
from orthornn.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    ReadOnlyError,
    ShapeError,
    TransformError,
)
from orthornn.parametrizations.parametrization import ORTHOGONAL_GROUPS
from support.tolerances import tolerance
from support.versions import TORCH

T, B, I, N = 7, 3, 3, 6
LENGTHS = (3, 7, 1)
EXACT = tolerance(torch.float64, T * N * 10)
DEVICE = torch.device(os.environ.get("ORTHORNN_DEVICE", "cpu"))


@dataclass(frozen=True)
class Subject:
    """A kind of module: how it is made, and which of torch.nn.RNN's habits it has."""

    name: str
    make: Callable[..., nn.Module]
    cell: bool = False  # one step a call
    one_way: bool = True  # a sequence may be cut in two
    loop: bool = False  # a loop over the steps in Python, so that a graph has one length
    compiled: bool = False  # these tests take seconds
    mixes: bool = False  # the output of a step is not its state, nor made of one state for each direction

    def __call__(self, dtype: torch.dtype = torch.float64, **options: object) -> nn.Module:
        torch.manual_seed(0)
        return self.make(I, N, dtype=dtype, **options)


METHODS = [
    Householder(),
    Householder(reflections=2),
    Householder(reflections=2, base="rotations"),
    Householder(reflections=2, base="rotations", train_angles=True),
    LeakyHouseholder(reflections=3),
    ScaledCayley(negatives=3),
    MatrixExponential(rebase_every=2),
    Givens(layers=2),
    Givens(layers="fft"),
    Hadamard(),
    SpectralMargin(margin=0.1),
    Stiefel(),
    Unconstrained(),
    Householder(field="complex"),
    Householder(reflections=2, field="complex", base="rotations"),
    ScaledCayley(field="complex"),
    ScaledCayley(field="complex", phases=True),
    MatrixExponential(field="complex"),
    Givens(layers=2, field="complex"),
    Stiefel(field="complex"),
    RestrictedUnitary(),
]
KINDS = {
    **{
        f"two directions, {method}": {"num_layers": 2, "bidirectional": True, "parametrization": method}
        for method in (
            Householder(reflections=2),
            Householder(reflections=2, base="rotations"),
            ScaledCayley(negatives=3),
            Householder(field="complex"),
        )
    },
    "learned, unitary": {"learn_h0": True, "learn_gain": True, "parametrization": Householder(field="complex")},
    "learned": {"learn_h0": True, "learn_gain": True, "gain": 0.95, "parametrization": Householder(reflections=3)},
    "prelu": {"nonlinearity": "prelu", "num_layers": 2},
    "oplu": {"nonlinearity": "oplu", "parametrization": ScaledCayley()},
    "no bias": {"bias": False, "nonlinearity": "tanh"},
    "rotations": {"nonlinearity": "identity", "form": "rotations"},
    "operator": {"parametrization": Givens(layers=2, field="complex"), "form": "operator"},
    "linear transition": {"linear_transition": True, "nonlinearity": "relu"},
    "checkpoint": {"memory": "checkpoint", "segment": 2, "num_layers": 2},
}
REFLECTIONS = {
    "one": {"learn_h0": True},
    "rotation": {"transition": "rotation", "heads": 2, "nonlinearity": "oplu"},
    "all": {
        "reflections": 2,
        "heads": 2,
        "beta": "input",
        "gate": "diagonal",
        "base": "input",
        "nonlinearity": "prelu",
        "num_layers": 2,
        "learn_h0": True,
    },
    "two directions": {
        "reflections": 3,
        "gate": "scalar",
        "base": "fixed",
        "nonlinearity": "modrelu",
        "num_layers": 2,
        "bidirectional": True,
    },
}


DELTA = {
    "one": {},
    "all": {
        "num_layers": 2,
        "heads": 2,
        "key_size": 3,
        "updates": 2,
        "gate": "diagonal",
        "learn_h0": True,
    },
    "two directions": {"num_layers": 2, "gate": "scalar", "beta": 1.0, "bidirectional": True, "bias": False},
}
BLOCKS = {
    "rotations": {"learn_h0": True},
    "decay": {"decay": True, "radii": (0.5, 0.9), "mixing": "gelu", "norm": "none", "residual": False},
    "two directions": {"bidirectional": True, "mixing": "mlp", "norm": "rms"},
    "reflections": {"parametrization": Householder(reflections=2, base="rotations"), "bias": False},
    "unitary": {"parametrization": ScaledCayley(field="complex")},
    "checkpoint": {"memory": "checkpoint", "segment": 2, "depth": 3, "learn_h0": True},
}


def network(*sizes: int, **options: object) -> nn.Module:
    return OrthogonalRNN(*sizes, **{"num_layers": 2, "learn_h0": True, **options})


def unitary() -> Givens:
    return Givens(layers=2, field="complex")


def blocks(input_size: int, size: int, **options: object) -> OrthogonalBlocks:
    return OrthogonalBlocks(input_size, size, N, **{"depth": 2, **options})


SUBJECTS = [
    *(Subject(repr(method), partial(network, parametrization=method)) for method in METHODS),
    *(
        Subject(
            name,
            partial(OrthogonalRNN, **kind),
            one_way="bidirectional" not in kind,
            loop=name in ("operator", "checkpoint"),
            compiled=name.startswith("two directions") or name == "learned, unitary",
        )
        for name, kind in KINDS.items()
    ),
    Subject("cell", partial(OrthogonalRNNCell, learn_h0=True, parametrization=Householder(reflections=2)), cell=True),
    Subject("unitary cell", partial(OrthogonalRNNCell, parametrization=Householder(field="complex")), cell=True),
    Subject("GORU", partial(GORU, learn_h0=True), loop=True, compiled=True),
    Subject("unitary GORU", partial(GORU, learn_h0=True, parametrization=unitary()), loop=True),
    Subject("tanh GORU", partial(GORU, nonlinearity="tanh", parametrization=ScaledCayley()), loop=True),
    Subject("PeepholeLSTM", partial(PeepholeLSTM, learn_state=True), loop=True, compiled=True),
    *(
        Subject(
            f"ReflectionRNN, {name}",
            partial(ReflectionRNN, **kind),
            one_way="bidirectional" not in kind,
            compiled=name in ("one", "all"),
        )
        for name, kind in REFLECTIONS.items()
    ),
    *(
        Subject(
            f"DeltaRNN, {name}",
            partial(DeltaRNN, **kind),
            one_way="bidirectional" not in kind,
            compiled=name == "all",
        )
        for name, kind in DELTA.items()
    ),
    *(
        Subject(
            f"blocks, {name}",
            partial(blocks, **kind),
            one_way="bidirectional" not in kind,
            loop=name == "checkpoint",
            compiled=name in ("rotations", "two directions"),
            mixes=True,
        )
        for name, kind in BLOCKS.items()
    ),
    Subject("LSTM", partial(PeepholeLSTM, peepholes=False, init="orthogonal"), loop=True),
]
EVERY = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
SEQUENCES = pytest.mark.parametrize("subject", [s for s in SUBJECTS if not s.cell], ids=lambda subject: subject.name)
ONE_WAY = pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if s.one_way and not s.cell], ids=lambda subject: subject.name
)
COMPILED = pytest.mark.parametrize(  # the others with `make test-slow`
    "subject",
    [pytest.param(s, id=s.name, marks=() if s.compiled or s.cell else pytest.mark.slow) for s in SUBJECTS],
)
OTHER_SIZES = ("ReflectionRNN, all",)  # graphs of several sizes, in seconds


def inputs(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*(shape or (T, B, I)), dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)


def parts(final: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return final if isinstance(final, tuple) else (final,)


def run(net: nn.Module, x: Tensor, state: object = None) -> tuple[Tensor, ...]:
    """(states of all steps, final states): of a cell by a loop."""
    if isinstance(net, OrthogonalRNNCell):
        states = []
        for x_t in x:
            states.append(state := net(x_t, state))
        return torch.stack(states), states[-1]
    out, final = net(x) if state is None else net(x, state)
    return out, *parts(final)


def same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], bound: float = 0.0) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound)


def test_every_recurrent_module_is_a_subject():
    """A public module that takes an input size and the size of a state cannot be forgotten in SUBJECTS."""
    public = {getattr(modules, name) for name in modules.__all__}
    recurrent = {
        kind
        for kind in public
        if isinstance(kind, type)
        and issubclass(kind, nn.Module)
        and "input_size" in (names := set(inspect.signature(kind).parameters))
        and names & {"hidden_size", "state_size"}
    }
    assert {OrthogonalRNN, OrthogonalRNNCell, GORU, PeepholeLSTM} <= recurrent
    assert recurrent == {type(subject()) for subject in SUBJECTS}


@pytest.mark.sampled(18)
@EVERY
def test_state_dict_carries_everything(subject, tmp_path):
    net, x = subject(), inputs()
    expected = run(net, x)
    torch.save(net.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(5)
    other = subject.make(I, N, dtype=torch.float64)
    assert not torch.equal(run(other, x)[0], expected[0])
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert not any(other.load_state_dict(state))  # neither missing nor unexpected
    same(run(other, x), expected)
    inputs_of = ("weight_ih", "weight_v")
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict(
            {key: value for key, value in state.items() if not any(name in key for name in inputs_of)}
        )
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict({**state, "weight_oh": torch.zeros(1)})


@pytest.mark.sampled(17)
@EVERY
def test_deepcopy_and_pickle(subject):
    net, x = subject(), inputs()
    expected = run(net, x)
    with torch.no_grad():
        run(net, x)  # fills caches
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)]
    for twin in copies:
        same(run(twin, x), expected)
        assert repr(twin) == repr(net)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(0.1)
        same(run(net, x), expected)  # nothing is shared


@EVERY
def test_a_copy_trains_alone(subject):
    """Gradients reach every parameter of the copy and none of the original."""
    net = subject()
    twin = copy.deepcopy(net)
    sum(out.abs().square().sum() for out in run(twin, inputs())).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in twin.parameters())
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.sampled(25)
@EVERY
def test_activation_checkpointing_recomputes_the_same_gradients(subject):
    plain, again, x = subject(), subject(), inputs()
    sum(out.abs().square().sum() for out in run(plain, x)).backward()
    outs = checkpoint(partial(run, again), x, use_reentrant=False)
    sum(out.abs().square().sum() for out in outs).backward()
    for mine, theirs in zip(again.parameters(), plain.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=EXACT)


@pytest.mark.sampled(3)
@EVERY
def test_meta_device_and_to_empty(subject):
    net, x = subject(), inputs()
    empty = subject(device="meta")
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    names = {name: parameter.shape for name, parameter in net.named_parameters()}
    assert {name: parameter.shape for name, parameter in empty.named_parameters()} == names
    for found, expected in zip(run(empty, x.to("meta")), run(net, x)):
        assert found.is_meta
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    empty.to_empty(device="cpu").reset_parameters()
    assert all(out.isfinite().all() for out in run(empty, x))
    empty.load_state_dict(net.state_dict())
    same(run(empty, x), run(net, x))


@pytest.mark.sampled(25)
@EVERY
def test_modules_leave_the_meta_device_one_by_one(subject):
    """As FSDP does it: each module with tensors of its own gets memory and is asked for values, parents first."""
    net = subject(device="meta")
    for module in net.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if own:
            module.to_empty(device="cpu", recurse=False)
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data.fill_(9)  # stands for memory that nothing has been written to
            module.reset_parameters()
    assert not [
        tensor for tensor in (*net.parameters(), *net.buffers()) if tensor.numel() and bool((tensor == 9).all())
    ]
    expected = subject()
    for module, other in zip(net.modules(), expected.modules()):
        if isinstance(module, modules.Transition) and other.method.group in ORTHOGONAL_GROUPS:
            assert module.method.orthogonality_error(module.matrix()) < EXACT
    assert all(out.isfinite().all() for out in run(net, inputs()))


@pytest.mark.sampled(25)
@EVERY
def test_a_seed_gives_the_same_values_with_and_without_the_meta_device(subject):
    """As with torch's layers, whose constructors call reset_parameters."""
    torch.manual_seed(5)
    expected, after = subject.make(I, N).state_dict(), torch.get_rng_state()
    net = subject.make(I, N, device="meta").to_empty(device="cpu")
    torch.manual_seed(5)
    net.reset_parameters()
    assert torch.equal(torch.get_rng_state(), after)
    found = net.state_dict()
    assert not [name for name, value in expected.items() if not torch.equal(found[name], value)]


@EVERY
def test_nothing_is_drawn_on_the_meta_device(subject):
    """A network without values costs no QR factorization of a matrix nobody sees, and leaves the generator as it is."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    subject.make(I, N, device="meta").reset_parameters()
    with torch.device("meta"):
        subject.make(I, N)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.sampled(12)
@EVERY
def test_reset_parameters_draws_everything_again(subject):
    net, x = subject(), inputs()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    expected = run(net, x)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.123)
    torch.manual_seed(0)
    net.reset_parameters()
    untouched = [name for name, p in net.named_parameters() if p.numel() and bool((p == 0.123).all())]
    assert not untouched
    assert {name: value.shape for name, value in net.state_dict().items()} == {k: v.shape for k, v in before.items()}
    assert all(out.isfinite().all() and out.shape == want.shape for out, want in zip(run(net, x), expected))


@pytest.mark.sampled(27)
@EVERY
def test_dtype_moves(subject):
    net, x = subject(), inputs()
    expected = run(net, x)
    single = copy.deepcopy(net).float()
    for found, want in zip(run(single, x.float()), expected):
        assert found.dtype.to_real() == torch.float32
        assert found.is_complex() == want.is_complex()
        bound = tolerance(torch.float32, T * N) * 10 * float(want.detach().abs().max())
        torch.testing.assert_close(found.to(want.dtype), want, rtol=0, atol=bound)
    for found, want in zip(run(single.double(), x), expected):
        assert found.dtype == want.dtype
    assert (
        subject(dtype=torch.float32)(x.float() if not subject.cell else x[0].float())[0].dtype.to_real()
        == torch.float32
    )


@pytest.mark.sampled(14)
@EVERY
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_16_bit_weights(subject, low):
    """Outputs and gradients of the dtype of the weights, those of the same weights in float32 but for rounding."""
    net, x = subject(dtype=torch.float32).to(low), inputs(dtype=low)
    wide = copy.deepcopy(net).float()
    found, expected = run(net, x), run(wide, x.float())
    grads = []
    for network, outs in ((net, found), (wide, expected)):
        sum(out.abs().float().square().mean() for out in outs).backward()
        grads.append(tuple(p.grad for p in network.parameters()))
    for mine, theirs in zip((*found, *grads[0]), (*expected, *grads[1])):
        assert mine.is_complex() or mine.dtype == low
        bound = tolerance(low, T) * (1 + float(theirs.detach().abs().amax() if theirs.numel() else 0))
        torch.testing.assert_close(mine.to(theirs.dtype), theirs, rtol=0, atol=bound)
    assert subject(dtype=low)(x[0] if subject.cell else x)[0].isfinite().all()


@EVERY
@pytest.mark.skipif(DEVICE.type == "cpu", reason="ORTHORNN_DEVICE names no other device")
def test_device_moves(subject):
    net, x = subject(), inputs()
    expected = run(net, x)
    there = copy.deepcopy(net).to(DEVICE)
    same(tuple(out.cpu() for out in run(there, x.to(DEVICE))), expected, EXACT)
    same(run(there.cpu(), x), expected)
    made = subject(device=DEVICE)  # with random numbers of its own, as torch's modules
    assert {parameter.device.type for parameter in made.parameters()} == {DEVICE.type}
    same(tuple(out.cpu() for out in run(made, x.to(DEVICE))), run(copy.deepcopy(made).cpu(), x), EXACT)


@pytest.mark.sampled(29)
@pytest.mark.parametrize("output", ["all", "last"])
@SEQUENCES
def test_without_steps_gradients_reach_everything(subject, output):
    """As with steps: an optimizer, or data-parallel training, finds a gradient of every parameter."""
    net, x = subject(), torch.zeros(0, B, I, dtype=torch.float64, requires_grad=True)
    if isinstance(net, OrthogonalBlocks):
        with pytest.raises(ShapeError, match="Expected at least one step"):
            net(x, output=output)
        return
    given = initial_state(net)
    for state in (None, given):
        out, final = net(x, state, output=output)
        assert out.shape[:-1] == ((0, B) if output == "all" else (B,))
        for result in (out, *parts(final)):
            leaves = [x, *(() if state is None else parts(state)), *net.parameters()]
            if state is not None:  # the trained one is not read
                leaves = [leaf for leaf in leaves if not any(leaf is getattr(net, name, None) for name in ("h0", "c0"))]
            gradients = torch.autograd.grad(
                result.abs().sum(), leaves, retain_graph=True
            )  # raises if one is not reached
            assert all(gradient.isfinite().all() for gradient in gradients)
        if state is not None:
            same(parts(final), parts(state), EXACT)
            sum(value.abs().square().sum() for value in parts(final)).backward()
            same(tuple(value.grad for value in parts(state)), tuple(2 * value for value in parts(state)), EXACT)


def initial_state(net: nn.Module) -> Tensor | tuple[Tensor, ...]:
    """Leaves of the shape of hx."""
    leaves = tuple((torch.rand_like(value) + 0.5).detach().requires_grad_() for value in parts(net.initial_states(B)))
    return leaves if isinstance(net, PeepholeLSTM) else leaves[0]


@pytest.mark.sampled(20)
@SEQUENCES
def test_packed_sequences_are_each_sequence_alone(subject):
    net, x = subject(), inputs()
    _, *final = run(net, x)
    given = tuple(inputs(*part.shape).to(part.dtype) for part in final)
    state = given if len(given) > 1 else given[0]
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    out, finals = net(packed, state)
    assert isinstance(out, PackedSequence)
    assert torch.equal(out.batch_sizes, packed.batch_sizes)
    padded = pad_packed_sequence(out)[0]
    last, also = net(packed, state, output="last")
    same(parts(also), parts(finals), EXACT)
    for b, length in enumerate(LENGTHS):
        own = tuple(part[:, b : b + 1] for part in given)
        alone, ends = net(x[:length, b : b + 1], own if len(own) > 1 else own[0])
        torch.testing.assert_close(padded[:length, b], alone[:, 0], rtol=0, atol=EXACT)
        same(tuple(part[:, b] for part in parts(finals)), tuple(part[:, 0] for part in parts(ends)), EXACT)
        end = alone[-1, 0]
        if not (subject.one_way or subject.mixes):  # the reverse direction ends at the first step
            end = torch.cat([alone[-1, 0, :N], alone[0, 0, N:]])
        torch.testing.assert_close(last[b], end, rtol=0, atol=EXACT)


@pytest.mark.sampled(19)
@SEQUENCES
def test_packed_sequences_have_the_gradients_of_each_alone(subject):
    net, x = subject(), inputs().requires_grad_()
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    leaves = [x, *net.parameters()]
    found = torch.autograd.grad(net(packed)[0].data.abs().square().sum(), leaves)
    alone = [net(x[:length, b : b + 1])[0] for b, length in enumerate(LENGTHS)]
    expected = torch.autograd.grad(sum(out.abs().square().sum() for out in alone), leaves)
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=10 * EXACT * (1 + float(theirs.abs().max())))


@pytest.mark.sampled(36)
@SEQUENCES
def test_batch_first(subject):
    net, x = subject(), inputs()
    turned = subject(batch_first=True)
    turned.load_state_dict(net.state_dict())
    out, *final = run(net, x)
    found, *also = run(turned, x.transpose(0, 1))
    same((found.transpose(0, 1), *also), (out, *final), EXACT)
    tokens = torch.randint(0, I, (T, B), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(turned(tokens.mT)[0].transpose(0, 1), net(tokens)[0], rtol=0, atol=EXACT)
    last = turned(x.transpose(0, 1), output="last")[0]
    torch.testing.assert_close(last, net(x, output="last")[0], rtol=0, atol=EXACT)


@pytest.mark.sampled(32)
@EVERY
def test_unbatched(subject):
    net, x = subject(), inputs()
    out, *_ = run(net, x[:, :1])
    found, *final = run(net, x[:, 0])
    torch.testing.assert_close(found, out[:, 0], rtol=0, atol=EXACT)
    if subject.cell:
        return
    same(tuple(final), tuple(part[:, 0] for part in run(net, x[:, :1])[1:]), EXACT)
    torch.testing.assert_close(net(x[:, 0], output="last")[0], net(x[:, :1], output="last")[0][0], rtol=0, atol=EXACT)


@pytest.mark.sampled(35)
@SEQUENCES
def test_the_last_output_is_the_final_state(subject):
    net, x = subject(), inputs().requires_grad_()
    out, *final = run(net, x)
    last, also = net(x, output="last")
    same(parts(also), tuple(final), EXACT)
    end = out[-1] if subject.one_way or subject.mixes else torch.cat([out[-1, :, :N], out[0, :, N:]], dim=-1)
    torch.testing.assert_close(last, end, rtol=0, atol=EXACT)
    leaves = [x, *net.parameters()]
    found = torch.autograd.grad(last.abs().square().sum(), leaves)
    for mine, theirs in zip(found, torch.autograd.grad(end.abs().square().sum(), leaves)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=10 * EXACT * (1 + float(theirs.abs().max())))


@pytest.mark.sampled(30)
@ONE_WAY
def test_a_sequence_in_two_pieces(subject):
    net, x = subject(), inputs()
    out, *final = run(net, x)
    first, state = net(x[:3])
    rest, end = net(x[3:], state)
    same((torch.cat([first, rest]), *parts(end)), (out, *final), EXACT)


def mask(where: str, steps: int = T) -> Tensor:
    """Where episodes start, (T, B)."""
    found = torch.zeros(steps, B, dtype=torch.bool)
    if where == "random":
        found = torch.rand(steps, B, generator=torch.Generator().manual_seed(4)) < 0.4
    elif where != "none":
        found[{"all": slice(None), "first": 0, "last": -1}[where]] = True
    return found


def by_episode(net: nn.Module, x: Tensor, reset: Tensor, start: tuple[Tensor, ...], again: tuple[Tensor, ...]):
    """(states, final states) of one sequence (T, 1, I) by a call for each episode; states to start from: (L, 1, N)."""
    edges = [0, *(t for t in range(1, len(x)) if reset[t]), len(x)]
    count = len(edges) - 1
    outs, finals = [], []
    two_ways = getattr(net, "bidirectional", False)
    for k, (begin, end) in enumerate(pairwise(edges)):
        first = start if k == 0 and not reset[0] else again
        if two_ways:  # the reverse direction enters at the end
            last = start if k == count - 1 else again
            first = tuple(torch.stack([a[0::2], b[1::2]], 1).flatten(0, 1) for a, b in zip(first, last))
        out, *final = run(net, x[begin:end], first if len(first) > 1 else first[0])
        outs.append(out)
        finals.append(final)
    ends = finals[-1]
    if two_ways:
        ends = [torch.stack([a[0::2], b[1::2]], 1).flatten(0, 1) for a, b in zip(finals[-1], finals[0])]
    return torch.cat(outs), *ends


def check_episodes(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], leaves: list[Tensor]) -> None:
    same(found, expected, EXACT)
    grads = [
        torch.autograd.grad(
            sum((out * out.detach().cos()).abs().square().sum() for out in outs),
            leaves,
            allow_unused=True,
            materialize_grads=True,
        )
        for outs in (found, expected)
    ]
    for mine, theirs in zip(*grads):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=10 * EXACT * (1 + float(theirs.abs().max())))


@pytest.mark.sampled(10)
@SEQUENCES
@pytest.mark.parametrize("where", ["random", "none", "all", "first", "last"])
def test_resets_are_episodes_run_alone(subject, where):
    """Outputs, final states and all gradients, those of the states to start from included."""
    net, x, reset = subject(), inputs().requires_grad_(), mask(where)
    sizes = [part.shape for part in run(net, x)[1:]]
    kind = run(net, x)[1].dtype
    start, again = (tuple((inputs(*size) * scale).to(kind).requires_grad_() for size in sizes) for scale in (1.0, -0.7))
    pairs = ((start, again), (start, None), (None, again)) if where == "random" else ((None, None),)
    for given, back in pairs:
        state, restart = (None if s is None else s if len(s) > 1 else s[0] for s in (given, back))
        found = net(x, state, reset=reset, restart=restart)
        expected = []
        for b in range(B):
            own = [None if s is None else tuple(part[:, b : b + 1] for part in s) for s in (given, back)]
            own = [learned(net, sizes) if s is None else s for s in own]
            expected.append(by_episode(net, x[:, b : b + 1], reset[:, b], *own))
        joined = tuple(torch.cat(values, dim=1) for values in zip(*expected))
        leaves = [x, *net.parameters(), *(given or ()), *(back or ())]
        check_episodes((found[0], *parts(found[1])), joined, leaves)


def learned(net: nn.Module, sizes: list[torch.Size]) -> tuple[Tensor, ...]:
    """The trained initial states, or zeros, of one sequence: (L, 1, N)."""
    if isinstance(net, OrthogonalBlocks):
        own = [torch.Size((net.num_directions, *sizes[0][1:]))]
        return (torch.cat([learned(block.recurrence, own)[0] for block in net.blocks]),)
    own = [p for p in (getattr(net, "h0", None), getattr(net, "c0", None)) if p is not None]
    if not own:
        dtype = torch.complex128 if getattr(net, "is_complex", False) else torch.float64
        return tuple(torch.zeros(size[0], 1, *size[2:], dtype=dtype) for size in sizes)
    return tuple((torch.view_as_complex(p) if p.dim() == 3 else p).unsqueeze(1) for p in own)


@pytest.mark.sampled(8)
@SEQUENCES
def test_resets_at_sizes_that_come_later(subject):
    """One network on other lengths and batches in turn, across chunks and segments, each episode as if it ran alone."""
    net = subject()
    for steps, batch, share in ((T, B, 0.4), (1, 1, 1.0), (70, 1, 0.05), (3, 5, 0.3)):
        x, generator = inputs(steps, batch, I), torch.Generator().manual_seed(steps + batch)
        reset = torch.rand(steps, batch, generator=generator) < share
        out, *final = run(net, x)
        sizes = [part.shape for part in final]
        found = net(x, reset=reset)
        start = learned(net, sizes)
        alone = [by_episode(net, x[:, b : b + 1], reset[:, b], start, start) for b in range(batch)]
        joined = tuple(torch.cat(values, dim=1) for values in zip(*alone))
        same((found[0], *parts(found[1])), joined, EXACT * -(-steps // T))
        assert torch.equal(net(x)[0], out)  # the mask of one call is none of the next


def plainly(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return (call(x),)


def without_gradients(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return (call(x),)


def forward_mode(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return torch.func.jvp(call, (x,), (torch.ones_like(x),))


def vmapped(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return (torch.func.vmap(call)(torch.stack([torch.zeros_like(x), x]))[1],)


def reached(subject: Subject, at: int, resets: list[int]) -> Tensor:
    """Where outputs depend on step `at` of the first sequence, bool (T, B)."""
    first = max([0, *(t for t in resets if t <= at)])
    last = min([T, *(t for t in resets if t > at)])
    where = torch.zeros(T, B, dtype=torch.bool)
    where[at if subject.one_way else first : last, 0] = True
    return where


@pytest.mark.sampled(20)
@SEQUENCES
@pytest.mark.parametrize("way", [plainly, without_gradients, forward_mode, vmapped])
def test_what_is_not_finite_reaches_what_depends_on_it(subject, way):
    """No earlier output, no other episode, no other sequence: these are, with their tangents, those of a finite number."""
    net, x, nan, inf = subject(), inputs(), float("nan"), float("inf")
    for bad, at, resets in ((nan, 4, []), (inf, 4, []), (inf, 1, [3]), (nan, 4, [3, 5])):
        reset = None if not resets else torch.zeros(T, B, dtype=torch.bool)
        for t in resets:
            reset[t] = True
        given = x.clone()
        given[at, 0, 1] = bad
        where = reached(subject, at, resets)
        ends = where[-1] if subject.one_way else where[-1] | where[0]
        for output, rest in (("all", ~where), ("last", ~ends)):

            def call(z: Tensor, reset: Tensor | None = reset, output: str = output) -> Tensor:
                return net(z, reset=reset, output=output)[0]

            both = way(call, given), way(call, x)
            for found, clean in zip(*both):
                torch.testing.assert_close(found[rest], clean[rest], rtol=0, atol=EXACT)
            if bad != bad and output == "all":
                assert both[0][0][at, 0].isnan().any()


@pytest.mark.sampled(20)
@SEQUENCES
@pytest.mark.parametrize("read", ["all", "others"])
def test_gradients_of_what_is_not_finite(subject, read):
    """Those of other episodes and sequences are those of a finite number, whether the loss is finite or not. A loss that is
    not finite does not leave every gradient finite."""
    net, x = subject(), inputs()
    for bad, at, resets in ((float("inf"), 1, [3]), (float("nan"), 4, [3, 5])):
        reset, given, found = torch.zeros(T, B, dtype=torch.bool), x.clone(), []
        for t in resets:
            reset[t] = True
        given[at, 0, 1] = bad
        episode = reached(replace(subject, one_way=False), at, resets)
        for leaf in (given.requires_grad_(), x.clone().requires_grad_()):
            out = net(leaf, reset=reset)[0]
            loss = (out if read == "all" else out[~episode]).abs().square().sum()
            found.append(torch.autograd.grad(loss, [leaf, *net.parameters()]))
        torch.testing.assert_close(found[0][0][~episode], found[1][0][~episode], rtol=0, atol=EXACT)
        if bad != bad and read == "all":
            assert not all(bool(grad.isfinite().all()) for grad in found[0][1:])


WITH_STEP = pytest.mark.parametrize(
    "subject",
    [s for s in SUBJECTS if s.one_way and hasattr(s(), "step") and not s.cell],
    ids=lambda subject: subject.name,
)


def one(values: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """A state as the network takes it: a tensor, or a pair."""
    return values[0] if len(values) == 1 else values


@pytest.mark.sampled(9)
@WITH_STEP
@pytest.mark.parametrize("given", [False, True], ids=["own state", "restart"])
@pytest.mark.parametrize("carried", [False, True], ids=["from the start", "carried over"])
def test_resets_of_steps(subject, given, carried):
    """`step` with resets is the sequence with resets, and its gradients, whatever the state before the first step."""
    net, x, reset = subject(), inputs().requires_grad_(), mask("random")
    final = tuple(part.detach() for part in run(net, x)[1:])
    restart = one(tuple(inputs(*part.shape).to(part.dtype) for part in final)) if given else None
    h, outs = one(final) if carried else None, []
    expected = net(x, h, reset=reset, restart=restart)
    for x_t, reset_t in zip(x, reset):
        out, h = net.step(x_t, h, reset_t, restart)
        outs.append(out)
    check_episodes((torch.stack(outs), *parts(h)), (expected[0], *parts(expected[1])), [x, *net.parameters()])


@pytest.mark.sampled(33)
@WITH_STEP
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_steps_under_autocast_have_the_dtype_of_a_sequence(subject, low):
    net, x = subject(dtype=torch.float32), inputs(dtype=torch.float32)
    with torch.autocast("cpu", low):
        expected = run(net, x)
        state = None
        for x_t in x:
            out, state = net.step(x_t, state)
    found = (out, *parts(state))
    assert [value.dtype for value in found] == [value.dtype for value in expected]
    for mine, want in zip(found, (expected[0][-1].detach(), *expected[1:])):  # T states, rounded to 16 bits
        torch.testing.assert_close(mine, want, rtol=0, atol=tolerance(low) * (1 + float(want.detach().abs().max())))


@pytest.mark.sampled(8)
@WITH_STEP
def test_unbatched_steps(subject):
    """Steps without a batch dimension are those of a batch of one, and so are their states and resets."""
    net, x, reset = subject(), inputs()[:, 0].requires_grad_(), mask("random")[:, 0]
    restart = one(tuple(inputs(*part.shape).to(part.dtype) for part in run(net, x)[1:]))
    for resets in (None, reset):
        h, outs, again = None, [], None if resets is None else restart
        out, final = net(x, reset=resets, restart=again)
        for t, x_t in enumerate(x):
            out_t, h = net.step(x_t, h, None if resets is None else resets[t], again)
            outs.append(out_t)
        check_episodes((torch.stack(outs), *parts(h)), (out, *parts(final)), [x, *net.parameters()])
    with pytest.raises(ShapeError, match=r"^Expected (h|state\[0\]) to have shape .*, but got "):
        net.step(x[0], one(tuple(part.unsqueeze(1) for part in parts(h))))
    with pytest.raises(ShapeError, match=r"^Expected .*reset.*, but got "):
        net.step(x[0], h, reset[:1])
    with pytest.raises(ArgumentError, match="restart"):
        net.step(x[0], h, restart=restart)
    with pytest.raises(ShapeError, match=rf"^Expected x of shape \(B, {I}\) or \({I},\), .* Pass {I} numbers for each"):
        net.step(x[0, 1:])
    with pytest.raises(
        ShapeError, match=r"but got .* Pass a whole sequence to forward\(\), or its steps one by one, x\[t\]"
    ):
        net.step(x[:, None])
    with pytest.raises(ShapeError, match=r"but got \(\)\. Pass one token as a batch of one, x\[None\]"):
        net.step(torch.tensor(1))


@ONE_WAY
def test_resets_of_a_sequence_in_two_pieces(subject):
    """The second piece continues the state of the first; its episodes do not."""
    net, x, reset = subject(), inputs(), mask("random")
    out, *final = run_with(net, x, None, reset)
    early, *state = run_with(net, x[:2], None, reset[:2])
    late, *also = run_with(net, x[2:], tuple(state), reset[2:])
    same((torch.cat([early, late]), *also), (out, *final), EXACT)


def run_with(net: nn.Module, x: Tensor, state: tuple[Tensor, ...] | None, reset: Tensor) -> tuple[Tensor, ...]:
    out, final = net(x, None if state is None else state if len(state) > 1 else state[0], reset=reset)
    return out, *parts(final)


@SEQUENCES
def test_initial_states_are_what_the_network_starts_from(subject):
    """The same bits as without a state, and gradients that reach the trained one."""
    net, x = subject(), inputs()
    hx, pair = net.initial_states(B), isinstance(net, PeepholeLSTM)
    out, *final = run(net, x)
    assert [part.shape for part in parts(hx)] == [part.shape for part in final]
    same(run(net, x, hx), (out, *final))
    other = tuple(torch.ones_like(part) for part in parts(hx))
    same(parts(net.initial_states(B, other if pair else other[0])), other)
    own = [p for name, p in net.named_parameters() if name.rpartition(".")[2] in ("h0", "c0")]
    if own:
        sum((torch.view_as_real(h) if h.is_complex() else h).sum() for h in parts(hx)).backward()
        assert all(bool((p.grad == B).all()) for p in own)
    with pytest.raises(ArgumentError, match="Expected batch to be an integer of at least 0"):
        net.initial_states(-1)
    with pytest.raises(ShapeError, match=r"Expected (h0|state)"):
        net.initial_states(B + 1, other if pair else other[0])


@pytest.mark.sampled(18)
@SEQUENCES
def test_resets_of_packed_sequences(subject):
    """The mask padded, or packed like the input: each sequence as if it ran alone."""
    net, x, reset = subject(), inputs().requires_grad_(), mask("random")
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    out, final = net(packed, reset=reset)
    again, also = net(packed, reset=pack_padded_sequence(reset, torch.tensor(LENGTHS), enforce_sorted=False))
    assert torch.equal(out.data, again.data)
    assert all(torch.equal(a, b) for a, b in zip(parts(final), parts(also)))
    padded = pad_packed_sequence(out)[0]
    alone = [net(x[:n, b : b + 1], reset=reset[:n, b : b + 1]) for b, n in enumerate(LENGTHS)]
    found = [padded[:n, b] for b, n in enumerate(LENGTHS)]
    check_episodes(
        (*found, *parts(final)),
        (*(a[0][:, 0] for a in alone), *(torch.cat(v, dim=1) for v in zip(*(parts(a[1]) for a in alone)))),
        [x, *net.parameters()],
    )
    with pytest.raises(ShapeError, match="Pack both alike"):
        net(packed, reset=pack_padded_sequence(reset, torch.tensor(sorted(LENGTHS)), enforce_sorted=False))
    with pytest.raises(ShapeError, match="Pad it"):
        net(x, reset=pack_padded_sequence(reset, torch.tensor(LENGTHS), enforce_sorted=False))


@pytest.mark.sampled(26)
@SEQUENCES
def test_resets_in_every_layout(subject):
    net, x, reset = subject(), inputs(), mask("random")
    out, *final = net(x, reset=reset)
    turned = subject(batch_first=True)
    turned.load_state_dict(net.state_dict())
    found, *also = turned(x.transpose(0, 1), reset=reset.mT)
    same((found.transpose(0, 1), *parts(also[0])), (out, *parts(final[0])), EXACT)
    last = net(x, output="last", reset=reset)[0]
    end = out[-1] if subject.one_way else torch.cat([out[-1, :, :N], out[0, :, N:]], dim=-1)
    torch.testing.assert_close(last, end, rtol=0, atol=EXACT)
    alone = net(x[:, 0], reset=reset[:, 0])[0]
    torch.testing.assert_close(alone, net(x[:, :1], reset=reset[:, :1])[0][:, 0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.cell], ids=lambda subject: subject.name)
def test_resets_of_cells(subject):
    net, x, reset = subject(), inputs().requires_grad_(), mask("random")
    state, states = None, []
    for x_t, reset_t in zip(x, reset):
        states.append(state := net(x_t, state, reset=reset_t))
    expected, _ = net.rnn(x, reset=reset)
    check_episodes((torch.stack(states),), (expected,), [x, *net.parameters()])
    restart = torch.ones_like(state)
    given = net(x[0], state, reset=torch.tensor([True, False, True]), restart=restart)
    same((given[0], given[1]), (net(x[0, :1], restart[:1])[0], net(x[0, 1:2], state[1:2])[0]), EXACT)
    alone = net(x[0, 0], state[0], reset=torch.tensor(True), restart=restart[0])
    torch.testing.assert_close(alone, given[0], rtol=0, atol=EXACT)


@EVERY
def test_bad_resets(subject):
    net, x = subject(), inputs()
    x, leading = (x[0], (B,)) if subject.cell else (x, (T, B))
    for wrong, error, words in (
        (torch.zeros(leading), DTypeError, r"Convert it with \.bool\(\)"),
        (torch.zeros(B + 1, *leading[1:], dtype=torch.bool), ShapeError, "one entry per step and sequence"),
        (torch.zeros(*leading, 1, dtype=torch.bool), ShapeError, "one entry per step and sequence"),
        (torch.zeros(leading, dtype=torch.bool, device="meta"), DeviceError, "Move it with"),
        ([[True]], ArgumentTypeError, "Expected reset to be a tensor"),
    ):
        with pytest.raises(error, match=words):
            net(x, reset=wrong)
    state = torch.zeros(1, B, N, dtype=torch.float64)
    with pytest.raises(ArgumentError, match="Pass reset, or leave restart out"):
        net(x, restart=state)
    reset = torch.zeros(leading, dtype=torch.bool)
    with pytest.raises((ShapeError, ArgumentTypeError), match="Expected restart"):
        net(x, reset=reset, restart=state[:, :1])


@pytest.mark.sampled(27)
@EVERY
def test_tokens_are_one_hot_inputs(subject):
    net = subject()
    tokens = torch.randint(0, I, (T, B), generator=torch.Generator().manual_seed(3))
    one_hot = nn.functional.one_hot(tokens, I).double()
    same(run(net, tokens), run(net, one_hot), EXACT)
    leaves = [p for name, p in net.named_parameters() if "weight_ih" in name or "weight_v" in name]
    by_tokens, by_one_hot = (torch.autograd.grad(run(net, x)[0].abs().sum(), leaves) for x in (tokens, one_hot))
    same(by_tokens, by_one_hot, 10 * EXACT * T * B)
    if subject.cell:
        return
    packed = [pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False) for x in (tokens, one_hot)]
    same((net(packed[0])[0].data,), (net(packed[1])[0].data,), EXACT)
    same((net(tokens[:, 0])[0],), (net(one_hot[:, 0])[0],), EXACT)


@pytest.mark.sampled(1)
@COMPILED
def test_compile_without_breaks(subject):
    torch._dynamo.reset()
    net, x = subject(), inputs()[: 3 if subject.loop else T]
    x = x[0] if subject.cell else x
    call = net if subject.cell else lambda x: net(x)[0]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    expected, found = call(x), compiled(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)
    leaves = [p for p in net.parameters() if p.numel()]
    mine = torch.autograd.grad(found.abs().square().sum(), leaves, allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad(expected.abs().square().sum(), leaves, allow_unused=True, materialize_grads=True)
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT * (1 + float(b.abs().max())))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["auto", "operator"])
def test_compile_with_complex_inputs_and_states(form):
    torch._dynamo.reset()
    net = OrthogonalRNN(I, N, parametrization=unitary(), form=form, dtype=torch.float64)
    x, h0 = torch.complex(inputs(), -inputs())[:3], torch.complex(inputs(1, B, N), inputs(1, B, N))
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    same(compiled(x, h0), net(x, h0), EXACT)


@pytest.mark.sampled(1)
@COMPILED
def test_compile_with_resets(subject):
    torch._dynamo.reset()
    net, x = subject(), inputs()[: 3 if subject.loop else T]
    x, reset = (x[0], mask("random")[2]) if subject.cell else (x, mask("random", len(x)))
    call = net if subject.cell else lambda x, reset: net(x, reset=reset)[0]
    given = {"hx": inputs(B, N), "reset": reset} if subject.cell and not net.rnn.is_complex else {"reset": reset}
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    check_episodes((compiled(x, **given),), (call(x, **given),), list(net.parameters()))


@pytest.mark.parametrize(  # the others with `make test-slow`
    "subject",
    [
        pytest.param(s, id=s.name, marks=() if s.name in OTHER_SIZES else pytest.mark.slow)
        for s in SUBJECTS
        if s.compiled and not s.loop
    ],
)
def test_compile_with_resets_of_other_sizes(subject):
    torch._dynamo.reset()
    net = subject()
    compiled = torch.compile(lambda x, reset: net(x, reset=reset)[0], fullgraph=True, backend="aot_eager")
    for steps in (T, 4, 9):
        x, reset = inputs(steps, B, I), mask("random", steps)
        check_episodes((compiled(x, reset),), (net(x, reset=reset)[0],), list(net.parameters()))


@pytest.mark.sampled(1)
@pytest.mark.skipif(TORCH < (2, 10), reason="a PackedSequence breaks the graph")
@pytest.mark.parametrize(  # the others with `make test-slow`
    "subject",
    [
        pytest.param(s, id=s.name, marks=() if s.name == "ReflectionRNN, one" else pytest.mark.slow)
        for s in SUBJECTS
        if not s.cell
    ],
)
@pytest.mark.parametrize("given", ["nothing", "states and resets"])
def test_compile_with_packed_sequences_without_breaks(subject, given):
    """Also with other lengths and another number of sequences than those of the first call."""
    torch._dynamo.reset()
    net = subject()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for lengths in ((2, 3, 1), (1, 2, 3, 3)):
        x, options = inputs(3, len(lengths), I).requires_grad_(), {}
        if given != "nothing":
            first = net.initial_states(len(lengths))
            states = tuple(map(torch.rand_like, first)) if isinstance(net, PeepholeLSTM) else torch.rand_like(first)
            options = {"hx": states, "reset": torch.rand(3, len(lengths)) < 0.4}
        runs = []
        for call in (compiled, net):
            out, final = call(pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False), **options)
            runs.append((out.data, *parts(final)))
        check_episodes(*runs, [x, *(p for p in net.parameters() if p.numel())])


@pytest.mark.sampled(1)
@pytest.mark.skipif(TORCH < (2, 10), reason="a PackedSequence breaks the graph")
@pytest.mark.parametrize("make", [OrthogonalRNN, ReflectionRNN, GORU])
def test_a_graph_refuses_packed_sequences_that_do_not_fit(make):
    torch._dynamo.reset()
    net = make(I, N, dtype=torch.float64)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    rows, hx = inputs(6, I), inputs(1, B, N)
    good = PackedSequence(rows, torch.tensor([3, 2, 1]))
    same(parts(compiled(good, hx)[1]), parts(net(good, hx)[1]), EXACT)
    for sizes in ([2, 2, 2], [3, 1, 2], [3, 2, 2], [1, 2, 3]):
        with pytest.raises((RuntimeError, IndexError, ShapeError)):
            compiled(PackedSequence(rows, torch.tensor(sizes)), hx)


CLIPPED = {"clip_backward": 0.5, "nonlinearity": activations.get("leaky_relu", 0.25), "num_layers": 2, "dropout": 0.5}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "make",
    [
        partial(OrthogonalRNN, gain=0.9, **CLIPPED),
        partial(OrthogonalRNN, memory="checkpoint", segment=2),
        partial(ReflectionRNN, memory="checkpoint", **CLIPPED),
        partial(DeltaRNN, beta=0.7),
    ],
    ids=["options", "segments", "ReflectionRNN", "DeltaRNN"],
)
def test_compile_with_dynamic_sizes_and_numbers(make):
    """dynamic=True makes symbols of numbers too: of the slope, the bound and the gain."""
    torch._dynamo.reset()
    net = make(I, N, dtype=torch.float64).eval()
    compiled = torch.compile(lambda x: net(x)[0], fullgraph=True, backend="eager", dynamic=True)
    for steps, batch in ((T, B), (4, 5)):
        x = inputs(steps, batch, I)
        torch.testing.assert_close(compiled(x), net(x)[0], rtol=0, atol=EXACT)


@pytest.mark.sampled(1)
@COMPILED
def test_export(subject):
    net, x = subject(), inputs()
    batch = torch.export.Dim("B", min=2, max=99)
    if subject.cell:
        x, longer, dims = x[0], inputs(B + 2, I), {0: batch}
    elif subject.loop:
        x, longer, dims = x[:3], inputs(3, B + 2, I), {1: batch}
    else:
        longer, dims = inputs(T + 4, B + 2, I), {0: torch.export.Dim("T", min=2, max=99), 1: batch}
    program = torch.export.export(net, (x,), dynamic_shapes=(dims,), strict=False)
    found, expected = program.module()(longer), net(longer)
    pair = (found, expected) if subject.cell else (found[0], expected[0])
    torch.testing.assert_close(*pair, rtol=0, atol=EXACT)


@pytest.mark.sampled(18)
@EVERY
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_what_torchs_networks_have_is_there(subject):
    """The name of the initial state, flatten_parameters(), a table in notebooks; and torch.jit.script is refused."""
    net, x = subject(), inputs()
    out, *final = run(net, x)
    assert "<table>" in net._repr_html_()
    with pytest.raises(TransformError, match=r"torch\.jit\.trace"):
        torch.jit.script(net)
    if subject.cell:
        torch.testing.assert_close(net(x[1], hx=out[0]), out[1], rtol=0, atol=0)
        return
    net.flatten_parameters()
    lead = net.num_layers * net.num_directions
    assert {t.shape[0] for t in final} == {lead}
    state = tuple(final) if len(final) > 1 else final[0]
    same((net(x, hx=state)[0],), (net(x, state)[0],))
    with pytest.raises(ArgumentError, match="Expected one initial state"):
        net(x, state, **{"state" if len(final) > 1 else "h0": state})


@pytest.mark.sampled(31)
@EVERY
def test_bad_inputs(subject):
    net, x = subject(), inputs()
    x = x[0] if subject.cell else x
    for wrong in (x[..., : I - 1], x.expand(2, 2, *x.shape), torch.zeros(2, 2, 2, 2, dtype=torch.int64)):
        with pytest.raises(ShapeError):
            net(wrong)
    state = torch.zeros(5, B + 1, N, dtype=torch.float64)
    with pytest.raises(ShapeError):
        net(x, state[0] if subject.cell else (state, state) if isinstance(net, PeepholeLSTM) else state)
    token = torch.full(x.shape[:-1], I)
    with pytest.raises(IndexError):
        net(token)
    if subject.cell:
        return
    with pytest.raises(ArgumentError, match=r"Did you mean 'last'\?"):
        net(x, output="lats")
    with pytest.raises(ShapeError):
        net(pack_padded_sequence(x[..., : I - 1], torch.tensor(LENGTHS), enforce_sorted=False))


def other_name(subject: Subject) -> str:
    """The second name of the initial state."""
    return "h" if subject.cell else "state" if isinstance(subject(), PeepholeLSTM) else "h0"


@pytest.mark.sampled(15)
@EVERY
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
def test_errors_name_an_initial_state_as_the_user_does(subject, batched):
    """With the shape that it must have there; a part of a pair by its index."""
    net, x = subject(), inputs()
    good = tuple(part.detach() for part in run(net, x)[1:])
    x = x[0] if subject.cell else x
    if not batched:
        dim = 0 if subject.cell else 1
        x, good = x.select(dim, 0), tuple(part.select(dim, 0) for part in good)
    pair = len(good) > 1

    def refused(name: str, error: type[Exception], bad: Tensor, words: str) -> None:
        given = {"restart": {"reset": torch.ones(x.shape[: x.dim() - 1], dtype=torch.bool)}}.get(name, {})
        with pytest.raises(error, match=rf"^Expected {name}{re.escape('[1]') if pair else ''} {words}"):
            net(x, **{name: (good[0], bad) if pair else bad}, **given)

    for name in ("hx", other_name(subject), "restart"):
        shape = ", ".join(map(str, good[-1].shape)) + ("," if good[-1].dim() == 1 else "")
        refused(name, ShapeError, good[-1].unsqueeze(0), rf"to have shape \({shape}\), but got")
        refused(name, DeviceError, good[-1].to("meta"), rf"on cpu.*Move it with {name}.*\.to\('cpu'\)")
        refused(name, DTypeError, torch.zeros_like(good[-1], dtype=torch.int64), "in a floating-point dtype")
    if pair:
        with pytest.raises(ArgumentTypeError, match=r"^Expected hx to be a pair"):
            net(x, hx=good[0])


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.cell], ids=lambda subject: subject.name)
def test_errors_of_a_cell_name_its_input_and_its_shapes(subject):
    net, x = subject(), inputs()
    for wrong in (x, x[0, :, :2], x[0, 0, :2], torch.zeros(2, 3, dtype=torch.int64)):
        with pytest.raises(
            ShapeError, match=r"^Expected input of shape \(B, 3\) or \(3,\), or integer tokens \(B,\), but"
        ):
            net(wrong)
    with pytest.raises(ShapeError, match=r"^Expected reset of shape \(\), .* got \(3,\)"):
        net(x[0, 0], reset=torch.ones(B, dtype=torch.bool))


@EVERY
def test_bad_sizes(subject):
    for sizes in ((0, N), (I, 0), (I, 2.0), (-1, N)):
        with pytest.raises(ArgumentError, match=r"(input_size|hidden_size|d_model) to be an integer of at least 1"):
            subject.make(*sizes)


@EVERY
def test_repr_names_the_sizes(subject):
    assert re.search(rf"\b{I}, {N}\b", repr(subject()))


CLASSES = (OrthogonalRNN, GORU, PeepholeLSTM, ReflectionRNN, DeltaRNN, OrthogonalBlocks)


def test_forward_takes_the_same_arguments_in_the_same_order():
    def taken(make):
        return [(p.name, p.kind) for p in inspect.signature(make.forward).parameters.values() if p.name != "state"]

    expected = taken(OrthogonalRNN)
    for make in CLASSES:
        assert taken(make) == [p for p in expected if make is not PeepholeLSTM or p[0] != "h0"]


@pytest.mark.parametrize("make", [*CLASSES, OrthogonalRNNCell])
def test_repr_names_every_option_that_is_not_the_default(make):
    sizes = (I, N, N) if make is OrthogonalBlocks else (I, N)
    given = {
        "batch_first": True,
        "bias": False,
        "learn_h0": True,
        "learn_state": True,
        "forget_bias": 2.5,
        "peepholes": False,
        "nonlinearity": activations.get("leaky_relu", 0.25),
    }
    known = inspect.signature(make).parameters
    net = make(*sizes, **{name: value for name, value in given.items() if name in known})
    text = repr(net.rnn if make is OrthogonalRNNCell else net)
    for name, value in given.items():
        assert name not in known or f"{name}={value!r}" in text
    assert "nonlinearity" not in known or "LeakyReLU(slope=0.25)" in text


@pytest.mark.parametrize("make", [*CLASSES, OrthogonalRNNCell])
def test_reset_parameters_takes_no_argument(make):
    """As in torch: what initializes the modules of a model calls it so."""
    assert list(inspect.signature(make.reset_parameters).parameters) == ["self"]


@pytest.mark.parametrize("make", CLASSES)
def test_options_are_attributes(make):
    sizes = (I, N, N) if make is OrthogonalBlocks else (I, N)
    hidden = {"device", "dtype"} | ({"radii", "bias", "learn_h0", "form"} if make is OrthogonalBlocks else set())
    net = make(*sizes)
    assert [n for n in inspect.signature(make).parameters if n not in hidden and not hasattr(net, n)] == []


OTHER_VALUES = {  # of every option, one that a network built with OPTIONS does not have
    "input_size": I + 1,
    "hidden_size": 2 * N,
    "d_model": 2 * N,
    "state_size": 2 * N,
    "num_layers": 1,
    "depth": 1,
    "parametrization": Stiefel(),
    "nonlinearity": "tanh",
    "bias": False,
    "batch_first": True,
    "dropout": 0.9,
    "bidirectional": True,
    "learn_h0": True,
    "learn_state": True,
    "gain": 0.5,
    "learn_gain": True,
    "clip_backward": 1e-3,
    "linear_transition": True,
    "form": "rotations",
    "memory": "checkpoint",
    "segment": 3,
    "reflections": 2,
    "heads": 2,
    "transition": "rotation",
    "beta": 0.5,
    "gate": "scalar",
    "base": "fixed",
    "additive": False,
    "key_size": 2,
    "updates": 2,
    "forget_bias": 3.0,
    "init": "orthogonal",
    "decay": True,
    "radii": (0.1, 0.2),
    "mixing": "gelu",
    "expansion": 3,
    "stride": 2,
    "norm": "none",
    "residual": False,
}
OPTIONS = {"num_layers": 2, "depth": 2, "dropout": 0.5, "beta": 1.5, "gain": 0.9}
SETTABLE = {
    OrthogonalRNN: {"batch_first", "dropout", "gain", "clip_backward", "linear_transition", "form"},
    GORU: {"batch_first"},
    PeepholeLSTM: {"batch_first", "forget_bias", "init"},
    ReflectionRNN: {"batch_first", "dropout", "clip_backward", "beta"},
    DeltaRNN: {"batch_first", "dropout", "beta"},
    OrthogonalBlocks: {"batch_first", "dropout"},
    OrthogonalRNNCell: set(),
}


def built(make: type[nn.Module], **options: object) -> nn.Module:
    known = inspect.signature(make).parameters
    torch.manual_seed(0)
    sizes = (I, N, N) if make is OrthogonalBlocks else (I, N)
    return make(*sizes, **{n: v for n, v in {**OPTIONS, **options}.items() if n in known}, dtype=torch.float64)


def trained(net: nn.Module) -> tuple[Tensor, ...]:
    """Outputs, and all gradients, in training."""
    torch.manual_seed(3)
    if isinstance(net, PeepholeLSTM):  # its options also choose initial values
        net.reset_parameters()
    outs = run(net, inputs(T, T, I))
    leaves = [p for p in net.parameters() if p.numel()]
    return *outs, *torch.autograd.grad(sum(out.abs().square().sum() for out in outs), leaves, allow_unused=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", SETTABLE)
def test_an_option_that_is_set_later_acts_or_is_refused(make):
    """Set on a network, each option that may be set is that of a network built with it; the others are read-only."""
    for name in inspect.signature(make).parameters:
        if name in ("device", "dtype") or (make is PeepholeLSTM and name == "peepholes"):  # a parameter, as of torch
            continue
        net, value = built(make), OTHER_VALUES[name]
        if make is OrthogonalRNN and name == "form":  # rotations need a linear transition
            net.linear_transition = True
        before = trained(net)
        if name not in SETTABLE[make]:
            with pytest.raises(ReadOnlyError, match=rf"^Expected {name} to .*, but got .*\. (Build|Call|Convert|Set) "):
                setattr(net, name, value)
            same(trained(net), before)
            continue
        setattr(net, name, value)
        with_form = {"linear_transition": True} if name == "form" else {}
        expected = trained(built(make, **{name: value}, **with_form))
        same(trained(net), expected, EXACT)
        if name != "form":  # the same function
            assert any(mine.shape != old.shape or not torch.equal(mine, old) for mine, old in zip(expected, before))
        assert f"{name}={value!r}" in repr(net)
        with pytest.raises(ArgumentError, match=f"^Expected {name} to be "):
            setattr(net, name, object())
        assert getattr(net, name) == value


def test_options_that_contradict_each_other_are_refused_when_set():
    net = OrthogonalRNN(I, N, parametrization=Givens(layers=2), memory="checkpoint")
    with pytest.raises(ArgumentError, match=r"Expected form='auto', .* with memory='checkpoint'"):
        net.form = "operator"
    net.set_memory("store")
    net.form = "operator"
    with pytest.raises(ArgumentError, match="but got form='operator'"):
        net.set_memory("checkpoint")
    net.form = "rotations"
    with pytest.raises(ArgumentError, match="Expected a linear recurrence for form='rotations'"):
        net(inputs(dtype=torch.float32))
    trains = OrthogonalRNN(I, N, learn_gain=True)
    with pytest.raises(ReadOnlyError, match=r"Expected gain .* gain_l\{k\}"):
        trains.gain = 0.5
    for net, beta in ((DeltaRNN(I, N), 1.0), (DeltaRNN(I, N, beta=1.0), "input"), (ReflectionRNN(I, N), "input")):
        with pytest.raises(ReadOnlyError, match=r"Expected beta to .* Build another"):
            net.beta = beta
    for net in (GORU(I, N), PeepholeLSTM(I, N), OrthogonalRNN(I, N), OrthogonalBlocks(I, N, N)):
        for name, value in (("num_layers", 3), ("bidirectional", True), ("num_directions", 2), ("hidden_size", 3)):
            with pytest.raises(ReadOnlyError, match=f"Expected {name} to stay"):
                setattr(net, name, value)


def test_a_parametrization_of_the_wrong_type_is_one_error_everywhere():
    net = OrthogonalRNN(I, N)
    calls = [
        *(partial(make, I, N, parametrization=Householder) for make in (OrthogonalRNN, OrthogonalRNNCell, GORU)),
        partial(OrthogonalBlocks, I, N, N, parametrization=Householder),
        partial(modules.Transition, Householder, N),
        partial(modules.convert, net, Householder),
        partial(orthogonalize, nn.Linear(N, N), "weight", Householder),
    ]
    for call in calls:
        with pytest.raises(ArgumentTypeError, match=r"to be one of orthornn's .*Call the class: Householder\(\)\."):
            call()
    with pytest.raises(ArgumentTypeError, match=r"Expected layer to be a torch\.nn\.Module, but got int"):
        orthogonalize(3, "weight", Householder())


@pytest.mark.parametrize("make", [OrthogonalRNN, ReflectionRNN])
@pytest.mark.parametrize("bound", [0, 0.0, -1, True, "1"])
def test_a_bound_that_is_not_positive(make, bound):
    with pytest.raises(ArgumentError, match=r"Expected clip_backward to be a (positive|finite) number"):
        make(I, N, clip_backward=bound)


@pytest.mark.parametrize("make", [OrthogonalRNN, ReflectionRNN, partial(OrthogonalBlocks, state_size=N)])
def test_memory_can_be_chosen_later(make):
    net, x = make(I, N, dtype=torch.float64), inputs()
    expected = net(x)
    net.set_memory("checkpoint", 2)
    assert "memory='checkpoint', segment=2" in repr(net)
    same(net(x), expected, EXACT)
    with pytest.raises(ArgumentError, match="segment only with memory='checkpoint'"):
        net.set_memory("store", 2)
