"""The exponential of skew matrices and its gradient against the eigendecomposition, at every degree and scale."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn import MatrixExponential
from orthornn.parametrizations.skew_exponential import _BOUNDS, _rational, skew_exponential
from support import captured
from support.tolerances import tolerance

DTYPES = [torch.float64, torch.complex128]


def skew(n: int, dtype: torch.dtype, norm: float) -> torch.Tensor:
    A = torch.randn(n, n, dtype=dtype)
    A = A - A.mH
    size = float(torch.linalg.matrix_norm(A, 2))
    return A * (norm / size) if size else A


def exact(A: torch.Tensor, G: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(A) and the gradient of Re <G, exp(A)>, from A = V diag(-i lambda) V^H with lambda real."""
    angles, V = torch.linalg.eigh(1j * A)
    W = (V * torch.polar(torch.ones_like(angles), -angles)) @ V.mH
    middle, half = (angles[:, None] + angles) / 2, (angles[:, None] - angles) / 2
    divided = torch.polar(torch.sinc(half / math.pi), middle)  # conjugate of (e^x - e^y) / (x - y)
    gradient = V @ ((V.mH @ G.to(V.dtype) @ V) * divided) @ V.mH
    return (W, gradient) if A.is_complex() else (W.real, gradient.real)


def bound_of(n, norm):
    """An angle of size `norm` is known to norm * eps; what is computed here and there differs by as much."""
    return tolerance(torch.float64, n) * max(1.0, norm)


def check_exact(A, G, W, found, norm):
    expected, gradient = exact(A.detach(), G)
    bound = bound_of(len(A), norm)
    torch.testing.assert_close(W.detach(), expected, rtol=0, atol=bound)
    torch.testing.assert_close(found, gradient, rtol=0, atol=bound * float(torch.linalg.matrix_norm(G)))


@pytest.mark.sampled(49)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [0.0, 1e-9, 1e-2, 0.1, 0.5, 1.5, 3.0, 4.7, 4.8, 30.0, 1000.0])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_values_and_gradients(n, norm, dtype):
    A = skew(n, dtype, norm).requires_grad_()
    G = torch.randn(n, n, dtype=dtype)
    W = skew_exponential(A)
    (found,) = torch.autograd.grad(W, A, G)
    check_exact(A, G, W, found, norm)
    identity = torch.eye(n, dtype=dtype)
    assert float(torch.linalg.matrix_norm(W.detach().mH @ W.detach() - identity)) <= bound_of(n, norm)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [1e4, 1e6, 1e9, 1e15, 1e20, 1e160, 1e300])
@pytest.mark.parametrize("n", [2, 7, 40])
def test_orthogonal_whatever_the_norm(n, norm, dtype):
    """Angles are known to norm * eps only; W is orthogonal to rounding all the same, and its gradient finite."""
    A = skew(n, dtype, 1.0).mul_(norm).requires_grad_()
    G = torch.randn(n, n, dtype=dtype)
    W = skew_exponential(A)
    (found,) = torch.autograd.grad(W, A, G)
    identity = torch.eye(n, dtype=dtype)
    bound = tolerance(torch.float64, n)
    torch.testing.assert_close(W.detach().mH @ W.detach(), identity, rtol=0, atol=bound)
    assert bool(found.isfinite().all())
    if norm <= 1e9:
        check_exact(A, G, W, found, norm)


@pytest.mark.parametrize(("degree", "norm"), _BOUNDS.items())
def test_each_degree_is_exact_up_to_its_bound(degree, norm):
    A = skew(6, torch.float64, norm)
    expected, _ = exact(A, A)
    torch.testing.assert_close(_rational(A, A @ A, degree), expected, rtol=0, atol=tolerance(torch.float64, 6))


def test_any_degree_gives_an_orthogonal_matrix():
    A = skew(6, torch.float64, 2.0)  # beyond the bounds of all degrees but the last
    for degree in _BOUNDS:
        W = _rational(A, A @ A, degree)
        torch.testing.assert_close(W.mT @ W, torch.eye(6, dtype=W.dtype), rtol=0, atol=tolerance(torch.float64, 6))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_first_and_second_derivatives(dtype):
    free = torch.randn(4, 4, dtype=dtype, requires_grad=True)

    def function(M):
        return skew_exponential(M - M.mH)

    assert torch.autograd.gradcheck(function, free, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, free)


def test_what_has_no_readable_values_takes_the_other_way_to_the_same_result():
    A = skew(5, torch.float64, 2.0)
    expected = skew_exponential(A)
    batch = torch.func.vmap(skew_exponential)(torch.stack([A, -A]))
    torch.testing.assert_close(batch[0], expected)
    torch.testing.assert_close(batch[1], expected.mT)
    _, tangent = torch.func.jvp(skew_exponential, (A,), (A,))
    torch.testing.assert_close(tangent, A @ expected)
    compiled = torch.compile(skew_exponential, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(A), expected)
    assert skew_exponential(A.to("meta")).shape == (5, 5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [1e4, 1e6])
def test_what_has_no_readable_values_is_orthogonal_to_rounding_too(norm, dtype):
    """Squarings leave norm * eps; a Newton step squares that."""
    n = 40
    W = torch.func.vmap(skew_exponential)(skew(n, dtype, norm).unsqueeze(0))[0]
    bound = tolerance(torch.float64, n)
    torch.testing.assert_close(W.mH @ W, torch.eye(n, dtype=dtype), rtol=0, atol=bound)


def test_free_numbers_that_are_not_finite_make_a_matrix_that_is_not():
    for bad in (math.nan, math.inf):
        method = MatrixExponential().bind(4)
        assert method(torch.full((6,), bad)).isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.1, 4.7, 4.8, 30.0, 400.0])
def test_values_and_gradients_while_cuda_captures(norm, dtype, monkeypatch):
    n = 7
    A, G = skew(n, dtype, norm).requires_grad_(), torch.randn(n, n, dtype=dtype)
    with monkeypatch.context() as patches:
        captured.begin(patches)
        W = skew_exponential(A)
        (found,) = torch.autograd.grad(W, A, G)
    check_exact(A, G, W, found, norm)


@pytest.mark.parametrize("wrong", [1e4, math.inf, math.nan])
def test_what_a_captured_graph_cannot_compute_is_nan(wrong, monkeypatch):
    A = skew(4, torch.float64, 1.0) * wrong
    captured.begin(monkeypatch)
    W = skew_exponential(A)
    monkeypatch.undo()
    assert W.isnan().all()
