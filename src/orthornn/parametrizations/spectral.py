"""Factorized matrix with a spectral margin (Vorontsov et al., 2017, eqs. 8 and 10).

W = U S V^T,   s_i = 2m (sigma(p_i) - 1/2) + 1  in (1 - m, 1 + m),   U and V orthogonal.

With m = 0 there is no spectrum parameter (s = 1); margin=None leaves s free. With m > 1, or without a margin, an s_i
may be negative: the singular value is |s_i|, or with nonnegative=True max(s_i, 0), as in the released code. U and V are
on the Stiefel manifold. They stay orthogonal only under an optimizer that keeps them there (`manifolds` names them), or
if nothing trains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .._checks import check_choice, check_flag, check_number
from ..errors import NotOnGroupError
from .matrices import check_square, haar, rounding
from .parametrization import BoundParametrization, Parametrization
from .unconstrained import draw

Init = Literal["orthogonal", "glorot", "identity"]
_AT_THE_EDGE = 5e-13  # the share of the margin's range that is as close to its ends as a parameter goes


@dataclass(frozen=True, repr=False)
class SpectralMargin(Parametrization):
    """W = U S V^T with singular values within a margin of 1.

    Free tensors: `u`, `v` (N, N), and `spectrum` (N,), which is p, or s itself if margin is None; absent if margin is
    0.

    Args:
        margin: Margin m: singular values are in (1 - m, 1 + m). 0 for an orthogonal W, None for a free spectrum.
            Default: 0.1.
        init: Matrix whose factors are the initial values. ``"orthogonal"``: U and V from the Haar measure, s = 1;
            ``"identity"``: U = V = I, s = 1; ``"glorot"``: the singular value decomposition of a Glorot normal matrix,
            with singular values clipped to within .999 m of 1 if there is a margin. Default: ``"orthogonal"``.
        nonnegative: Use max(s_i, 0) instead of s_i, as the released code does: an s_i that the margin allows to be
            negative then has no gradient. Default: False.
    """

    margin: float | None = 0.1
    init: Init = "orthogonal"
    nonnegative: bool = False

    def __post_init__(self) -> None:
        if self.margin is not None:
            margin = check_number("margin", self.margin, low=0.0, advice="Pass None for a free spectrum.")
            object.__setattr__(self, "margin", margin)
        check_choice("init", self.init, get_args(Init))
        check_flag("nonnegative", self.nonnegative)

    def bind(self, n: int) -> BoundSpectralMargin:  # noqa: D102
        return BoundSpectralMargin(n, self)


class BoundSpectralMargin(BoundParametrization):
    """forward: U S V^T."""

    def __init__(self, n: int, description: SpectralMargin) -> None:
        super().__init__(n)
        self.margin, self.init = description.margin, description.init
        self.nonnegative = description.nonnegative
        self.names = ("u", "v") if self.margin == 0 else ("u", "v", "spectrum")
        self.manifolds = {"u": "stiefel", "v": "stiefel"}
        self.group = "O" if self.margin == 0 else "all" if self.margin is None else "margin"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return tuple((self.n,) if name == "spectrum" else (self.n, self.n) for name in self.names)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        n = self.n
        s = torch.ones(n, dtype=torch.float64, device="cpu")
        if self.init == "orthogonal":
            U, V = haar(n, False, generator), haar(n, False, generator)
        elif self.init == "identity":
            U, V = (torch.eye(n, dtype=torch.float64, device="cpu") for _ in range(2))
        else:
            U, s, Vh = torch.linalg.svd(draw("glorot", n, generator))
            V = Vh.mT.contiguous()
        if self.margin is not None:
            s = s.clamp(1 - 0.999 * self.margin, 1 + 0.999 * self.margin)
        return (U, V) if self.margin == 0 else (U, V, self._parameter(s))

    def singular_values(self, *free: Tensor) -> Tensor:
        """Return s (N,) in float64, signed unless `nonnegative` (see above)."""
        if self.margin == 0:
            return torch.ones(self.n, dtype=torch.float64, device=free[0].device)
        p = free[2].double()
        s = p if self.margin is None else 2 * self.margin * (torch.sigmoid(p) - 0.5) + 1
        return s.clamp(min=0) if self.nonnegative else s

    def _parameter(self, s: Tensor) -> Tensor:
        """Return the inverse of `singular_values`."""
        if not self.margin:
            return s
        share = (s - 1) / (2 * self.margin) + 0.5  # in (0, 1) but for the rounding of s, which a tiny margin magnifies
        return torch.logit(share.clamp(_AT_THE_EDGE, 1 - _AT_THE_EDGE))

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        self.check_free(free)
        U, V = free[0].double(), free[1].double()
        return ((U * self.singular_values(*free)) @ V.mT).to(free[0].dtype)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        U, s, Vh = torch.linalg.svd(check_square(W, self.n, "real"))
        V = Vh.mT.contiguous()
        if self.margin is not None:
            outside = float((s - 1).abs().max())
            if outside >= self.margin and outside > rounding(W):
                raise NotOnGroupError(
                    f"Expected singular values strictly within {self.margin:g} of 1, the margin, but got values between "
                    f"{float(s.min()):.6g} and {float(s.max()):.6g}. "
                    f"Use a larger margin, or margin=None."
                )
        return (U, V) if self.margin == 0 else (U, V, self._parameter(s))
