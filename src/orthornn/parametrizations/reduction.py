"""Reduction of an orthogonal or unitary matrix to its reflectors: a constructive version of Theorem 1 of Mhammedi et
al. (2017).

Each step finds u with H(u) q = e for a unit vector q and a coordinate vector e, and applies H(u); H_1 (m = n) or I (m <
n) is left at the end. Reflectors are (N, M) with j zeros at the head of column j, and each column is scaled to the
length that standard normal entries would give it: sqrt(k) for a vector of R^k, sqrt(2k) for one of C^k. Adam's steps
turn a reflector by learning rate over length, so matrices that are assigned train like matrices that are drawn.

Derivations and conditioning: docs/derivations/parametrizations.md, Which matrices m reflections reach.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import NotOnGroupError

_NOTHING = 1e-30
_CLOSE = 1e-9


def towards(q: Tensor) -> Tensor:
    """Return u = q - e_0 for a unit vector q (K,) with real q_0, without cancellation: then H(u) q = e_0."""
    u = q.clone()
    u[0] = 0
    rest = torch.linalg.vector_norm(u) ** 2
    u[0] = q[0].real - 1 if q[0].real <= 0 else -rest / (1 + q[0].real)
    return u


def reflect_rows_(Q: Tensor, u: Tensor) -> None:
    """Replace Q by H(u) Q, in place."""
    Q -= torch.outer(u, (2 / torch.linalg.vector_norm(u) ** 2) * (u.conj() @ Q))


def as_drawn(U: Tensor) -> Tensor:
    """Return columns scaled to the root mean square length of standard normal entries; zero columns stay zero."""
    n, m = U.shape
    wanted = torch.arange(n, n - m, -1, dtype=torch.float64, device=U.device) * (2 if U.is_complex() else 1)
    norms = torch.linalg.vector_norm(U, dim=0)
    return U * torch.where(norms > 0, wanted.sqrt() / torch.where(norms > 0, norms, 1), 0)


def reduce_frame(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return reflectors (N, min(K, N-1)), all nonzero, with H_n ... H_{n-K+1} E = X, and the remainder of X.

    X: (N, K) with orthonormal columns; E: the first K columns of I. The remainder is E, except for the last sign if K =
        N.
    """
    n, k = X.shape
    X = X.clone()
    U = X.new_zeros(n, min(k, n - 1))
    for j in range(U.shape[1]):
        u = torch.zeros_like(X[:, j])
        u[j:] = towards(X[j:, j])
        if torch.linalg.vector_norm(u) <= n * torch.finfo(X.dtype).eps:
            # e_j is in place. The last coordinate's sign may change: a later step undoes it, or it is what is left.
            u = torch.zeros_like(u)
            u[-1] = 1
        U[:, j] = u
        reflect_rows_(X, u)
    return as_drawn(U), X


