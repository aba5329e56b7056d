"""The exponential of a skew-symmetric or skew-Hermitian matrix by Padé approximation, scaling and squaring.

exp(A) = r(A / 2^s)^(2^s),   r(x) = p(x) / p(-x),   p(x) = sum_j c_j x^j,   c_j = m! (2m - j)! / ((2m)! j! (m - j)!).

Let U be the odd and V the even part of p(A); then r(A) = (V - U)^-1 (V + U). Since A^H = -A, V - U is the adjoint of V
+ U and commutes with it, so r(A) is orthogonal (unitary) whatever the error of the approximation. Each squaring doubles
the error due to rounding, which would leave ||A|| eps. If A is large, a Newton-Schulz step towards the nearest
orthogonal matrix, W <- W + W (I - W^H W) / 2, therefore squares that error after every few squarings.

The derivative comes from autograd, through these products. For degree 13 the map and its gradient together cost 22
products of n x n matrices; torch.matrix_exp differentiates through the exponential of a 2n x 2n matrix, which costs
about 60.

Degrees and bounds: Higham (2005); Al-Mohy and Higham (2009), Table 6.1, which lists the bounds up to which the
derivative is exact to float64. A normal matrix is measured by its spectral norm; ||A||_1, ||A||_F and ||A^2||_1^(1/2)
are upper bounds of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._checks import is_captured, is_transformed
from .matrices import solve

_BOUNDS = {3: 1.08e-2, 5: 2.00e-1, 7: 7.83e-1, 9: 1.78, 13: 4.74}
_LARGEST = 13
_CAPTURED = 8  # squarings in a CUDA graph: up to a spectral bound of 4.74 2^8 = 1213
_UNTIL_NEWTON = 8  # squarings before and between Newton-Schulz steps
_HUGE = 2.0**400  # entries whose squares, or the sums of those, could overflow


def skew_exponential(A: Tensor) -> Tensor:
    """Return exp(A) for A (N, N) with A = -A^H in float64 or complex128. Differentiable any number of times.

    The degree depends on values of A. In graphs, under torch.func transforms and for tensors without values,
    torch.matrix_exp and a Newton-Schulz step replace the algorithm. While a CUDA graph is captured, the degree and the
    number of squarings are fixed for the largest A that it supports; W is NaN for a larger A.
    """
    if _is_symbolic(A):
        W = torch.matrix_exp(A)
        return W + _to_nearest(W.detach())
    halvings = 0
    if not is_captured(A):
        A, halvings = _in_range(A)
    square = A @ A
    bound = _spectral_bound(A.detach(), square.detach())
    if is_captured(A):
        return _without_reading(A, square, bound)
    norm = float(bound)
    if not math.isfinite(norm):
        return A * math.nan
    degree = next((m for m, bound in _BOUNDS.items() if norm <= bound), _LARGEST)
    squarings = max(0, math.ceil(math.log2(norm / _BOUNDS[degree]))) if norm > 0 else 0
    W = _rational(A * 0.5**squarings, square * 0.25**squarings, degree)
    squarings += halvings
    for k in range(squarings):
        W = W @ W
        if k + 1 > _UNTIL_NEWTON and ((k + 1) % _UNTIL_NEWTON == 0 or k + 1 == squarings):
            W = W + _to_nearest(W.detach())  # which moves with W, to first order: the gradient is that of W
    return W


def _to_nearest(W: Tensor) -> Tensor:
    """Return the Newton-Schulz step from W towards the nearest orthogonal (unitary) matrix, 1/2 W (I - W^H W)."""
    return 0.5 * (W - W @ (W.mH @ W))


def _in_range(A: Tensor) -> tuple[Tensor, int]:
    """Return A / 2^k and the least k for which A^2 does not overflow: 0 unless A is so large that its exponential is
    noise.
    """
    largest = float(A.detach().abs().max())
    if not _HUGE < largest < math.inf:
        return A, 0
    halvings = math.frexp(largest / _HUGE)[1]
    return A * 0.5**halvings, halvings


def _is_symbolic(A: Tensor) -> bool:
    """Return whether values of A cannot be read, or a transform is active that branching on a value would break."""
    return torch.compiler.is_compiling() or is_transformed() or A.is_meta or type(A) is not Tensor


def _without_reading(A: Tensor, square: Tensor, bound: Tensor) -> Tensor:
    """Return exp(A), or NaN beyond the largest bound, without branching on a value."""
    limit = _BOUNDS[_LARGEST]
    squarings = torch.log2(bound / limit).ceil().clamp(0, _CAPTURED)
    scale = torch.exp2(-squarings)
    W = _rational(A * scale, square * scale.square(), _LARGEST)
    for k in range(_CAPTURED):
        W = torch.where(k < squarings, W @ W, W)
    return W.masked_fill(~(bound <= limit * 2**_CAPTURED), math.nan)


def _spectral_bound(A: Tensor, square: Tensor) -> Tensor:
    """Return an upper bound on ||A||_2, of shape (). Eigenvalues of a real A come in pairs +-i t, so ||A||_F^2 is at
    least 2 t^2.
    """
    frobenius = torch.linalg.vector_norm(A) / (1.0 if A.is_complex() else math.sqrt(2))
    bounds = torch.stack([A.abs().sum(dim=0).max(), frobenius, square.abs().sum(dim=0).max().sqrt()])
    return bounds.min()


def _rational(A: Tensor, square: Tensor, degree: int) -> Tensor:
    """Return r(A) of this degree, given A^2."""
    m = degree
    c = [
        math.comb(m, j) * math.factorial(2 * m - j) / math.factorial(2 * m) for j in range(m + 1)
    ]  # m! / (j! (m - j)!) (2m - j)! / (2m)!
    identity = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    powers = [identity, square]  # A^0, A^2, A^4, ...
    while len(powers) <= (3 if m == _LARGEST else m // 2):
        powers.append(powers[-1] @ square)

    def even(first: int) -> Tensor:
        """Return sum_j c_(first + 2j) A^(2j), up to the degree."""
        own = c[first::2]
        low = sum((k * P for k, P in zip(own[1:4] if m == _LARGEST else own[1:], powers[1:])), own[0] * identity)
        if m != _LARGEST:
            return low
        return low + powers[3] @ sum((k * P for k, P in zip(own[5:], powers[2:])), own[4] * powers[1])

    U, V = A @ even(1), even(0)
    return solve(V - U, V + U)
