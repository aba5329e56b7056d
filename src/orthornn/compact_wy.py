"""The algebra of products of Householder reflections (Mhammedi et al., 2017, eqs. 6-9, Proposition 1, Theorem 2).

U = (u_n | ... | u_{n-m+1}), (N, M): column j has j leading zeros, then u_{n-j} of R^{n-j}. With

    T = striu(U'U) + 1/2 diag(U'U),    S = T^-1,

    H_n(u_n) ... H_{n-m+1}(u_{n-m+1}) = I - U S U'      (columns may be any vectors: no zero is needed for this).

The full transition is W = (I - U S U') B with a base B given by two vectors (c, s): B h = c * h + s * swap(h), where
swap exchanges the two halves of h and leaves an odd middle unit in place. B = None is the identity. B' e = c * e +
swap(s * e).

Packed: the M reflectors one after another, u_n first, NM - M(M-1)/2 numbers.

Scale. H(u) depends only on the direction of u, so reflectors are scaled to norm sqrt(2), for which diag(T) = 1:
products built from them neither overflow nor underflow. A reflector whose largest entry is at most NEGLIGIBLE has no
meaningful direction: it represents no reflection (H = I), with gradient zero. T and S are computed in float64.

Rows. A state is stored as a row h', (rows, N); products such as W h are computed for all rows, transposed.

Theorem 2, summed over rows r (steps and sequences): with h~ = S U'h, C~ = S'U'd, d = dL/dC, C = (I - U S U') h,

    dL/dU = U [(sum h~C~') o Z' + (sum C~h~') o Z] - sum d h~' - sum h C~',     Z = striu(J) + 1/2 I,
    dL/dh = d - U C~,

so three matrix products over all rows serve the whole sequence, with M saved numbers per row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._checks import check_integer
from .errors import ShapeError

NEGLIGIBLE = 1e-30
_BLOCK = 64  # reflections in a block of multiplied_out; 48 to 96 take the same time on a CPU at N = 256 ... 1024

Base = tuple[Tensor, Tensor] | None


def packed_size(n: int, m: int) -> int:
    """Return the number of entries of M packed reflectors for a state of size N: NM - M(M-1)/2."""
    return n * m - m * (m - 1) // 2


def packed_reflections(n: int, size: int) -> int:
    """Return the M with packed_size(n, M) == size; raise ShapeError if there is none."""
    m = (2 * n + 1 - math.isqrt(max((2 * n + 1) ** 2 - 8 * size, 0))) // 2
    if not 0 <= m <= n or packed_size(n, m) != size:
        raise ShapeError(
            f"Expected packed reflectors to have NM - M(M-1)/2 entries with N={n} and M of at most {n}, but got {size}."
        )
    return m


def packed_index(n: int, m: int, device: torch.device | None = None) -> Tensor:
    """Return the position of each packed number in the flat (N, M) trapezoid: int64, (NM - M(M-1)/2,)."""
    check_integer("reflections", m, 0, n)
    column, row = torch.triu_indices(m, n, device=device)
    return row * m + column


def unpack(packed: Tensor, n: int) -> Tensor:
    """Return U from packed reflectors: (P,) -> (N, M), or (P, 2) -> (N, M, 2)."""
    m = packed_reflections(n, packed.shape[0])
    flat = packed.new_zeros(n * m, *packed.shape[1:])
    index = packed_index(n, m, packed.device)
    return flat.index_put((index,), packed).view(n, m, *packed.shape[1:])


def pack(U: Tensor) -> Tensor:
    """Return packed reflectors from U, dropping the entries above the trapezoid: (N, M, ...) -> (P, ...)."""
    n, m = U.shape[:2]
    return U.reshape(n * m, *U.shape[2:])[packed_index(n, m, U.device)]


def normalize(U: Tensor) -> Tensor:
    """Return each column of U (N, M) scaled to norm sqrt(2), or zero if it is negligible. Differentiable.

    For complex reflectors pass their real and imaginary parts stacked: (2N, M).
    """
    if U.shape[1] == 0:
        return U
    largest = U.detach().abs().amax(dim=0)
    negligible = largest <= NEGLIGIBLE
    # A power of two scales without rounding; the squares below are then in range in any dtype. Not by ldexp: torch.compile's
    # C++ for a processor with vectors cannot convert the exponents.
    largest = torch.where(negligible, torch.ones_like(largest), largest)
    U = torch.where(negligible, torch.zeros_like(U), U * (torch.frexp(largest).mantissa / largest))
    squared = torch.where(negligible, torch.ones_like(largest), (U * U).sum(dim=0))
    return U * torch.rsqrt(squared / 2)


def inverse_T(U: Tensor) -> Tensor:
    """Return S = T^-1 of Proposition 1, (M, M), upper triangular, computed in float64 and cast to the dtype of U.

    A column of zeros (no reflection) takes 1 on T's diagonal.
    """
    wide = U.double()
    identity = torch.eye(U.shape[1], dtype=wide.dtype, device=U.device)
    return torch.linalg.solve_triangular(_upper_T(wide), identity, upper=True).to(U.dtype)


def _upper_T(U: Tensor) -> Tensor:
    """Return T of Proposition 1, (M, M), with 1 on the diagonal for a column of zeros. U: Real or complex."""
    gram = U.mH @ U
    diagonal = gram.diagonal() / 2
    diagonal = torch.where(diagonal == 0, torch.ones_like(diagonal), diagonal)
    return gram.triu(1) + torch.diag(diagonal)


def factors(U: Tensor, n: int | None = None) -> tuple[Tensor, Tensor]:
    """Return (U, S) in float64, from U (N, M) as it is, or from packed reflectors (P,) and N, scaled to norm
    sqrt(2).
    """
    wide = U.double()
    if U.dim() == 1:
        assert n is not None
        wide = normalize(unpack(wide, n))
    return wide, inverse_T(wide)


def reflect(h: Tensor, U: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return C = (I - U S U') h for rows h: (..., N), and h~ = S U'h: (..., M)."""
    h_tilde = (h @ U) @ S.mT
    return h - h_tilde @ U.mT, h_tilde


