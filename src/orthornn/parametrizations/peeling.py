"""Find the rotations of a matrix that is a product of few layers by removing one layer after the other.

W = D F_L ... F_1. Row p of F_(l-1) ... F_1 vanishes outside the columns that p reaches in l - 1 layers. Layer l mixes
the rows p and q by a unitary K = diag(a, b) F(theta, phi). In the columns that only p reaches, both rows of F_l ... F_1
are multiples of p's row, with the factors K[:, 0]; in the columns that only q reaches, with the factors K[:, 1]. So the
left singular vector of that part determines K up to phases, which are passed inwards. They end in a diagonal matrix,
and from there they move outwards again, since K times a diagonal is another diag(a, b) F(theta, phi).

If no two units that meet have reached a common column before (the FFT-like arrangement, one or two layers of the
tunable one), those parts have norm 1, and the rotations are exact. With more layers the parts may be small, and the
smaller they are, the less accurate the result is.
"""

from __future__ import annotations

import torch
from torch import Tensor

Pairs = list[list[tuple[int, int]]]


def reached(pairs: Pairs, n: int) -> Tensor:
    """Return the columns (n,) that each row may have after 0, 1, ... layers: (L + 1, n, n) bool."""
    now = torch.eye(n, dtype=torch.bool, device="cpu")
    found = [now]
    for layer in pairs:
        now = now.clone()
        for p, q in layer:
            now[p] = now[q] = now[p] | now[q]
        found.append(now)
    return torch.stack(found)


def is_exact(pairs: Pairs, n: int) -> bool:
    """Return whether no two units that meet have reached a common column before."""
    before = reached(pairs, n)
    return not any(bool((before[k, p] & before[k, q]).any()) for k, layer in enumerate(pairs) for p, q in layer)


def peel(W: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return (theta, phi, d): angles in the order of the pairs, and D's diagonal (n,); None if two units that meet
    share all their columns. W: (n, n), unitary to double precision. If W is not such a product, the result represents
    another matrix.
    """
    n, device, M = W.shape[0], W.device, W.detach().cpu().clone()
    columns = reached(pairs, n)
    mixing: list[list[Tensor]] = []
    for before, layer in zip(reversed(columns[:-1]), reversed(pairs)):
        mixing.append([])
        for p, q in layer:
            rows = M[[p, q]]
            own, other = rows[:, before[p] & ~before[q]], rows[:, before[q] & ~before[p]]
            if own.shape[1] + other.shape[1] == 0:
                return None
            K = _mixing(own, other)
            mixing[-1].append(K)
            M[[p, q]] = (K.mH @ rows) * before[[p, q]]
    d = torch.sgn(M.diagonal())
    d = torch.where(d == 0, torch.ones_like(d), d)
    theta, phi = [], []
    for layer, layer_mixing in zip(pairs, reversed(mixing)):
        for (p, q), K in zip(layer, layer_mixing):
            angle, phase, d[p], d[q] = _rotation(K * d[[p, q]])
            theta.append(angle)
            phi.append(phase)
    angles = torch.tensor([theta, phi], dtype=torch.float64, device=device)
    return angles[0], angles[1], d.to(device)


def _mixing(own: Tensor, other: Tensor) -> Tensor:
    """Return unitary K (2, 2) with own = K[:, :1] (1, ...) and other = K[:, 1:] (1, ...), from the larger of the
    two.
    """
    first = other.shape[1] == 0 or (
        own.shape[1] > 0 and torch.linalg.matrix_norm(own) >= torch.linalg.matrix_norm(other)
    )
    u = torch.linalg.svd(own if first else other)[0][:, 0]
    across = torch.stack([-u[1].conj(), u[0].conj()])
    return torch.stack([u, across] if first else [across, u], dim=1)


def _rotation(K: Tensor) -> tuple[float, float, Tensor, Tensor]:
    """Return (theta, phi, a, b) with K = diag(a, b) [[e^{i phi} cos, -sin], [e^{i phi} sin, cos]] and |a| = |b| = 1."""
    if not K.is_complex():
        theta = torch.atan2(K[1, 0], K[1, 1])
        a = torch.where(K[0, 0] * torch.cos(theta) - K[0, 1] * torch.sin(theta) >= 0, 1.0, -1.0).to(K.dtype)
        return float(theta), 0.0, a, torch.ones_like(a)
    theta = torch.atan2(K[1, 0].abs(), K[1, 1].abs())
    # the phases of the larger entries; the smaller ones give phi, or 1 where they are 0
    large = K[1, 1].abs() >= K[1, 0].abs()
    known = torch.sgn(K[1, 1]) if large else -torch.sgn(K[0, 1])
    small = K[1, 0] if large else K[0, 0]
    phase = torch.sgn(small) / known if small != 0 else torch.ones_like(known)
    a, b = (torch.sgn(K[0, 0]) / phase, known) if large else (known, torch.sgn(K[1, 0]) / phase)
    return float(theta), float(phase.angle()), a, b
