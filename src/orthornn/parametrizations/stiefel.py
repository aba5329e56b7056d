"""W itself is the free tensor, on the Stiefel manifold {W : W^H W = I} (Wisdom et al., 2016; Vorontsov et al., 2017).

An optimizer on the manifold keeps W there; other optimizers do not, and `orthogonality_error(W)` returns the distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._checks import check_choice
from .matrices import as_complex, as_pairs, check_on_group, haar
from .parametrization import FIELDS, BoundParametrization, Field, Parametrization


@dataclass(frozen=True, repr=False)
class Stiefel(Parametrization):
    """W is its own free tensor `weight`, (N, N) or (N, N, 2), drawn from the Haar measure.

    Args:
        field: ``"real"``, or ``"complex"`` for a unitary W. Default: ``"real"``.
    """

    field: Field = "real"

    def __post_init__(self) -> None:
        check_choice("field", self.field, FIELDS)

    def bind(self, n: int) -> BoundStiefel:  # noqa: D102
        return BoundStiefel(n, self.field)


class BoundStiefel(BoundParametrization):
    """forward: The matrix itself."""

    names: tuple[str, ...] = ("weight",)

    def __init__(self, n: int, field: Field) -> None:
        super().__init__(n)
        self.field, self.group = field, "O" if field == "real" else "U"
        self.manifolds = {"weight": "stiefel"}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return ((self.n, self.n, 2) if self.field == "complex" else (self.n, self.n),)

    def count(self) -> int:
        """Return the dimension of the group, n(n-1)/2 or n^2, as the papers count."""
        return self.n * (self.n - 1) // 2 if self.field == "real" else self.n**2

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return a matrix from the Haar measure on O(N) or U(N)."""
        return (as_pairs(haar(self.n, self.field == "complex", generator)),)

    def forward(self, weight: Tensor) -> Tensor:  # type: ignore[override]  # noqa: D102
        self.check_free((weight,))
        return as_complex(weight) if self.field == "complex" else weight

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        return (as_pairs(check_on_group(W, self.n, self.field)),)