def reflect_transpose(d: Tensor, U: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return (I - U S'U') d for rows d: (..., N), and C~ = S'U'd: (..., M)."""
    C_tilde = (d @ U) @ S
    return d - C_tilde @ U.mT, C_tilde


def swap(h: Tensor) -> Tensor:
    """Return the last dimension with its two halves exchanged; an odd middle entry stays in place."""
    half = h.shape[-1] // 2
    first, middle, second = h.split([half, h.shape[-1] - 2 * half, half], dim=-1)
    return torch.cat([second, middle, first], dim=-1)


def apply_base(h: Tensor, base: Base) -> Tensor:
    """Return B h for rows h: (..., N)."""
    if base is None:
        return h
    c, s = base
    return c * h + s * swap(h)


def apply_base_transpose(e: Tensor, base: Base) -> Tensor:
    """Return B' e for rows e: (..., N)."""
    if base is None:
        return e
    c, s = base
    return c * e + swap(s * e)


def base_power(base: tuple[Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
    """Return (c, s) of B^k for k >= 1, by repeated squaring; differentiable."""
    power: tuple[Tensor, Tensor] | None = None
    while k:
        if k % 2:
            power = base if power is None else _base_product(power, base)
        k //= 2
        if k:
            base = _base_product(base, base)
    assert power is not None
    return power


def _base_product(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    (c, s), (d, r) = left, right
    return c * d + s * swap(r), c * r + s * swap(d)


def product(U: Tensor, base: Base = None, n: int | None = None) -> Tensor:
    """Return W = (I - U T^-1 U') B as a matrix (N, N): built in float64, cast to the dtype of U. Differentiable.

    U: (N, M), used as it is; or packed reflectors (P,) with N given, scaled to norm sqrt(2).
    """
    packed = U.dim() == 1
    wide = U.double()
    if packed:
        assert n is not None
        wide = normalize(unpack(wide, n))
    # A row q' of Q becomes (B'q)': no product with B as a matrix.
    Q = multiplied_out(wide, trapezoid=packed)
    return apply_base_transpose(Q, None if base is None else (base[0].double(), base[1].double())).to(U.dtype)


def multiplied_out(U: Tensor, trapezoid: bool) -> Tensor:
    """Return H_1 ... H_M = I - U T^-1 U^H, (N, N), from real or complex reflectors U (N, M), unscaled. Differentiable.

    The columns are processed in blocks V, starting with the last: the product Q of all blocks so far becomes (I - V
    T^-1 V^H) Q, with T of V only. This takes 4 N^2 M flops, compared with 5 N^2 M for one block. In a trapezoid, Q is I
    outside the rows and columns from the first of its blocks onwards, so the cost is 4/3 N^3 at M = N. Except on a
    CPU, one block is cheapest because it needs few launches.

    Args:
        trapezoid: Whether column j has j leading zeros.
    """
    n, m = U.shape
    blocks = max(1, m // _BLOCK) if U.device.type == "cpu" else 1
    sizes = [m * (k + 1) // blocks - m * k // blocks for k in range(blocks)]
    begin = m
    Q = torch.eye(n - m if trapezoid else n, dtype=U.dtype, device=U.device)
    for columns in reversed(U.split(sizes, dim=1)):
        size = columns.shape[1]
        begin -= size
        if trapezoid:
            Q = torch.nn.functional.pad(Q, (size, 0, size, 0))
            Q.diagonal()[:size] = 1
        V = columns[begin:] if trapezoid else columns
        Q = torch.addmm(Q, V, torch.linalg.solve_triangular(_upper_T(V), V.mH @ Q, upper=True), alpha=-1)
    return Q


def reflector_gradient(U: Tensor, h_tilde_C_tilde: Tensor, d_h_tilde: Tensor, h_C_tilde: Tensor) -> Tensor:
    """Return dL/dU by Theorem 2 from the sums over rows of h~C~' (M, M), d h~' (N, M) and h C~' (N, M)."""
    Z = torch.ones_like(h_tilde_C_tilde).triu(1) + 0.5 * torch.eye(U.shape[1], dtype=U.dtype, device=U.device)
    return U @ (h_tilde_C_tilde * Z.mT + h_tilde_C_tilde.mT * Z) - d_h_tilde - h_C_tilde


def normalize_backward(grad: Tensor, U: Tensor, normalized: Tensor) -> Tensor:
    """Return dL/dU from dL/d(normalize(U)): orthogonal to each reflector, and zero if the reflector is negligible.

    With v = sqrt(2) u / |u|: dL/du = (g - v (v.g)/2) sqrt(2) / |u|.
    """
    largest = U.abs().amax(dim=0)
    unit = torch.where(largest > 0, largest, 1)  # taken out, so that no square leaves the range
    norm = torch.linalg.vector_norm(U / unit, dim=0)
    scale = torch.where(largest > 0, math.sqrt(2) / norm.clamp_min(1) / unit, 0)
    scale = torch.where((normalized == 0).all(dim=0), 0, scale)
    return (grad - normalized * (normalized * grad).sum(dim=0) / 2) * scale


def embed_reflectors(U: Tensor) -> Tensor:
    """Return complex reflectors (N, M, 2) as real ones (2N, 2M): each u becomes [Re u; Im u] and [-Im u; Re u].

    The two are orthogonal and of equal norm, and their two reflections together are the complex reflection I - 2 u
    u*/||u||^2 on [Re h; Im h] (derivation: docs/derivations/parametrizations.md, Complex reflectors).
    """
    real, imaginary = U.unbind(-1)
    columns = torch.stack([torch.cat([real, imaginary]), torch.cat([-imaginary, real])], dim=-1)
    return columns.flatten(1)
