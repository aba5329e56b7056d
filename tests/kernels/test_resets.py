"""Resets inside a sequence: every backend, form and memory mode against a plain float64 loop, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from orthornn import activations, kernels
from orthornn.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from orthornn.kernels import operator_rnn
from orthornn.layout import SequenceLayout
from support.against_oracle import BACKENDS, DEVICE, DTYPES, check, refused
from support.cases import Case, operator_arguments
from support.tolerances import tolerance

MASKS = ("random", "none", "all", "first", "last")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", ["dense", "packed", "matrix"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_activation_and_mask(backend, kind, activation):
    for index, reset in enumerate(MASKS):
        for packed in (False, True):
            for batch in (3, 6) if reset == "random" else (3,):  # a row at a time, and in blocks
                output = "last" if index % 2 else "all"
                case = Case(kind, activation, n=10, m=3, batch=batch, packed=packed, reset=reset, output=output)
                check(replace(case, restart=index % 2 == packed), backend, torch.float64)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(n=1, m=1, batch=1),
        Case(n=2, m=1, steps=1),
        Case(n=17, m=16, batch=1, activation="modrelu"),
        Case(n=33, m=33, batch=5, activation="leaky_relu"),
        Case(n=64, m=5, batch=13, steps=19, activation="oplu"),
        Case(n=100, m=37, batch=7, steps=63, activation="modrelu", packed=True),
        Case(n=7, m=0, base=True),
        Case(n=7, m=3, base=False),
        Case(n=6, m=3, steps=0),
        Case(n=6, m=3, batch=0),
    ],
    ids=lambda case: f"n{case.n}m{case.m}B{case.batch}T{case.steps}{case.activation}",
)
@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_awkward_sizes(backend, kind, case, dtype):
    for inputs in (None, 0, 2, 9):
        check(replace(case, kind=kind, inputs=inputs, reset="random", restart=inputs != 2), backend, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_reflectors_that_do_not_fit_the_nearest_cache(backend):
    check(Case("packed", n=300, m=70, batch=2, steps=4, reset="random", restart=True), backend, torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rotations(backend, dtype):
    for reset in MASKS:
        for n in (1, 9, 34):
            case = Case("rotations", "identity", n=n, batch=5, reset=reset, restart=n == 9, packed=n == 34, gain=0.9)
            check(case, backend, dtype)


@pytest.mark.parametrize("activation", ["tanh", "prelu"])
@pytest.mark.parametrize("kind", ["dense", "packed", "rotations"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoints(backend, kind, activation):
    """A segment restarts from the state of the whole sequence, not from its own first one."""
    activation = "identity" if kind == "rotations" else activation
    for segment in (1, 2, 3, 7, 20):
        for packed in (False, True):
            case = Case(kind, activation, n=6, m=3, batch=4, packed=packed, memory="checkpoint", segment=segment)
            check(replace(case, reset="random", restart=packed), backend, torch.float64)


@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_clip_and_threads(kind):
    """The same bits of the kernel on more threads, and where parameter gradients are summed after the chain. That of x is
    a product of torch's, whose sums may be divided otherwise."""
    case = Case(kind, "tanh", n=130, m=60, batch=2, steps=400, clip=0.01, reset="random", restart=True).draw()
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            tensors = case.to(torch.float64)
            out = case.call(tensors)
            inputs = case.differentiable(tensors)
            gradients = torch.autograd.grad(out.square().sum(), [tensors["h0"], *inputs])
            runs.append((out, *gradients))
    finally:
        torch.set_num_threads(before)
    bound = tolerance(torch.float64, 400 * 130)
    for name, mine, theirs in zip(("out", "h0"), *runs):
        assert torch.equal(mine, theirs), name
    for mine, theirs in zip(*runs):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound * (1 + float(theirs.detach().abs().max())))


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_without_a_reset_has_the_bits_of_none(backend, kind):
    for batch in (2, 6):
        case = Case(kind, "modrelu", n=40, m=7, steps=30, batch=batch, reset="none").draw()
        if refused(case, backend, torch.float32):
            pytest.skip("this backend does not run such a call")
        runs = []
        for mask in (True, False):
            tensors = case.to(torch.float32, DEVICE)
            if not mask:
                del tensors["reset"]
            out = case.call(tensors, backend)
            runs.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
        loops = backend != "cpp"  # these sum the gradient of W over all rows at once, in another order
        same = zip(runs[0][:1], runs[1][:1]) if loops else zip(*runs)
        assert all(torch.equal(a, b) for a, b in same)


