"""Represent a complex state as a real one of twice the size (Mhammedi et al., 2017, section 3).

h^ = [Re h; Im h],   V^ = [Re V; Im V] for real inputs,   W^ = [[A, -B], [B, A]] for W = A + iB, eq. 5:
W^ is orthogonal when W is unitary, and W^ h^ is the embedding of W h.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ShapeError


def complex_dtype(part: torch.dtype) -> torch.dtype:
    """Return the complex dtype with parts of this dtype, at least complex64: 16 bits have no complex form."""
    return torch.complex128 if part == torch.float64 else torch.complex64


def embed_matrix(W: Tensor) -> Tensor:
    """Return W (N, K) complex -> W^ (2N, 2K) real."""
    A, B = W.real, W.imag
    return torch.cat([torch.cat([A, -B], dim=1), torch.cat([B, A], dim=1)])


def embed_state(h: Tensor) -> Tensor:
    """Return h (..., N) complex -> [Re h; Im h] (..., 2N); a real h is returned unchanged."""
    if not h.is_complex():
        return torch.cat([h, torch.zeros_like(h)], dim=-1)
    return torch.cat([h.real, h.imag], dim=-1)


def complex_state(h: Tensor) -> Tensor:
    """Return [Re h; Im h] (..., 2N) -> h (..., N) complex."""
    if h.shape[-1] % 2:
        raise ShapeError(f"Expected an embedded complex state, whose last size is even, but got {tuple(h.shape)}.")
    real, imaginary = h.chunk(2, dim=-1)
    return torch.complex(real, imaginary)
