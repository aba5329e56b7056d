"""The exponential of a skew matrix (Hyland & Raetsch, 2017; Lezcano-Casado & Martinez-Rubio, 2019, expRNN), and its
dynamic trivialization (Lezcano-Casado, 2019).

W = exp(A),   A skew-symmetric (real) or skew-Hermitian (complex).

exp maps the skew-symmetric matrices onto SO(n) and the skew-Hermitian ones onto U(n). Hyland & Raetsch write A as a sum
of n^2 real numbers times a basis of u(n); these are the free numbers here. The map is regular if no two eigenvalues of
A differ by a non-zero multiple of 2 pi i; dynamic trivialization keeps A small:

W = B exp(A),   and after every K updates  B <- B exp(A), A <- 0.

Gradient: with the differential of exp at A, dexp_A(E), given by exp([[A, E], [0, A]]) = [[e^A, dexp_A(E)], [0, e^A]],
dL/dA = dexp_{A^H}(dL/dW), since the adjoint of dexp_A is dexp_{A^H}. It is computed by differentiating the algorithm of
skew_exponential.py, at a third of the cost of that block matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .._checks import check_choice, check_integer, is_captured, is_plain_eager
from ..errors import NotOnGroupError
from .logarithm import logarithm
from .matrices import as_complex, as_pairs, check_on_group, narrowed, polar_factor
from .parametrization import FIELDS, BoundParametrization, Field, Parametrization
from .skew import block_diagonal, skew_matrix, skew_numbers, skew_shapes
from .skew_exponential import skew_exponential

_OFF = 1e-11  # how far ||B||^2 / N may be from 1 in a base that counts as orthogonal


@dataclass(frozen=True, repr=False)
class MatrixExponential(Parametrization):
    """W = exp(A), or with ``rebase_every=K`` the dynamic trivialization W = B exp(A).

    Free tensors: `skew`, the n(n-1)/2 numbers a_ij (i < j, row by row; (n(n-1)/2, 2) if complex), and if complex
    `diagonal`, (n,): a_jj = i diagonal_j. Their number equals the dimension of the group: n(n-1)/2, or n^2.

    Args:
        field: ``"real"``, or ``"complex"`` for a skew-Hermitian A and a unitary W. Default: ``"real"``.
        rebase_every: Number of optimizer updates, K, between two moves of the base B. K = 1 is a Riemannian gradient
            step. A move does not change what an optimizer stores about A (Adam's averages). Default: None, B stays at
            I.
        init: Blocks [[0, t], [-t, 0]] on A's diagonal. ``"henaff"``: t ~ U[-pi, pi]; ``"cayley"``: tan(t/2) instead of
            t, with t ~ U[0, pi/2]. Both are initializations of expRNN's published code. Default: ``"henaff"``.
    """

    field: Field = "real"
    rebase_every: int | None = None
    init: Literal["henaff", "cayley"] = "henaff"

    def __post_init__(self) -> None:
        check_choice("field", self.field, FIELDS)
        check_choice("init", self.init, ("henaff", "cayley"))
        if self.rebase_every is not None:
            check_integer("rebase_every", self.rebase_every, 1, advice="Pass None to keep the base.")

    def bind(self, n: int) -> BoundMatrixExponential:  # noqa: D102
        return BoundMatrixExponential(n, self)


class BoundMatrixExponential(BoundParametrization):
    """Buffers with rebase_every: `base`, B as (N, N) or (N, N, 2); `updates`, the number of updates so far."""

    base: Tensor
    updates: Tensor

    def __init__(self, n: int, description: MatrixExponential) -> None:
        super().__init__(n)
        self.field, self.rebase_every, self.init = description.field, description.rebase_every, description.init
        self.names = ("skew",) if self.field == "real" else ("skew", "diagonal")
        if self.rebase_every is not None:
            self.register_buffer("base", self._identity())
            self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device="cpu"))

    @property
    def group(self) -> str:  # type: ignore[override]
        """``"SO"`` or ``"det=-1"``, according to the base, which right_inverse may have moved; ``"U"`` if complex."""
        if self.field == "complex":
            return "U"
        moved = self.rebase_every is not None and not self.base.is_meta and type(self.base) is Tensor
        return "det=-1" if moved and torch.linalg.slogdet(self.base.double())[0] < 0 else "SO"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return skew_shapes(self.n, self.field)

    def _identity(self) -> Tensor:
        dtype = torch.complex128 if self.field == "complex" else torch.float64
        return as_pairs(torch.eye(self.n, dtype=dtype, device="cpu"))

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return a block-diagonal A, see MatrixExponential; an odd n leaves one zero row. The base is I."""
        if self.rebase_every is not None:
            self.base.copy_(self._identity())
            self.updates.zero_()
        t = torch.rand(self.n // 2, dtype=torch.float64, device="cpu", generator=generator)
        t = torch.tan(t * math.pi / 4) if self.init == "cayley" else (2 * t - 1) * math.pi
        A = block_diagonal(t, self.n)
        return skew_numbers(A.to(torch.complex128) if self.field == "complex" else A)

    def matrix_A(self, skew: Tensor, diagonal: Tensor | None = None) -> Tensor:
        """Return A (N, N), built from its free numbers, in double precision."""
        return skew_matrix(self.n, skew, diagonal)

    def _base_point(self) -> Tensor:
        """Return B in double precision. A moving average of buffers also averages bases, so this is the nearest
        orthogonal matrix to the buffer.
        """
        base = self.base.double()
        near = _nearest_base(base) if is_plain_eager() else torch.ops.orthornn.nearest_base(base)
        return as_complex(near) if self.field == "complex" else near

    def _wide(self, *free: Tensor) -> Tensor:
        """Return W in double precision."""
        W = skew_exponential(self.matrix_A(*free))
        return W if self.rebase_every is None else self._base_point() @ W

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        self.check_free(free)
        return narrowed(self._wide(*free), free[0])

    @property
    def acts_after_update(self) -> bool:  # noqa: D102
        return self.rebase_every is not None

    @torch.no_grad()
    def after_update_(self, *free: Tensor) -> None:
        """Count the update; after every K-th, move the base to W, re-orthogonalized, and set A to 0."""
        if self.rebase_every is None:
            return
        self.updates += 1
        if int(self.updates) % self.rebase_every == 0:
            self.base.copy_(as_pairs(polar_factor(self._wide(*free))))
            for value in free:
                value.zero_()

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return a logarithm of W. With rebase_every the base moves to W, whatever its determinant, and A is 0.

        Raises NotOnGroupError for a real W of determinant -1 if the base is I, since exp(A) has determinant 1.
        """
        Q = check_on_group(W, self.n, self.field)
        if self.rebase_every is not None:
            self.base.copy_(as_pairs(Q))
            return skew_numbers(torch.zeros_like(Q))
        if self.field == "real" and torch.linalg.slogdet(Q)[0] < 0:
            raise NotOnGroupError(
                "Expected W of determinant 1, like every exponential of a skew-symmetric matrix, but got determinant -1: "
                "the nearest one is at Frobenius distance 2. Use rebase_every, Householder() or ScaledCayley()."
            )
        return skew_numbers(logarithm(Q))


def _nearest_base(base: Tensor) -> Tensor:
    """Return `base` itself, (N, N) or (N, N, 2), if it is orthogonal, otherwise its polar factor.

    For an average of orthogonal matrices, I - B'B is positive semidefinite, so its trace N - ||B||^2 bounds its norm.
    While a CUDA graph is captured, the host cannot wait for the decomposition of a polar factor, and the result is NaN
    instead.
    """
    n = base.shape[0]
    if base.is_meta:
        return base
    squares = base.square().sum()
    if is_captured(base):  # nobody may read the sum
        return base.masked_fill((squares - n).abs() > _OFF * n, math.nan)
    squared = float(squares)
    if not math.isfinite(squared) or abs(squared - n) <= _OFF * n:
        return base
    return as_pairs(polar_factor(as_complex(base) if base.dim() == 3 else base))


@torch.library.custom_op("orthornn::nearest_base", mutates_args=())
def _nearest_base_op(base: Tensor) -> Tensor:
    """Run `_nearest_base` in graphs, which cannot branch on a value."""
    return _nearest_base(base).clone(memory_format=torch.contiguous_format)


@_nearest_base_op.register_fake
def _nearest_base_fake(base: Tensor) -> Tensor:
    return torch.empty_like(base, memory_format=torch.contiguous_format)
