"""Skew-symmetric and skew-Hermitian matrices A = -A^H by their free numbers, for Cayley transforms and exponentials.

Real: the n(n-1)/2 numbers a_ij, i < j, row by row. Complex: the same as pairs, and a_jj = i diagonal_j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .matrices import as_complex, as_pairs


def skew_shapes(n: int, field: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the free numbers of A (n, n): the entries above the diagonal, and if complex the
    diagonal.
    """
    above = n * (n - 1) // 2
    return ((above,),) if field == "real" else ((above, 2), (n,))


def places_above(n: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns of the entries above the diagonal, row by row."""
    row, column = torch.triu_indices(n, n, offset=1, device=device)
    return row, column


def skew_matrix(n: int, skew: Tensor, diagonal: Tensor | None = None) -> Tensor:
    """Return A (n, n) in double precision, complex if a diagonal is given."""
    above = skew.double() if diagonal is None else as_complex(skew.double())
    upper = above.new_zeros(n, n).index_put(places_above(n, above.device), above)
    A = upper - upper.mH
    if diagonal is None:
        return A
    return A + torch.diag(torch.complex(torch.zeros_like(diagonal, dtype=torch.float64), diagonal.double()))


def block_diagonal(values: Tensor, n: int) -> Tensor:
    """Return A (n, n), zero except for blocks [[0, t], [-t, 0]] on the diagonal, one for each value t of (n // 2,)."""
    A = values.new_zeros(n, n)
    first = torch.arange(0, n - 1, 2, device=values.device)
    A[first, first + 1] = values
    return A - A.mT


def skew_numbers(A: Tensor) -> tuple[Tensor, ...]:
    """Return the free numbers of A (n, n)."""
    above = as_pairs(A[places_above(A.shape[0], A.device)]).clone()
    return (above, A.diagonal().imag.clone()) if A.is_complex() else (above,)
