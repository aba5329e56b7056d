"""A Hadamard matrix with trained signs (Foucault et al., 2025, HadamRNN and Block-HadamRNN).

W = P (I x H_K) D / sqrt(K),   D = diag(sign(u)),   sign(0) = 1,

with Sylvester's Hadamard matrix H_1 = (1), H_2K = [H_K H_K; H_K -H_K], whose entries are +-1 and H_K' H_K = K I. I x H_K
has N/K of them on its diagonal, and P deals the units out like cards: entry i of block a becomes unit i N/K + a, so that the
next step mixes units of different blocks. So W is orthogonal for every u, its entries are +-1/sqrt(K) or 0, each row and
column has K that are not 0, and W h takes N log2 K additions.

The gradient passes straight through sign: it is that of the surrogate P (I x H_K) diag(u) / sqrt(K)
(docs/derivations/parametrizations.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._checks import check_integer
from ..errors import ArgumentError, NotOnGroupError
from .matrices import check_on_group, narrowed, rounding
from .parametrization import BoundParametrization, Parametrization


def walsh_hadamard(x: Tensor) -> Tensor:
    """Return H_K x for the last dimension, of size K, a power of two; log2 K additions for each number."""
    K, stride = x.shape[-1], 1
    shape = x.shape
    while stride < K:
        first, second = x.reshape(*shape[:-1], K // (2 * stride), 2, stride).unbind(-2)
        x = torch.stack((first + second, first - second), -2)
        stride *= 2
    return x.reshape(shape)


@dataclass(frozen=True, repr=False)
class Hadamard(Parametrization):
    """A Hadamard matrix with one trained sign per column: orthogonal, with entries +-1/sqrt(block) and 0.

    Free tensor: `signs` (n,), of which only the signs count. They are drawn from U[-1, 1]; their gradient passes straight
    through the sign. W has n bits.

    Args:
        block: Size of the Hadamard matrices, a power of two that divides n; with several of them a fixed permutation
            spreads each over all units. Default: None, the largest one, n itself if n is a power of two.
    """

    block: int | None = None

    def __post_init__(self) -> None:
        if self.block is not None:
            check_integer("block", self.block, 1)
            if self.block & (self.block - 1):
                raise ArgumentError(f"Expected block to be a power of two, but got {self.block}. Pass 64, for example.")

    def bind(self, n: int) -> BoundHadamard:  # noqa: D102
        check_integer("n", n, 1)
        block = n & -n if self.block is None else self.block
        if n % block:
            raise ArgumentError(f"Expected block to divide n={n}, but got {block}. Pass at most {n & -n}.")
        return BoundHadamard(n, block)


class BoundHadamard(BoundParametrization):
    """`block` is K."""

    names = ("signs",)
    group = "subset"

    def __init__(self, n: int, block: int) -> None:
        super().__init__(n)
        self.block = block
        levels = block.bit_length() - 1
        self.operator_cost = (n * levels + n, 3 * levels + 3)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return ((self.n,),)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return numbers from U[-1, 1]."""
        return (2 * torch.rand(self.n, dtype=torch.float64, device="cpu", generator=generator) - 1,)

    def operands(self, *free: Tensor) -> tuple[Tensor, ...]:
        """Return the diagonal of D / sqrt(K), (n,); its derivative by u is 1 / sqrt(K)."""
        u = free[0].double()
        signs = torch.where(u < 0, -1.0, 1.0) + (u - u.detach())  # the difference is 0, or NaN if u is not finite
        return (narrowed(signs / math.sqrt(self.block), free[0]),)

    def multiply(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W h for rows h (R, n)."""
        blocks = (h * operands[0]).reshape(len(h), self.n // self.block, self.block)
        return walsh_hadamard(blocks).mT.reshape(len(h), self.n)

    def multiply_adjoint(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W' h for rows h (R, n)."""
        blocks = h.reshape(len(h), self.block, self.n // self.block).mT
        return walsh_hadamard(blocks).reshape(len(h), self.n) * operands[0]

    def _applied_to_I(self, d: Tensor) -> Tensor:
        return self.multiply(torch.eye(self.n, dtype=d.dtype, device=d.device), d).mT

    def forward(self, signs: Tensor) -> Tensor:  # type: ignore[override]  # noqa: D102
        self.check_free((signs,))
        return narrowed(self._applied_to_I(*self.operands(signs.double())), signs)

    def surrogate(self, signs: Tensor) -> Tensor:  # type: ignore[override]
        """Return the matrix with u in place of its signs."""
        return narrowed(self._applied_to_I(signs.double() / math.sqrt(self.block)), signs)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the signs of W, each -1 or 1."""
        Q = check_on_group(W, self.n, "real")
        ones = torch.ones(self.n, dtype=Q.dtype, device=Q.device)
        signs = torch.where((self(ones) * Q).sum(0) < 0, -ones, ones)
        distance, allowed = float(torch.linalg.matrix_norm(self(signs) - Q)), rounding(W)
        if not distance <= allowed:
            raise NotOnGroupError(
                f"Expected W to be Hadamard matrices of size {self.block} with signs of columns, but got a matrix at "
                f"Frobenius distance {distance:.3g} from the nearest (rounding allows {allowed:.1g}). Use Stiefel() or "
                f"Householder() for any orthogonal W."
            )
        return (signs,)
