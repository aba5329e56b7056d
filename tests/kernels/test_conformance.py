"""Every backend of every recurrence against a plain float64 loop: outputs and all gradients, at awkward sizes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from cases import Case

from orthornn import activations
from orthornn.errors import BackendError
from orthornn.kernels import dense_rnn
from orthornn.kernels.backends import BACKENDS as ALL_BACKENDS
from orthornn.kernels.call import Size
from orthornn.kernels.dispatch import available
from tolerances import tolerance

DEVICE = torch.device(os.environ.get("ORTHORNN_DEVICE", "cpu"))
BACKENDS = [name for name, reason in available(DEVICE).items() if reason is None]
DTYPES = [torch.float32, torch.float64]


def close(found: torch.Tensor, expected: torch.Tensor, bound: float) -> None:
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found.double().cpu(), expected, rtol=0, atol=bound * (1 + largest))


def refused(case: Case, backend: str, dtype: torch.dtype) -> bool:
    """Whether the backend says that it does not do this."""
    m = case.m if case.kind in ("packed", "matrix") else None
    size = Size(case.n, m, case.batch, case.steps, case.packed, case.paired, case.kind == "rotations")
    return ALL_BACKENDS[backend].unsupported(dtype, size) is not None


def check(case: Case, backend: str, dtype: torch.dtype) -> None:
    case = case.draw()
    want_tensors, got_tensors = case.to(torch.float64), case.to(dtype, DEVICE)
    if refused(case, backend, dtype):
        with pytest.raises(BackendError, match=backend):
            case.call(got_tensors, backend)
        return
    want, got = case.oracle(want_tensors), case.call(got_tensors, backend)
    assert got.dtype == dtype
    assert got.shape == want.shape
    bound = tolerance(dtype, case.steps * case.n)
    close(got, want, bound)
    grad = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    want_leaves, got_leaves = case.differentiable(want_tensors), case.differentiable(got_tensors)
    want_grads = torch.autograd.grad(want, want_leaves, grad, allow_unused=True, materialize_grads=True)
    got_grads = torch.autograd.grad(got, got_leaves, grad.to(DEVICE, dtype), allow_unused=True, materialize_grads=True)
    for expected, found in zip(want_grads, got_grads):
        assert found.dtype == dtype
        close(found, expected, bound)


@pytest.fixture(autouse=True)
def poisoned_memory():
    """torch.empty returns NaN, so that what a kernel forgets to write is seen."""
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", ["dense", "packed", "matrix"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_activation_layout_and_output(backend, kind, activation, dtype):
    for packed in (False, True):
        for output in ("all", "last"):
            for n in (6, 10):
                check(Case(kind, activation, n=n, m=3, packed=packed, output=output), backend, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(n=1, m=1, batch=1),
        Case(n=2, m=1, steps=1),
        Case(n=17, m=16, batch=1, activation="modrelu"),
        Case(n=33, m=33, batch=5, activation="leaky_relu"),
        Case(n=64, m=5, batch=13, steps=19, activation="oplu"),
        Case(n=100, m=37, batch=7, steps=63, activation="modrelu"),
        Case(n=65, m=8, batch=31, steps=5, activation="relu", packed=True),
        Case(n=19, m=4, batch=1, steps=40, activation="identity", packed=True),
        Case(n=7, m=0, base=True),
        Case(n=7, m=3, base=False),
    ],
    ids=lambda case: f"n{case.n}m{case.m}B{case.batch}T{case.steps}{case.activation}",
)
@pytest.mark.parametrize("kind", ["dense", "packed", "matrix"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_awkward_sizes(backend, kind, case, dtype):
    for inputs in (None, 0, 1, 2, 9):
        check(replace(case, kind=kind, inputs=inputs), backend, dtype)
    check(replace(case, kind=kind, output="last", bias=False), backend, dtype)


@pytest.mark.parametrize("gain", [0.9, 1.05])
@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_gain(backend, dtype, base, kind, gain):
    check(Case(kind, "modrelu", n=9, m=4, base=base, gain=gain), backend, dtype)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_steps_and_no_sequences(backend, kind):
    for steps, batch in ((0, 3), (4, 0), (0, 0)):
        for output in ("all", "last"):
            for activation in ("modrelu", "oplu"):
                case = Case(kind, activation, n=6, m=2, steps=steps, batch=batch, output=output).draw()
                tensors = case.to(torch.float32, DEVICE)
                out = case.call(tensors, backend)
                assert out.shape == ((batch, 6) if output == "last" else (steps, batch, 6))
                grads = torch.autograd.grad(
                    out.sum(), case.differentiable(tensors), allow_unused=True, materialize_grads=True
                )
                assert all(grad.isfinite().all() for grad in grads)
                if steps == 0 and output == "last":
                    assert torch.equal(out, tensors["h0"])
                    assert torch.equal(grads[3], torch.ones_like(grads[3]))


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_clip_is_elementwise_inside_back_propagation(backend, kind):
    case = Case(kind, "tanh", n=6, m=3, steps=6, batch=2, clip=0.05).draw()
    dtype = torch.float32 if refused(case, backend, torch.float64) else torch.float64
    on_device = case.to(dtype, DEVICE)
    out = case.call(on_device, backend)
    grad = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = torch.autograd.grad(out, [on_device[k] for k in ("x", "h0", "bias")], grad.to(out))
    tensors, out = case.to(torch.float64), out.double().cpu()
    # The recursion by hand, on W as a matrix.
    identity = torch.eye(6, dtype=torch.float64)
    W = Case(
        kind,
        "identity",
        n=6,
        m=3,
        steps=1,
        batch=6,
        inputs=None,
        bias=False,
        tensors={**case.tensors, "h0": identity, "x": torch.zeros(1, 6, 6, dtype=torch.float64)},
    )
    W.tensors.pop("weight_ih"), W.tensors.pop("bias")
    matrix = W.oracle(W.tensors)[0].mT
    carry, deltas = torch.zeros(2, 6, dtype=torch.float64), []
    for h_t, grad_t in zip(reversed(out.detach()), reversed(grad)):
        delta = ((1 - h_t**2) * (carry + grad_t)).clamp(-0.05, 0.05)
        deltas.insert(0, delta)
        carry = delta @ matrix
    delta = torch.stack(deltas)
    assert (delta.abs() == 0.05).any()
    assert (delta.abs() < 0.05).any()
    wanted = (delta @ tensors["weight_ih"], carry, delta.sum(dim=(0, 1)))
    for expected, got in zip(wanted, found):
        torch.testing.assert_close(got.double().cpu(), expected, rtol=0, atol=tolerance(dtype, 36))


@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_kept_for_the_backward_pass(backend, output, activation):
    """At most T B (N + M) numbers of the sequence, besides the parameters' own size; the paper needs N M T."""
    T, B, n, m = 50, 3, 20, 4
    tensors = (
        Case("packed", activation, n=n, m=m, steps=T, batch=B, inputs=1, output=output).draw().to(torch.float32, DEVICE)
    )
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        Case("packed", activation, n=n, m=m, steps=T, batch=B, inputs=1, output=output).call(tensors, backend)
    own = sum(t.numel() for t in tensors.values()) + n * m + m * m
    assert sum(kept.values()) <= T * B * (n + m) + own
    assert sum(kept.values()) >= T * B * (n + m)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_bits_again(backend, kind):
    case = Case(kind, "modrelu", n=40, m=7, steps=30, batch=6).draw()
    runs = []
    for _ in range(2):
        tensors = case.to(torch.float32, DEVICE)
        out = case.call(tensors, backend)
        runs.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
    assert all(torch.equal(a, b) for a, b in zip(*runs))


