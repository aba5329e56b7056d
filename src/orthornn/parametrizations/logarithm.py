"""A logarithm of an orthogonal or unitary matrix: skew A with exp(A) = W.

Principal square roots. If W has no eigenvalue -1, its square root with angles in (-pi/2, pi/2) is the unitary polar
factor of I + W, because 1 + e^{i theta} = 2 cos(theta/2) e^{i theta/2}. After k roots all angles are small, and with
C = (W - I)(W + I)^-1, which has eigenvalues i tan(theta/2), log W = 2 artanh C = 2 (C + C^3/3 + C^5/5 + ...).

Eigenvalues near -1. Complex: use W e^{i s} with the shift s that moves the widest gap between eigenvalues to -1. Real:
the symmetric part (W + W')/2 has eigenvalues cos theta; a gap between them, from -0.9 to 0.5, splits the space into two
invariant subspaces. On the subspace with the small cosines, -W has a logarithm X, and log W = X + pi J for any J with
J' = -J, J^2 = -I and J X = X J. The polar factor of -X is such a J.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .matrices import polar_factor

_ROOTS = 5  # angles below pi become less than 0.1
_TERMS = 7  # tan(0.05)^14 is below double precision
_TILT = 1e-13  # makes a singular X regular; J then commutes with X up to this


def logarithm(W: Tensor) -> Tensor:
    """Return A (N, N) with exp(A) = W and A = -A^H, in double precision.

    W: (N, N), unitary to double precision; if real, with determinant 1.
    """
    return _of_unitary(W) if W.is_complex() else _of_rotation(W)


def _skew_part(A: Tensor) -> Tensor:
    return (A - A.mH) / 2


def _away_from_minus_one(W: Tensor) -> Tensor:
    identity = torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
    for _ in range(_ROOTS):
        W = polar_factor(identity + W)
    C = _skew_part(torch.linalg.solve(W + identity, W - identity))
    square, term, total = C @ C, C, C
    for k in range(1, _TERMS):
        term = term @ square
        total = total + term / (2 * k + 1)
    return _skew_part(2.0 ** (_ROOTS + 1) * total)


def _of_unitary(W: Tensor) -> Tensor:
    angles = torch.linalg.eigvals(W).angle().sort().values
    gaps = torch.cat([angles[1:], angles[:1] + 2 * math.pi]) - angles
    widest = int(gaps.argmax())
    shift = math.pi - float(angles[widest] + gaps[widest] / 2)
    shift -= 2 * math.pi * round(shift / (2 * math.pi))
    identity = torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
    turned = W * complex(math.cos(shift), math.sin(shift))
    return _away_from_minus_one(turned) - 1j * shift * identity


def _of_rotation(W: Tensor) -> Tensor:
    cosines, vectors = torch.linalg.eigh((W + W.mT) / 2)
    bounded = torch.cat([cosines.new_tensor([-0.9]), cosines.clamp(-0.9, 0.5), cosines.new_tensor([0.5])])
    split = int(bounded.diff().argmax())  # this many cosines are below the widest gap
    low, high = vectors[:, :split], vectors[:, split:]
    A = high @ _away_from_minus_one(high.mT @ W @ high) @ high.mT
    if split:
        A = A + low @ _near_minus_one(polar_factor(low.mT @ W @ low)) @ low.mT
    return _skew_part(A)


def _near_minus_one(Q: Tensor) -> Tensor:
    """Return the logarithm of rotations Q of an even dimension whose angles all exceed pi/3 in modulus."""
    X = _away_from_minus_one(-Q)
    half = torch.eye(Q.shape[0] // 2, dtype=Q.dtype, device=Q.device)
    J = torch.kron(half, half.new_tensor([[0.0, 1.0], [-1.0, 0.0]]))
    # Twice: the first factor of a nearly singular X is orthogonal, but skew only to about 1e-6.
    J = polar_factor(_skew_part(polar_factor(_TILT * J - X)))
    return X + math.pi * _skew_part(J)
