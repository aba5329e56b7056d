"""torch.compile, torch.export, torch.func, forward mode and higher derivatives: right, or an error."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from orthornn.errors import TransformError
from orthornn.kernels.dispatch import available
from orthornn.kernels.interception import can_be_read, no_autocast
from support.cases import Case, operator_arguments
from support.tolerances import tolerance

BACKENDS = [name for name, reason in available(torch.device("cpu")).items() if reason is None]
KINDS = ["dense", "packed", "matrix"]
EXACT = tolerance(torch.float64, 100)


@pytest.fixture(params=[*KINDS, "rotations"])
def case(request) -> Case:
    return Case(
        request.param, "identity" if request.param == "rotations" else "tanh", n=5, m=2, steps=4, batch=2
    ).draw()


def output_of(case: Case, tensors: dict[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
    return case.call({**tensors, "weight": weight})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("activation", ["modrelu", "oplu", "tanh"])
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_opcheck(kind, packed, output, activation):
    case = Case(kind, activation, n=6, m=2, steps=4, batch=2, packed=packed, output=output).draw()
    for backend in BACKENDS:
        torch.library.opcheck(torch.ops.orthornn.recurrence.default, operator_arguments(case, backend))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
def test_compile_agrees_with_eager(activation, packed, output):
    for kind in ("dense", "packed"):
        case = Case(kind, activation, n=6, m=2, steps=4, batch=2, packed=packed, output=output).draw()
        torch._dynamo.reset()
        results = []
        for function in (case.call, torch.compile(case.call, fullgraph=True, backend="aot_eager")):
            tensors = case.to(torch.float64)
            out = function(tensors)
            results.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
        for eager, compiled in zip(*results):
            torch.testing.assert_close(compiled, eager, rtol=0, atol=EXACT)


def test_func_grad_and_jacobians(case):
    tensors = {name: tensor.detach() for name, tensor in case.to(torch.float64).items()}

    def loss(weight):
        return output_of(case, tensors, weight).square().sum()

    weight = tensors["weight"].clone().requires_grad_()
    expected = torch.autograd.grad(case.oracle({**tensors, "weight": weight}).square().sum(), weight)[0]
    torch.testing.assert_close(torch.func.grad(loss)(tensors["weight"]), expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(torch.func.jacfwd(loss)(tensors["weight"]), expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(torch.func.jacrev(loss)(tensors["weight"]), expected, rtol=0, atol=EXACT)


def test_forward_mode_tangent_is_not_zero(case):
    tensors = {name: tensor.detach() for name, tensor in case.to(torch.float64).items()}
    tangent = torch.randn_like(tensors["x"])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(tensors["x"], tangent)
        found = torch.autograd.forward_ad.unpack_dual(case.call({**tensors, "x": dual})).tangent
    step = 1e-6
    ahead = case.oracle({**tensors, "x": tensors["x"] + step * tangent})
    behind = case.oracle({**tensors, "x": tensors["x"] - step * tangent})
    assert found.abs().max() > 0.1
    # Central differences err by step^2 f''' / 6 + eps |f| / step, of order 1e-10 here.
    torch.testing.assert_close(found, (ahead - behind) / (2 * step), rtol=0, atol=1e-8)


def test_vmap_over_inputs(case):
    tensors = {name: tensor.detach() for name, tensor in case.to(torch.float64).items()}
    many = torch.randn(3, *tensors["x"].shape, dtype=torch.float64)
    found = torch.func.vmap(lambda x: case.call({**tensors, "x": x}))(many)
    for x, out in zip(many, found):
        torch.testing.assert_close(out, case.oracle({**tensors, "x": x}), rtol=0, atol=EXACT)


def test_under_autocast_a_transform_computes_in_the_precision_of_the_state(case):
    """As eager calls do: the plain operations that a transform takes would each be rounded to 16 bits."""
    tensors = {name: tensor.detach() for name, tensor in case.to(torch.float32).items()}

    def states(x):
        return torch.func.vmap(lambda x: case.call({**tensors, "x": x}))(x.unsqueeze(0))[0]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = states(tensors["x"])
    assert found.dtype == torch.float32
    assert torch.equal(found, states(tensors["x"]))


class _Square(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with no_autocast(x):
            return x @ x


RECORDERS = {
    "export": lambda net, x: torch.export.export(net, (x,), strict=False).module(),
    "strict export": lambda net, x: torch.export.export(net, (x,), strict=True).module(),
    "make_fx": lambda net, x: make_fx(net, pre_dispatch=True)(x),
}


@pytest.mark.parametrize("record", RECORDERS.values(), ids=RECORDERS)
def test_what_is_recorded_outside_autocast_keeps_its_precision_inside(record):
    x = torch.randn(7, 7)
    recorded = record(_Square(), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        found = recorded(x)
    assert torch.equal(found, x @ x)


@pytest.mark.parametrize("options", [{}, {"memory": "checkpoint", "segment": 2}], ids=["store", "checkpoint"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_backward_pass_under_autocast_has_the_gradients_of_one_outside(kind, backend, options):
    case = Case(kind, "tanh", n=6, m=2, steps=9, batch=3, inputs=9, **options).draw()
    tensors = case.to(torch.float32)
    leaves, found = case.differentiable(tensors), []
    for enabled in (False, True):
        out = case.call(tensors, backend)
        loss = out.square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            found.append(torch.autograd.grad(loss, leaves))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_differentiated_again_is_not_rounded_under_autocast(kind):
    case = Case(kind, "tanh", n=6, m=2, steps=9, batch=3, inputs=9).draw()
    tensors = case.to(torch.float32)
    leaves, found = case.differentiable(tensors), []
    for enabled in (False, True):
        loss = case.call(tensors).square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        found.append([*first, *torch.autograd.grad(penalty, leaves)])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(
    "inner", [torch.func.vmap, lambda f: torch.func.vmap(torch.func.grad(f))], ids=["vmap", "grad"]
)
def test_values_that_vmap_maps_over_are_not_read(inner):
    seen = []
    values = torch.ones(2, 3)
    inner(lambda v: seen.append(can_be_read(v)) or v.sum())(values)
    torch.func.grad(lambda v: seen.append(can_be_read(v)) or v.sum())(values)
    assert seen == [False, True]
    assert not can_be_read(values[:0])
    assert not can_be_read(values.to("meta"))


@pytest.mark.sampled(3)
def test_double_backward(case):
    tensors = case.to(torch.float64)
    if case.kind == "rotations":  # a W beside the group, of which differences are made, is none
        assert torch.autograd.gradgradcheck(lambda x: case.call({**tensors, "x": x}), (tensors["x"],))
        return
    assert torch.autograd.gradgradcheck(
        lambda x, weight: case.call({**tensors, "x": x, "weight": weight}), (tensors["x"], tensors["weight"])
    )


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("kind", [*KINDS, "rotations"])
def test_double_backward_of_few_steps(kind, steps, output):
    """Without steps all states are none and the last one is h_0: first derivatives are zero and one, second ones zero."""
    activation = "identity" if kind == "rotations" else "tanh"
    case = Case(kind, activation, steps=steps, output=output).draw()
    tensors = case.to(torch.float64)
    leaves = case.differentiable(tensors)
    out, again = case.call(tensors), case.call(tensors)
    first = torch.autograd.grad(out.sum(), leaves, create_graph=True)
    for mine, theirs in zip(first, torch.autograd.grad(again.sum(), leaves)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT)
    if steps == 0:
        zero = sum(leaf.sum() for leaf in leaves) * 0
        loss = sum(g.square().sum() for g in first) + zero
        assert not any(g.any() for g in torch.autograd.grad(loss, leaves))


def test_higher_derivatives_with_clip_raise():
    case = Case("dense", "tanh", clip=0.1).draw()
    tensors = case.to(torch.float64)
    grad = None
    with pytest.raises(TransformError, match="clip"):
        grad = torch.autograd.grad(case.call(tensors).sum(), tensors["x"], create_graph=True)
    assert grad is None
    with pytest.raises(TransformError, match="clip"):
        torch.func.vmap(lambda x: case.call({**tensors, "x": x}))(tensors["x"].detach().unsqueeze(0))


def test_export_with_dynamic_sizes():
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            case = Case("packed", "modrelu", n=6, m=2).draw()
            self.case = case
            self.tensors = {name: t.detach() for name, t in case.to(torch.float32).items()}

        def forward(self, x: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
            return self.case.call({**self.tensors, "x": x, "h0": h0})

    net = Net()
    T, B = torch.export.Dim("T", min=2, max=1000), torch.export.Dim("B", min=2, max=100)
    x, h0 = torch.randn(7, 3, 2), torch.randn(3, 6)
    program = torch.export.export(net, (x, h0), dynamic_shapes=({0: T, 1: B}, {0: B}), strict=False)
    for steps, batch in ((7, 3), (12, 5)):
        x, h0 = torch.randn(steps, batch, 2), torch.randn(batch, 6)
        assert torch.equal(program.module()(x, h0), net(x, h0))


def test_a_dispatch_mode_sees_the_recurrence(case):
    """What traces or counts operations cannot see native code at work: a trace would replay unwritten memory."""
    t = case.to(torch.float64)
    x = torch.randn_like(t["x"])

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(case.call({**t, "x": x}).square().sum(), x)[0]

    for function in (lambda x: case.call({**t, "x": x}), gradient):
        traced = make_fx(function)(t["x"])
        torch.testing.assert_close(traced(x), function(x), rtol=0, atol=EXACT)
    with FakeTensorMode() as mode:
        fake = {name: mode.from_tensor(tensor) for name, tensor in t.items()}
        out = case.call(fake)
    assert out.shape == case.call(t).shape
    assert case.call(fake).shape == out.shape  # a fake tensor outside its mode
    with FlopCounterMode(display=False):
        assert torch.equal(case.call(t), case.call(t))
        leaf = x.requires_grad_()
        (first,) = torch.autograd.grad(case.call({**t, "x": leaf}).square().sum(), leaf, create_graph=True)
        with pytest.raises(RuntimeError, match="no autograd formula"):
            first.square().sum().backward()