def check_not_finite(
    backend: str, activation: str, bad: float, device: torch.device = DEVICE, clip: float | None = None
) -> None:
    """One entry of one sequence is not finite: the others stay clean, and all is as in the reference, NaN for NaN."""
    size = activations.get(activation).parameter_size(6)
    parameter = torch.zeros(size, device=device) if size else None
    found = []
    for name in (backend, "reference"):
        torch.manual_seed(0)
        x = torch.randn(4, 3, 6)
        x[1, 1, 2] = bad
        x = x.to(device).requires_grad_()
        h0, W = torch.zeros(3, 6, device=device), 0.5 * torch.eye(6, device=device)
        out = dense_rnn(x, h0, W, activation, parameter, backend=name, clip=clip)
        (by_sum,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        found.append((out, by_sum))
        clean = torch.ones(4, 3, dtype=torch.bool, device=device)
        clean[1:, 1] = False
        assert out[clean].isfinite().all()
        if bad != bad:
            assert out[1, 1].isnan().any()
            (by_square,) = torch.autograd.grad(out.square().sum(), x)  # a loss of NaN, and so is its gradient
            assert by_square[1, 1].isnan().any()
            assert by_square[:, 0].isfinite().all()
    bound = tolerance(torch.float32, 4 * 6)
    for mine, theirs in zip(*found):
        torch.testing.assert_close(mine, theirs, rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_goes_the_same_way_in_every_backend(activation, bad):
    for backend in BACKENDS:
        check_not_finite(backend, activation, bad)
        check_not_finite(backend, activation, bad, clip=0.5)
