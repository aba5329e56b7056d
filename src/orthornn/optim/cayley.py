"""A step along the Stiefel manifold {M : M^H M = I} by the Cayley transform (Wen & Yin, 2013; Tagare, 2011).

    M(eta) = (I + eta/2 A)^-1 (I - eta/2 A) M,   A = G M^H - M G^H          (Vorontsov et al., 2017, eq. 9, as a
    product)

A is skew-Hermitian, so the factor in front of M is unitary and M(eta)^H M(eta) = M^H M. Let G be the gradient of L at
M, as a complex matrix dL/dRe + i dL/dIm; then dL/d eta = -||A||_F^2 / 2 at eta = 0 if M is square.

M (N, P) has at least as many rows as columns. A = U V^H with U = [G, M] and V = [M, -G] has rank 2P at most; if 2P < N
the Sherman-Morrison-Woodbury form solves 2P equations instead of N (Wen & Yin, 2013, Lemma 4):

    M(eta) = M - eta U (I + eta/2 V^H U)^-1 V^H M.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..parametrizations.matrices import polar_factor

_HUGE = 1e4  # A of odd order has an eigenvalue 0: where 1 next to such an entry has lost digits, so has M(eta)


def cayley_update(M: Tensor, G: Tensor, lr: float, carried: Tensor | None = None) -> Tensor:
    """Return M(eta) for eta = lr: (N, P), with M's dtype. G: (N, P), real or complex like M.

    Raise LinAlgError if eta A is so large that adding the identity has no effect.

    carried: (N, K). The factor in front of M is applied to it, and the result is appended, (N, P + K). A vector tangent
    at M becomes one tangent at M(eta), with the same norm.
    """
    n, p = M.shape
    moved = M if carried is None else torch.cat([M, carried], dim=1)
    if 2 * p < n:
        U, V = torch.cat([G, M], dim=1), torch.cat([M, -G], dim=1)
        inner = (V.mH @ U).mul_(lr / 2)
        inner.diagonal().add_(1)
        return moved - lr * (U @ torch.linalg.solve(inner, V.mH @ moved))
    GM = G @ M.mH
    left = (GM - GM.mH).mul_(lr / 2)
    size = float(left.abs().max()) if left.numel() else 0.0
    left.diagonal().add_(1)
    moved = 2 * torch.linalg.solve(left, moved) - moved  # (I + X)^-1 (I - X) = 2 (I + X)^-1 - I
    if size > _HUGE:
        moved[:, :p] = polar_factor(moved[:, :p])
    return moved


def tangent_part(M: Tensor, G: Tensor) -> Tensor:
    """Return A M = G - M G^H M (N, P): the gradient in the tangent space, which is zero if the loss is stationary on
    the manifold.
    """
    return G - M @ (G.mH @ M)


def generator(M: Tensor, V: Tensor) -> Tensor:
    """Return D (N, P) with (D M^H - M D^H) M = V, for V tangent at M: the gradient whose Cayley step starts along
    -V.
    """
    return V - 0.5 * (M @ (M.mH @ V))


def polar_step(M: Tensor) -> Tensor:
    """Return the result of one Newton-Schulz step M (3 I - M^H M) / 2 towards the nearest point of the manifold.

    An error e = ||M^H M - I||_2 below 1 becomes at most 3/4 e^2 + 1/4 e^3.
    """
    return 1.5 * M - 0.5 * (M @ (M.mH @ M))