def reduce_orthogonal(Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q = H_n ... H_2 diag(1, ..., 1, u_1): reflectors (N, N-1), all nonzero, and the sign u_1 ()."""
    U, rest = reduce_frame(Q)
    return U, torch.where(rest[-1, -1] > 0, 1.0, -1.0).to(Q.dtype)


def reduce_unitary(Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q = H^_n ... H^_2 diag(e^{i theta}): complex reflectors (N, N-1), all nonzero, and theta (N,)."""
    n, Q = Q.shape[0], Q.clone()
    U = Q.new_zeros(n, n - 1)
    for j in range(n - 1):
        u = torch.zeros_like(U[:, j])
        u[j:] = Q[j:, j]
        u[j] += torch.sgn(u[j]) if u[j].abs() > 0 else 1.0
        U[:, j] = u
        reflect_rows_(Q, u)
    return as_drawn(U), Q.diagonal().angle()


def reduce_rank(Q: Tensor, m: int, tolerance: float, name: str = "W") -> Tensor:
    """Return m < N reflectors (N, M) with Q = H_n ... H_{n-m+1}; raise NotOnGroupError if none exist.

    tolerance: Precision to which Q is known. Singular values of Q - I below it do not count towards the rank; they are
    still reproduced if enough reflectors are left.

    The computation takes place in the range of Q - I, which contains all the reflectors: Q = I + V (R - I) V* with R
    unitary (r, r). Step j maps x = V* e_j, normalized, to itself and leaves the rest of the range, on which e_j
    vanishes. Places that need no reflection get e_n if their number is even (which cancels), or a zero reflector if it
    is odd.
    """
    n = Q.shape[0]
    kind = "complex reflections" if Q.is_complex() else "reflections"
    V, s, _ = torch.linalg.svd(Q - torch.eye(n, dtype=Q.dtype, device=Q.device))
    rank = int((s > tolerance).sum())
    if rank > m:
        raise NotOnGroupError(
            f"Expected rank({name} - I) <= {m}, the most that {m} {kind} reach, but got rank {rank}. "
            f"Pass reflections={n if Q.is_complex() else rank}{'' if Q.is_complex() else ' or more'}."
        )
    V = V[:, : min(m, int((s > n * torch.finfo(Q.dtype).eps).sum()))]
    left, _, right = torch.linalg.svd(V.mH @ Q @ V)
    R = left @ right
    U = Q.new_zeros(n, m)
    j = 0
    while R.shape[0]:
        V, R = _first_axis(V, R, _direction(V, R, j))
        u = towards(R[:, 0])
        if torch.linalg.vector_norm(u) > _NOTHING:
            U[j:, j] = (V @ u)[j:]
            reflect_rows_(R, u)
            j += 1
        V, R = V[:, 1:], R[1:, 1:]
    U[-1, j : j + (m - j) // 2 * 2] = 1
    U = as_drawn(U)
    distance = _distance(U, Q)
    # Real: the construction is backward stable. Complex: what is not such a product ends here.
    if distance > (max(4 * tolerance, _CLOSE) if Q.is_complex() else 4 * tolerance):
        raise NotOnGroupError(
            f"Expected {name} to be a product of {m} {kind}, but got a matrix at Frobenius distance {distance:.3g} from the "
            f"nearest one found (rounding allows {4 * tolerance:.1g}); rank({name} - I) = {rank} is not enough. Pass "
            f"reflections={n}."
        )
    return U


def _direction(V: Tensor, R: Tensor, j: int) -> Tensor:
    """Return a unit x of the range: the one along e_j, or if e_j is not in it, any that a reflection can fix."""
    lengths = torch.linalg.vector_norm(V, dim=1)
    if not V.is_complex():
        k = j if lengths[j] > _NOTHING else int(lengths.argmax())
        return V[k] / lengths[k]
    return V[j].conj() / lengths[j] if lengths[j] > 1e-12 else _real_direction(R)


def _real_direction(R: Tensor) -> Tensor:
    """Return a unit x with x* R x real, built from the eigenvectors farthest to the left and right of the real axis."""
    # R is normal: the Hermitian (R - R*)/2i has its eigenvectors, with the sines of its angles.
    sines, vectors = torch.linalg.eigh((R - R.mH) / 2j)
    low, high = float(sines[0].clamp(max=0)), float(sines[-1].clamp(min=0))
    if high - low <= _NOTHING:
        return vectors[:, 0]
    return vectors[:, 0] * math.sqrt(high / (high - low)) + vectors[:, -1] * math.sqrt(-low / (high - low))


def _first_axis(V: Tensor, R: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return V G and G* R G for the reflection G that exchanges x, up to its phase, and the first axis."""
    w = x.clone()
    w[0] += torch.sgn(x[0]) if x[0].abs() > 0 else 1.0
    scale = 2 / torch.linalg.vector_norm(w) ** 2
    V = V - torch.outer(V @ w, scale * w.conj())
    R = R - torch.outer(R @ w, scale * w.conj())
    return V, R - torch.outer(w, scale * (w.conj() @ R))


def _distance(U: Tensor, Q: Tensor) -> float:
    """Return ||H(u_1) H(u_2) ... - Q||_F for the columns of U."""
    left = Q.clone()
    for u in U.mT:
        if bool((u != 0).any()):
            reflect_rows_(left, u)
    left.diagonal().sub_(1)
    return float(torch.linalg.matrix_norm(left))
