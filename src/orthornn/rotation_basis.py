"""The basis in which an orthogonal W consists of 2x2 rotations: W = Q R Q', Q orthogonal, R h = c * h + s * swap(h).

W is normal, so its symmetric part S = (W + W')/2 and its skew part K = (W - W')/2 commute. S has the eigenvalue cos(a)
twice for each rotation by an angle a, and K maps that plane to itself: in any orthonormal basis (p, q) of the plane, W
is the block [[c, s], [-s, c]] with s = p'Wq. So one symmetric eigenproblem suffices, a tenth of the time of a real
Schur form. K separates the planes that it cannot tell apart, as derived in docs/derivations/rotations.md:

    cosines that are close together           eigenvectors x + iy of the Hermitian part of e^-ib W: planes (x, y)
    angles near 0 or pi: cos is flat there    the same of iK, scaled up as often as it takes; K's null space is lines

All computations are in float64. A float32 W is orthogonal to 3e-8 at best, so it is first orthogonalized by one or two
steps of the Newton-Schulz iteration for the polar factor, after which S and K commute to the last digit.

W may be g times an orthogonal matrix: (c, s) then have norm g.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

# ||W'W/g^2 - I||_F / sqrt(N), the root mean square over columns, up to which W counts as orthogonal: this times epsilon
# times sqrt(N). Each of the N reflections of a QR factorization rounds a column once more, by about epsilon and
# independently, and so does each product of matrices: sqrt(N) of them. QR, polar factors and their products stay below
# 2.3 at every N from 2 to 1024; rounding an orthogonal matrix leaves .3 / sqrt(N). torch.linalg.matrix_exp squares, and
# doubles the error each time: in float64, of random skew-symmetric matrices of spectral norm 6, it leaves up to 19.
ORTHOGONAL = 32.0
_ONE_STEP = 5e-7  # below it one step of the Newton-Schulz iteration makes a matrix orthogonal to float64

# |cos| above which angles are told apart by K: cos loses a digit for each that sin has less than 1. The end begins at the
# widest gap between these two, since a limit that falls between the two cosines of one plane would tear it apart.
_END = 0.99, 0.999
_CLOSE = 1e-3  # cosines that are closer go together: rounding mixes their planes by epsilon over the distance
_SMALL = 1e-4  # (angle / largest angle)^2 below which an angle waits for the next scale
_RESIDUAL = 1e-11  # ||Q'WQ - R||_F / ||W||_F that float64 stays below; of float32 it is the precision of W
CACHED = 8


class Rotations(NamedTuple):
    """W = Q R Q'.

    Q: (N, N) and R (N, N) in W's dtype. turns: c (N,) and s (N,) of R in float64, (2, N). residual: ||Q'WQ - R||_F in
    float64; for g = 1, R^t is within t * residual of (Q'WQ)^t.
    """

    Q: Tensor
    R: Tensor
    turns: Tensor
    residual: float


def defect(W: Tensor) -> float:
    """Return ||W'W/g^2 - I||_F / sqrt(N) in float64, where g is the average size of W's columns."""
    return _scaled(W)[2]


def _scaled(W: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return W/g in float64, W'W/g^2 - I, and its norm per sqrt(N), which is infinite if g does not exist."""
    root = math.sqrt(W.shape[0])
    wide = W.detach().double()
    gain = float(torch.linalg.vector_norm(wide)) / root
    if not (gain > 0 and math.isfinite(gain)):
        return wide, wide, math.inf
    unit = wide / gain
    excess = unit.mT @ unit
    excess.diagonal().sub_(1)
    return unit, excess, float(torch.linalg.vector_norm(excess)) / root


def allowed_defect(dtype: torch.dtype, n: int) -> float:
    """Return the defect up to which a W of this dtype counts as orthogonal; it grows as sqrt(N)."""
    return ORTHOGONAL * torch.finfo(dtype).eps * math.sqrt(n)


@torch.no_grad()
def decompose(W: Tensor) -> Rotations | None:
    """Return the rotations of W (N, N), or None if W is not a multiple of an orthogonal matrix to its precision, or if
    W is further from Q R Q' than its precision.
    """
    n = W.shape[0]
    unit, excess, off = _scaled(W)
    if not off <= allowed_defect(W.dtype, n):
        return None
    unit = unit - unit @ excess / 2
    if off > _ONE_STEP:  # the step leaves about the square of what it found
        excess = unit.mT @ unit
        excess.diagonal().sub_(1)
        unit = unit - unit @ excess / 2
    cosines, vectors = torch.linalg.eigh((unit + unit.mT) / 2)
    planes, lines = _split(
        cosines, vectors, unit, max(torch.finfo(W.dtype).eps, torch.finfo(unit.dtype).eps * math.sqrt(n))
    )
    if planes.shape[1] + lines.shape[1] != n:  # a plane was torn apart
        return None
    half, pairs = n // 2, planes.shape[1] // 2  # lines share places two by two; an odd one is the middle
    Q = torch.cat([planes[:, :pairs], lines[:, : n - half - pairs], planes[:, pairs:], lines[:, n - half - pairs :]], 1)
    A = Q.mT @ W.double() @ Q
    c, s = A.diagonal().clone(), A.new_zeros(n)
    first = torch.arange(pairs, device=W.device)
    second = first + n - half
    c[first] = c[second] = (c[first] + c[second]) / 2
    s[first] = (A[first, second] - A[second, first]) / 2
    s[second] = -s[first]
    R = torch.diag(c)
    R[first, second], R[second, first] = s[first], s[second]
    residual = float(torch.linalg.vector_norm(A - R))
    if not residual <= max(allowed_defect(W.dtype, n), _RESIDUAL) * float(torch.linalg.vector_norm(A)):
        return None
    return Rotations(Q.to(W.dtype), R.to(W.dtype), torch.stack([c, s]), residual)


def _split(cosines: Tensor, vectors: Tensor, W: Tensor, still: float) -> tuple[Tensor, Tensor]:
    """Return planes [p_1 ... p_k, q_1 ... q_k] (N, 2k) and lines (N, r) from eigenvalues, ascending, and vectors of S.

    still: The angle below which W counts as fixing or negating a direction.
    """
    n = cosines.shape[0]
    low = n - _end_of(-cosines.flip(0))
    high = _end_of(cosines)
    close = (cosines.diff() <= _CLOSE).tolist()
    groups: list[list[int]] = []
    for i in range(low, high):
        if groups and i > low and close[i - 1]:
            groups[-1].append(i)
        else:
            groups.append([i])
    pairs = torch.tensor([group for group in groups if len(group) == 2], dtype=torch.int64, device=W.device)
    pairs = pairs.reshape(-1, 2)
    first, second = [vectors[:, pairs[:, 0]]], [vectors[:, pairs[:, 1]]]
    for group in groups:
        if len(group) > 2:
            p, q = _crowd(vectors[:, group], W, cosines[group[len(group) // 2]])
            first.append(p)
            second.append(q)
    lines = [vectors[:, :0], *(vectors[:, group] for group in groups if len(group) == 1)]  # none, but by rounding
    for space in (vectors[:, :low], vectors[:, high:]):
        p, q, left = _end(space, W, still)
        first.append(p)
        second.append(q)
        lines.append(left)
    return torch.cat([*first, *second], 1), torch.cat(lines, 1)


def _end_of(cosines: Tensor) -> int:
    """Return the index in these ascending cosines at which the end near 1 begins."""
    first, last = (int((cosines < limit).sum()) for limit in _END)
    padded = torch.cat([cosines.new_full((1,), -2.0), cosines, cosines.new_full((1,), 2.0)])
    return first + int(padded.diff()[first : last + 1].argmax())


def _crowd(space: Tensor, W: Tensor, cosine: Tensor) -> tuple[Tensor, Tensor]:
    """Return (p, q) that span `space` (N, 2k), on which W rotates by angles near the angle of `cosine`.

    The Hermitian part of e^-ib W has the eigenvalues cos(a - b) and cos(-a - b). If b is an eighth of a circle from a,
    on the side away from the nearer end, the first eigenvalue is steep in a and larger than the second.
    """
    angle = torch.arccos(cosine)
    b = angle + (math.pi / 4 if float(cosine) > 0 else -math.pi / 4)
    turned = (space.mT @ W @ space) * torch.polar(torch.ones_like(b), -b)
    _, eigenvectors = torch.linalg.eigh((turned + turned.mH) / 2)
    above = eigenvectors[:, space.shape[1] // 2 :] * math.sqrt(2)
    return space @ above.real, space @ above.imag


def _end(space: Tensor, W: Tensor, still: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (p, q, lines) that span `space` (N, k), on which W or -W rotates by small angles, one scale after the
    other.
    """
    first, second = [space[:, :0]], [space[:, :0]]
    while space.shape[1] > 1:
        K = space.mT @ W @ space
        K = (K - K.mT) / 2
        size = float(torch.linalg.vector_norm(K)) / math.sqrt(K.shape[0])
        if size <= still:
            break
        K = K / size
        squares, basis = torch.linalg.eigh(K.mT @ K)
        small = int((squares <= _SMALL * squares[-1]).sum())
        small += (K.shape[0] - small) % 2  # angles come twice
        chosen = basis[:, small:]
        _, eigenvectors = torch.linalg.eigh(1j * (chosen.mT @ K @ chosen))
        above = eigenvectors[:, chosen.shape[1] // 2 :] * math.sqrt(2)
        first.append(space @ (chosen @ above.real))
        second.append(space @ (chosen @ above.imag))
        space = space @ basis[:, :small]
    return torch.cat(first, 1), torch.cat(second, 1), space


_cache: OrderedDict[int, tuple[Tensor, Rotations | None]] = OrderedDict()
_lock = threading.Lock()
_count = 0


def rotations_of(W: Tensor) -> Rotations | None:
    """Do the same as `decompose`, cached for the latest matrices, which are compared by value because fused optimizers
    do not change versions.
    """
    global _count
    W = W.detach()
    found = cached(W)
    if found is None:
        with torch.inference_mode(False):  # else Q could not be saved for a later backward pass
            found, given = (decompose(W),), W.clone()
        with _lock:
            _count += 1
            _cache[_count] = (given, found[0])
            while len(_cache) > CACHED:
                _cache.popitem(last=False)
    return found[0]


def forget() -> None:
    """Clear the cache, as after an update of W."""
    with _lock:
        _cache.clear()


def cached(W: Tensor) -> tuple[Rotations | None] | None:
    """Return the cached rotations of W, as a tuple of one, or None."""
    W = W.detach()
    with _lock:
        entries = list(_cache.items())
    for key, (matrix, rotations) in reversed(entries):
        same_kind = matrix.shape == W.shape and matrix.dtype == W.dtype and matrix.device == W.device
        if same_kind and torch.equal(matrix, W):
            with _lock:
                if key in _cache:
                    _cache.move_to_end(key)
            return (rotations,)
    return None
