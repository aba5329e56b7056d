"""Where tensors meet code that reads addresses: lazy bits, strides, offsets, batched gradients, and what is returned."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

from orthornn import GORU, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from orthornn.errors import ArgumentError, ShapeError
from orthornn.kernels.dispatch import available
from support.cases import Case, operator_arguments
from support.tolerances import tolerance

BACKENDS = [name for name, reason in available(torch.device("cpu")).items() if reason is None]
EXACT = tolerance(torch.float64, 300)


def negated(t):
    """The numbers of t as a view of -t whose negative bit is set."""
    return torch._neg_view(-t)


def imaginary(t):
    """The same bit as it comes about: the imaginary part of a conjugate."""
    return torch.complex(torch.zeros_like(t), -t).conj().imag


def strided(t):
    """Every other number of each row."""
    return torch.stack([t, torch.full_like(t, float("nan"))], dim=-1)[..., 0]


def shifted(t):
    """A part of a larger storage, not from its beginning."""
    whole = torch.full((t.numel() + 3,), float("nan"), dtype=t.dtype)
    whole[3:] = t.flatten()
    return whole[3:].view(t.shape)


def transposed(t):
    """Its dimensions in reverse order in memory."""
    return t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim())))


NETWORKS = [OrthogonalRNN, GORU, PeepholeLSTM, ReflectionRNN]
FORMS = [negated, imaginary, strided, shifted, transposed]
CASES = [
    Case("dense", "tanh"),
    Case("dense", "modrelu", packed=True),
    Case("dense", "tanh", inputs=6, output="last"),
    Case("packed", "modrelu"),
    Case("matrix", "relu", inputs=None),
    Case("dense", "tanh", inputs=0),
    Case("rotations", "identity"),
    Case("packed", "tanh", memory="checkpoint", segment=3),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.activation}-{case.inputs}-{case.memory}")
@pytest.mark.parametrize("backend", BACKENDS)
def test_how_numbers_lie_in_memory_changes_nothing(backend, case, form):
    case = case.draw()
    leaves = case.to(torch.float64)
    out = case.oracle(leaves)
    grad = torch.randn_like(out)
    expected = [out, *torch.autograd.grad(out, case.differentiable(leaves), grad)]
    # W itself is decomposed with N^3 rounding in another layout, so rotations get it as it is.
    given = {
        name: form(t) if t.is_floating_point() and not (case.kind == "rotations" and name == "weight") else t
        for name, t in leaves.items()
    }
    found = case.call(given, backend)
    found = [found, *torch.autograd.grad(found, case.differentiable(leaves), form(grad))]
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT)
    with torch.no_grad():
        torch.testing.assert_close(case.call(given, backend), expected[0], rtol=0, atol=EXACT)


@pytest.mark.parametrize("form", [negated, strided, shifted, transposed], ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.activation}-{case.inputs}-{case.memory}")
@pytest.mark.parametrize("backend", BACKENDS)
def test_how_a_hook_returns_saved_tensors_changes_nothing(backend, case, form):
    """torch.autograd.graph.saved_tensors_hooks: what is unpacked has the numbers of what was packed, not its strides."""
    case = case.draw()
    leaves = case.to(torch.float64)
    grad = torch.randn_like(case.oracle(leaves))
    expected = torch.autograd.grad(case.call(leaves, backend), case.differentiable(leaves), grad)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.detach().clone(), lambda t: form(t) if t.is_floating_point() and t.dim() else t
    ):
        out = case.call(leaves, backend)
    for a, b in zip(torch.autograd.grad(out, case.differentiable(leaves), grad), expected):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.activation}-{case.inputs}-{case.memory}")
def test_one_row_for_every_sequence(case):
    """Expanded tensors have a stride of zero: one initial state, and one gradient, for all sequences."""
    case = case.draw()
    leaves = case.to(torch.float64)
    one = leaves["h0"][:1].detach()
    given = {**leaves, "h0": one.expand(case.batch, -1)}
    out = case.call(given)
    expected = case.oracle({**leaves, "h0": one.repeat(case.batch, 1)})
    torch.testing.assert_close(out, expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), leaves["weight"])[0],
        torch.autograd.grad(expected.sum(), leaves["weight"])[0],
        rtol=0,
        atol=EXACT,
    )


def test_custom_operators_resolve_the_negative_bit():
    """What torch.compile and dispatch modes call."""
    case = Case("dense", "tanh").draw()
    leaves = case.to(torch.float64)
    given = {name: negated(t) for name, t in leaves.items()}

    def operator(tensors):
        return torch.ops.orthornn.recurrence(*operator_arguments(case, tensors=tensors))[0]

    out, expected = operator(given), operator(leaves)
    assert torch.equal(out, expected)
    grad = torch.randn_like(out)
    assert torch.equal(
        torch.autograd.grad(out, leaves["weight"], negated(grad))[0],
        torch.autograd.grad(expected, leaves["weight"], grad)[0],
    )


BATCHED = [
    *CASES,
    Case("dense", "identity", memory="checkpoint", segment=3),
    Case("dense", "tanh", clip=0.1),
    Case("packed", "tanh", packed=True, memory="checkpoint", segment=2, output="last"),
]


@pytest.mark.parametrize(
    "case", BATCHED, ids=lambda case: f"{case.kind}-{case.activation}-{case.memory}-{case.output}-{case.clip}"
)
def test_gradients_of_many_vectors_at_once(case):
    """is_grads_batched, torch.func.vmap over autograd.grad, and jacobian(vectorize=True): the rows one by one."""
    case = case.draw()
    leaves = case.to(torch.float64)
    wanted = case.differentiable(leaves)
    out = case.call(leaves)
    vectors = torch.randn(3, *out.shape, dtype=torch.float64)

    def gradients(vector):
        return torch.autograd.grad(out, wanted, vector, retain_graph=True)

    one_by_one = [torch.stack(rows) for rows in zip(*map(gradients, vectors))]
    at_once = torch.autograd.grad(out, wanted, vectors, retain_graph=True, is_grads_batched=True)
    mapped = torch.func.vmap(gradients)(vectors)
    for a, b, c in zip(one_by_one, at_once, mapped):
        torch.testing.assert_close(b, a, rtol=0, atol=EXACT)
        torch.testing.assert_close(c, a, rtol=0, atol=EXACT)
    weight = leaves["weight"].detach()
    if case.kind != "rotations":
        slow, fast = (
            torch.autograd.functional.jacobian(lambda w: case.call({**leaves, "weight": w}), weight, vectorize=v)
            for v in (False, True)
        )
        torch.testing.assert_close(fast, slow, rtol=0, atol=EXACT)


def test_gradcheck_with_batched_gradients():
    case = Case("packed", "tanh", steps=3).draw()
    leaves = case.to(torch.float64)
    assert torch.autograd.gradcheck(
        lambda x, weight: case.call({**leaves, "x": x, "weight": weight}),
        (leaves["x"], leaves["weight"]),
        check_batched_grad=True,
    )
    assert torch.autograd.gradgradcheck(
        lambda x: case.call({**leaves, "x": x}), (leaves["x"],), check_batched_grad=True
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("memory", ["store", "checkpoint"])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_what_is_returned_is_no_view(kind, memory, output):
    """Autograd forbids changing a view in place that a node has made, and hooks such as FSDP's warn of it.

    With oplu the backward pass does not read the states that were returned, so that they may be changed.
    """
    case = Case(kind, "oplu", output=output, memory=memory, segment=3 if memory != "store" else None).draw()
    leaves = case.to(torch.float64)
    out = case.call(leaves)
    assert not out._is_view()
    expected = [2 * g for g in torch.autograd.grad(out.sum(), case.differentiable(leaves), retain_graph=True)]
    before = out.detach().clone()
    out += 1
    out *= 2
    assert torch.equal(out.detach(), 2 * (before + 1))
    for a, b in zip(torch.autograd.grad(out.sum(), case.differentiable(leaves)), expected):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT)
    with torch.no_grad():
        out = case.call(leaves)
    assert not out._is_view()
    out += leaves["x"].sum()  # a view made without gradient could not take this
    assert out.requires_grad


def test_a_changed_state_that_the_backward_pass_reads_is_an_error():
    case = Case("dense", "tanh").draw()
    leaves = case.to(torch.float64)
    out = case.call(leaves)
    out += 1
    loss = out.sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_step_sizes_are_read_by_value():
    """A view with gaps, or with a negative bit, is what it stands for: [4, 2, 2, 2] and not its memory, [4, 3, 2, 1]."""
    case = Case("dense", "tanh").draw()
    leaves = case.to(torch.float64)
    sizes = torch.tensor([4, 3, 2, 1, 2, 0, 2])[::2]
    given = {**leaves, "x": torch.randn(10, 2, dtype=torch.float64), "h0": torch.randn(4, 5, dtype=torch.float64)}
    given["h0"].requires_grad_()
    wanted = [given["weight"], given["h0"]]
    for form in (sizes, negated(sizes)):
        expected = case.call({**given, "batch_sizes": sizes.clone()})
        found = case.call({**given, "batch_sizes": form})
        assert torch.equal(found, expected)
        for a, b in zip(torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(expected.sum(), wanted)):
            assert torch.equal(a, b)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_step_sizes_of_another_dtype_are_refused(network):
    """The kernels would read past the end of int32 numbers."""
    for sizes in (torch.tensor([2, 2, 2], dtype=torch.int32), torch.tensor([2.0, 2.0, 2.0]), torch.tensor([[2, 2, 2]])):
        with pytest.raises(ShapeError, match=r"int64 tensor \(T,\) on the CPU"):
            network(2, 4)(PackedSequence(torch.randn(6, 2), sizes))
    case = Case("dense", "tanh", packed=True).draw()
    tensors = {**case.to(torch.float64), "batch_sizes": case.tensors["batch_sizes"].int()}
    with pytest.raises((ArgumentError, RuntimeError), match="batch_sizes"):
        torch.ops.orthornn.recurrence(*operator_arguments(case, tensors=tensors))
