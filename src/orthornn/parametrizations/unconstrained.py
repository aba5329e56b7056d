"""Any matrix: the baseline, and the weight of folded networks.

Initializations: orthogonal (Henaff et al., 2016), identity (Le et al., 2015, IRNN), Glorot normal (Glorot & Bengio,
2010: variance 1/N for a square matrix), and torch.nn.RNN's uniform U(-1/sqrt(N), 1/sqrt(N)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .._checks import check_choice
from .matrices import check_square, haar
from .parametrization import BoundParametrization, Parametrization

Init = Literal["orthogonal", "identity", "glorot", "uniform"]


def draw(init: str, n: int, generator: torch.Generator | None) -> Tensor:
    """Return a float64 matrix (n, n) by one of the initializations."""
    if init == "orthogonal":
        return haar(n, False, generator)
    if init == "identity":
        return torch.eye(n, dtype=torch.float64, device="cpu")
    if init == "glorot":
        return torch.randn(n, n, dtype=torch.float64, device="cpu", generator=generator) / math.sqrt(n)
    uniform = torch.rand(n, n, dtype=torch.float64, device="cpu", generator=generator)
    return (2 * uniform - 1) / math.sqrt(n)


@dataclass(frozen=True, repr=False)
class Unconstrained(Parametrization):
    """W is its own free tensor `weight`, (N, N), and need not stay orthogonal.

    Args:
        init: Initial W: ``"orthogonal"``, from the Haar measure; ``"identity"``; ``"glorot"``, Glorot's normal
            distribution; or ``"uniform"``, U(-1/sqrt(N), 1/sqrt(N)) as in torch.nn.RNN. Default: ``"orthogonal"``.
    """

    init: Init = "orthogonal"

    def __post_init__(self) -> None:
        check_choice("init", self.init, get_args(Init))

    def bind(self, n: int) -> BoundUnconstrained:  # noqa: D102
        return BoundUnconstrained(n, self.init)


class BoundUnconstrained(BoundParametrization):
    """forward: The matrix itself."""

    names: tuple[str, ...] = ("weight",)
    group = "all"

    def __init__(self, n: int, init: str) -> None:
        super().__init__(n)
        self.init = init

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return ((self.n, self.n),)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        return (draw(self.init, self.n, generator),)

    def forward(self, weight: Tensor) -> Tensor:  # type: ignore[override]  # noqa: D102
        self.check_free((weight,))
        return weight

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        return (check_square(W, self.n, "real").to(W.dtype, copy=True),)
