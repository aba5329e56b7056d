"""Real and complex matrices: precisions, pairs of real numbers, Haar draws, polar factors, checks of
`right_inverse`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._checks import check_finite, check_shape, is_captured
from ..complex_as_real import complex_dtype
from ..errors import DTypeError, NotOnGroupError


def as_complex(pairs: Tensor) -> Tensor:
    """Return (...) complex from (..., 2) real; at least complex64, since complex numbers have no 16-bit arithmetic.

    The result is not a view, since strides and offsets of some tensors do not allow one: parameters of FSDP and of
    torch.nn.utils.vector_to_parameters may start anywhere in one vector.
    """
    real, imaginary = (pairs.float() if pairs.dtype in (torch.bfloat16, torch.float16) else pairs).unbind(-1)
    return torch.complex(real, imaginary)


def as_pairs(W: Tensor) -> Tensor:
    """Return (...) complex -> (..., 2) real; a real tensor is returned unchanged."""
    return torch.view_as_real(W.resolve_conj()) if W.is_complex() else W


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in float64 or complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def narrowed(W: Tensor, like: Tensor) -> Tensor:
    """Return W, real or complex, in the precision of a free tensor, which is real."""
    return W.to(complex_dtype(like.dtype) if W.is_complex() else like.dtype)


def orthogonality_error(W: Tensor) -> float:
    """Return ||W^H W - I||_F (Frobenius) of a real or complex matrix (N, P), computed in float64."""
    wide = widen(W.detach())
    identity = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    return float(torch.linalg.matrix_norm(wide.mH @ wide - identity))


def haar(n: int, is_complex: bool, generator: torch.Generator | None = None) -> Tensor:
    """Return a matrix from the Haar measure on O(n) or U(n), in double precision on the CPU.

    The result is Q of a Gaussian matrix, with its columns multiplied by the signs (phases) of R's diagonal (Mezzadri,
    2007).
    """
    dtype = torch.complex128 if is_complex else torch.float64
    Q, R = torch.linalg.qr(torch.randn(n, n, dtype=dtype, device="cpu", generator=generator))
    return Q * torch.sgn(R.diagonal())


def polar_factor(A: Tensor) -> Tensor:
    """Return the nearest matrix with orthonormal columns, or rows if they are fewer, in the Frobenius norm (Fan &
    Hoffman, 1955).
    """
    left, _, right = torch.linalg.svd(A, full_matrices=False)
    return left @ right


def polar_of_determinant(A: Tensor, sign: float) -> Tensor:
    """Return the orthogonal matrix with determinant `sign` nearest to A: the polar factor of the real square A, if
    necessary with the sign on the least singular direction of A flipped.
    """
    left, _, right = torch.linalg.svd(A, full_matrices=False)
    if float(torch.linalg.slogdet(left @ right)[0]) != sign:
        left[:, -1] *= -1
    return left @ right


def solve(A: Tensor, B: Tensor) -> Tensor:
    """Return A^-1 B. Raise torch.linalg.LinAlgError if A is singular. On CUDA return NaN instead, since the host would
    have to wait for the device, which is not allowed while a graph is captured.
    """
    if not (A.is_cuda or is_captured(A)):
        return torch.linalg.solve(A, B)
    X, info = torch.linalg.solve_ex(A, B)
    return X.masked_fill(info != 0, math.nan)


def check_square(W: Tensor, n: int, field: str) -> Tensor:
    """Return W in double precision, after checking its shape, field and finiteness."""
    check_shape("W", W, (n, n))
    if W.is_complex() and field == "real":
        raise DTypeError(f"Expected W to be real, like this parametrization, but got {W.dtype}. Use field='complex'.")
    if not (W.is_floating_point() or W.is_complex()):
        raise DTypeError(
            f"Expected W to have a floating-point dtype, but got {W.dtype}. Convert it with .to(torch.float64)."
        )
    check_finite("W", W)
    wide = widen(W.detach())
    return wide.to(torch.complex128) if field == "complex" else wide


_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def rounding(W: Tensor) -> float:
    """Return the error (Frobenius) of a matrix that is orthogonal up to the rounding of its dtype.

    Algorithms in float32 or float64 lose up to about n eps. 16-bit matrices are such results rounded: entries with
    relative error eps/2 and Frobenius norm sqrt(n) change W^H W by at most eps sqrt(n). A double-precision matrix whose
    entries are all representable in float32 is taken as computed in float32 and widened.
    """
    if W.dtype in _SINGLE and torch.equal(W.to(_SINGLE[W.dtype]).to(W.dtype), W):
        W = W.to(_SINGLE[W.dtype])
    n, eps = W.shape[0], torch.finfo(W.dtype).eps
    return 2 * eps * n**0.5 if W.dtype in (torch.bfloat16, torch.float16) else 16 * eps * n


def check_on_group(W: Tensor, n: int, field: str) -> Tensor:
    """Return W in double precision, orthogonal (unitary) to that precision; raise NotOnGroupError if W is not
    orthogonal to the precision of its dtype.

    A matrix rounded to float32 is orthogonal only to that accuracy; its polar factor is the nearest exact one.
    """
    wide = check_square(W, n, field)
    error = orthogonality_error(wide)
    if error > rounding(W):
        kind = "orthogonal" if field == "real" else "unitary"
        raise NotOnGroupError(
            f"Expected W to be {kind}, but got ||W^H W - I||_F = {error:.3g} (rounding of {W.dtype} allows "
            f"{rounding(W):.1g}). Take its polar factor, or use Unconstrained()."
        )
    return polar_factor(wide)