@pytest.mark.parametrize("segment", [None, 1, 4])
@pytest.mark.parametrize("kind", ["dense", "packed", "rotations"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite_ends_with_its_episode(backend, kind, segment):
    memory, activation = "checkpoint" if segment else "store", "identity" if kind == "rotations" else "tanh"
    case = Case(kind, activation, n=6, m=3, steps=6, batch=2, reset="none", memory=memory, segment=segment).draw()
    if refused(case, backend, torch.float64):
        pytest.skip("this backend does not run such a call")
    tensors = case.to(torch.float64, DEVICE)
    with torch.no_grad():
        tensors["x"][2, 0] = float("nan")
    tensors["reset"][4, 0] = True
    out = case.call(tensors, backend)
    lost = out[2:4, 0].isnan()
    assert lost.any(-1).all()
    assert kind == "rotations" or lost.all()  # in the basis of its rotations a unit may be alone
    assert out[:2].isfinite().all()
    assert out[:, 1].isfinite().all()
    assert out[4:].isfinite().all()
    (by_x,) = torch.autograd.grad(out[4:].square().sum(), tensors["x"])
    assert by_x[4:].isfinite().all()
    assert by_x[4:].abs().sum() > 0


def test_higher_derivatives_count_h0_once():
    """h_0 and the state to restart from are one tensor here; each has its own gradient, and theirs are added once."""
    for kind in ("dense", "packed"):
        case = Case(kind, "tanh", n=4, m=2, steps=4, batch=2, reset="random").draw()
        tensors = case.to(torch.float64)
        leaves = case.differentiable(tensors)

        def second(out, leaves=leaves):
            first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
            return torch.autograd.grad(sum((g * g.detach().cos()).sum() for g in first), leaves)

        bound = tolerance(torch.float64, 1000)
        for mine, theirs in zip(second(case.call(tensors)), second(case.oracle(tensors))):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=bound * (1 + float(theirs.detach().abs().max())))


def test_higher_derivatives_of_inputs_that_depend_on_one_another():
    """The gradient of h_0 holds what goes through h_0 itself, not what goes through an input made of it."""
    torch.manual_seed(0)
    W = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    h0 = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for backend in ("auto", "reference"):
        x = torch.stack([h0, h0.sin()])
        out = kernels.dense_rnn(x, h0, W, "tanh", backend=backend) if backend == "auto" else _loop(x, h0, W)
        found.append(torch.autograd.grad(out.square().sum(), h0, create_graph=True)[0])
    torch.testing.assert_close(*found)


def _loop(x, h, W):
    states = []
    for x_t in x:
        states.append(h := torch.tanh(h @ W.mT + x_t))
    return torch.stack(states)


def test_forward_mode_and_vmap():
    case = Case("packed", "tanh", n=4, m=2, steps=5, batch=2, reset="random", restart=True).draw()
    tensors = {name: t.detach() for name, t in case.to(torch.float64).items()}

    def out(restart, call=case.call):
        return call({**tensors, "restart": restart})

    direction = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    bound = tolerance(torch.float64, 200)
    _, found = torch.func.jvp(out, (tensors["restart"],), (direction,))
    _, expected = torch.func.jvp(lambda r: out(r, case.oracle), (tensors["restart"],), (direction,))
    torch.testing.assert_close(found, expected, rtol=0, atol=bound)
    each = torch.func.vmap(out)(torch.stack([direction, tensors["restart"]]))
    torch.testing.assert_close(each[1], out(tensors["restart"]), rtol=0, atol=bound)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("segment", [None, 2])
def test_custom_operators(kind, segment):
    for packed in (False, True):
        case = Case(kind, "tanh", n=6, m=2, steps=5, packed=packed, reset="random", restart=packed, segment=segment)
        torch.library.opcheck(torch.ops.orthornn.recurrence.default, operator_arguments(case.draw()))


def test_operators():
    for packed in (False, True):
        case = Case("dense", "tanh", n=5, packed=packed, reset="random", restart=packed).draw()
        found, expected = case.to(torch.float64), case.to(torch.float64)
        out = operator_rnn(
            found["x"],
            found["h0"],
            lambda h, W: h @ W.mT,
            lambda g, W: g @ W,
            (found["weight"],),
            "tanh",
            weight_ih=found["weight_ih"],
            bias=found["bias"],
            batch_sizes=found.get("batch_sizes"),
            reset=found["reset"],
            restart=found.get("restart"),
        )
        want = case.oracle(expected)
        torch.testing.assert_close(out, want, rtol=0, atol=tolerance(torch.float64, 100))
        grads = torch.autograd.grad(out.square().sum(), case.differentiable(found))
        for mine, theirs in zip(grads, torch.autograd.grad(want.square().sum(), case.differentiable(expected))):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance(torch.float64, 100) * 10)


def test_layouts_backwards():
    """A reset before step t separates t - 1 from t: backwards it is before step t - 1."""
    mask = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=torch.bool)
    layout = SequenceLayout(4, 2, resets=mask.flatten())
    wanted = torch.tensor([[0, 0], [0, 1], [1, 0], [0, 1]], dtype=torch.bool)
    assert torch.equal(layout.reversed().resets.view(4, 2), wanted)
    ragged = SequenceLayout(4, 2, torch.tensor([2, 2, 1, 1]), 6, torch.tensor([1, 0, 0, 1, 1, 0]).bool())
    # sequence 0: 1 0 1 0 -> 0 0 1 0; sequence 1: 0 1 -> 0 1
    assert ragged.reversed().resets.tolist() == [False, False, False, True, True, False]


def test_bad_masks():
    case = Case("dense", "tanh", reset="random").draw()
    tensors = case.to(torch.float64)
    for wrong, error, words in (
        (tensors["reset"].int(), DTypeError, r"Convert it with \.bool\(\)"),
        (tensors["reset"][:-1], ShapeError, r"Expected reset of shape \(7, 3\)"),
        (tensors["reset"].to("meta"), DeviceError, "Expected reset on cpu"),
    ):
        with pytest.raises(error, match=words):
            case.call({**tensors, "reset": wrong})
    for name, wrong, error in (
        ("restart", tensors["h0"][:1], ShapeError),
        ("restart", tensors["h0"].float(), DTypeError),
    ):
        with pytest.raises(error, match=name):
            case.call({**tensors, name: wrong})
    del tensors["reset"]
    with pytest.raises(ArgumentError, match="Pass reset, or leave restart out"):
        case.call({**tensors, "restart": tensors["h0"]})


def test_a_mask_that_is_changed_before_the_backward_pass():
    case = Case("dense", "tanh", reset="random").draw()
    tensors = case.to(torch.float64)
    out = case.call(tensors)
    tensors["reset"][0] = ~tensors["reset"][0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
