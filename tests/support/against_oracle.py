"""A call of a recurrence on one backend against the oracle of cases.py."""

from __future__ import annotations

import os

import pytest
import torch

from orthornn import activations
from orthornn.errors import BackendError
from orthornn.kernels import dense_rnn
from orthornn.kernels.backends import BACKENDS as ALL_BACKENDS
from orthornn.kernels.call import Size
from orthornn.kernels.dispatch import available
from support.cases import Case
from support.tolerances import tolerance

DEVICE = torch.device(os.environ.get("ORTHORNN_DEVICE", "cpu"))
BACKENDS = [name for name, reason in available(DEVICE).items() if reason is None]
DTYPES = [torch.float32, torch.float64]


def close(found: torch.Tensor, expected: torch.Tensor, bound: float) -> None:
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found.double().cpu(), expected, rtol=0, atol=bound * (1 + largest))


def refused(case: Case, backend: str, dtype: torch.dtype) -> bool:
    """Whether the backend says that it does not do this."""
    m = case.m if case.kind in ("packed", "matrix") else None
    size = Size(
        case.n, m, case.batch, case.steps, case.packed, case.paired, case.kind == "rotations", case.reset is not None
    )
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


def check_parameter_is_nan(backend: str, activation: str, device: torch.device = DEVICE) -> None:
    """A parameter of one unit that is NaN reaches the states, and the states of no unit that does not see it."""
    size = activations.get(activation).parameter_size(6)
    parameter = torch.full((size,), -0.1, device=device)
    parameter[1] = float("nan")
    x = torch.full((2, 3, 6), -1.5, device=device).requires_grad_()
    h0, W = torch.zeros(3, 6, device=device), 0.5 * torch.eye(6, device=device)
    out = dense_rnn(x, h0, W, activation, parameter, backend=backend)
    lost = torch.zeros(6, dtype=torch.bool, device=device)
    lost[[1, 4] if size == 3 else [1]] = True
    assert torch.equal(out[0].isnan(), lost.expand(3, 6))
    assert out[1].isnan().all()  # 0 times NaN, in the product with W
    (grad,) = torch.autograd.grad(out[0].square().sum(), x)
    assert grad[0][:, lost].isnan().all()


def check_clip(backend, kind):
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
