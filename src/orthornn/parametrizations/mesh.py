"""A unitary matrix as a rectangular mesh of rotations of neighbors (Clements et al., 2016).

With T(theta, phi) on the units (k, k+1) as in givens.py, eliminate the entries below the diagonal one antidiagonal
after the other, alternating between the right (V T^H, columns) and the left (T V, rows), until a diagonal matrix is
left: W = T_1^H ... T_j^H D' T_k ... T_{j+1}. Then each T^H on the left of D' moves to its right,

T(theta, phi)^H diag(e^{ia}, e^{ib}) = diag(-e^{i(b - phi)}, e^{ib}) T(theta, a - b + pi),

and W = D T ... T has the order of a mesh of n layers. Real: all phases are 0, and all signs are in D.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Rotation = tuple[int, float, float]  # k, theta, phi


def decompose(W: Tensor, layers: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (theta, phi, d): angles (L, n), with the angles of the pair (k, k+1) of a layer at [layer, k], and D's
    diagonal (n,).

    W: (n, n), unitary to double precision; layers >= n.
    """
    V, n = W.detach().cpu().clone(), W.shape[0]
    before: list[Rotation] = []  # act first, in this order
    after: list[Rotation] = []  # on the other side of D', outermost first
    for i in range(1, n):
        for j in range(i):
            if i % 2:
                before.append(_from_the_right(V, n - 1 - j, i - 1 - j))
            else:
                after.append(_from_the_left(V, n - i + j, j))
    d = torch.sgn(V.diagonal())
    moved = [_across(rotation, d) for rotation in reversed(after)]
    theta = torch.zeros(layers, n, dtype=torch.float64, device=V.device)
    phi = torch.zeros_like(theta)
    depth = [0] * n  # the first layer in which a unit is free
    for k, angle, phase in before + moved:
        layer = max(depth[k], depth[k + 1])
        layer += (layer + k) % 2
        theta[layer, k], phi[layer, k] = angle, phase
        depth[k] = depth[k + 1] = layer + 1
    device = W.device
    return theta.to(device), phi.to(device), d.to(device)


def _rotation(theta: float, phi: float, like: Tensor) -> Tensor:
    c, s = math.cos(theta), math.sin(theta)
    if not like.is_complex():
        return like.new_tensor([[c, -s], [s, c]])
    phase = complex(math.cos(phi), math.sin(phi))
    return torch.tensor([[phase * c, -s], [phase * s, c]], dtype=like.dtype, device=like.device)


def _from_the_right(V: Tensor, row: int, k: int) -> Rotation:
    """Return V T^H with entry (row, k) zero: e^{-i phi} cos theta v_k = sin theta v_{k+1}."""
    left, right = V[row, k].item(), V[row, k + 1].item()
    if V.is_complex():
        phase = _argument(left) - _argument(right)
        theta = math.atan2(abs(left), abs(right))
    else:
        phase, theta = 0.0, math.atan2(left, right)
    V[:, k : k + 2] = V[:, k : k + 2] @ _rotation(theta, phase, V).mH
    return k, theta, phase


def _from_the_left(V: Tensor, row: int, column: int) -> Rotation:
    """Return T V with entry (row, column) zero: e^{i phi} sin theta v_{row-1} = -cos theta v_row."""
    above, below = V[row - 1, column].item(), V[row, column].item()
    if V.is_complex():
        phase = _argument(-below) - _argument(above)
        theta = math.atan2(abs(below), abs(above))
    else:
        phase, theta = 0.0, math.atan2(-below, above)
    V[row - 1 : row + 1] = _rotation(theta, phase, V) @ V[row - 1 : row + 1]
    return row - 1, theta, phase


def _argument(z: complex) -> float:
    return math.atan2(z.imag, z.real)


def _across(rotation: Rotation, d: Tensor) -> Rotation:
    """Return T' with T^H diag(d) = diag(d') T'; changes d in place."""
    k, theta, phi = rotation
    a, b = d[k].item(), d[k + 1].item()
    if not d.is_complex():
        return k, (-theta if a == b else theta), 0.0
    d[k] *= -(b / a) * complex(math.cos(phi), -math.sin(phi))
    return k, theta, _argument(a) - _argument(b) + math.pi
