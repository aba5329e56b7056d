"""RMSprop along the Stiefel manifold: the update of the full-capacity uRNN (Wisdom et al., 2016, section 4 and released
code, "natGradRMS"; Helfrich et al., 2018, eq. 1).

    v <- alpha v + (1 - alpha) G^2,   then the Cayley step of cayley.py with G / (sqrt(v) + eps) instead of G.

G^2 is taken per real number: the real and the imaginary part of a complex entry each have a v, as in the released code.
Scaling the entries of G changes its direction, so a step need not descend, however short it is. If the loss is
stationary on the manifold, G is not zero but normal to it, and the scaled G has a part in the tangent space that still
moves M. So the published update does not come to rest at a minimum. `project=True` scales the tangent part G - M G^H M
instead, which is zero there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._checks import check_below_1, check_flag, check_number
from ..errors import ArgumentError
from ..parametrizations.matrices import as_pairs
from .cayley import cayley_update, tangent_part
from .stiefel import Parameters, StiefelOptimizer, as_matrix, check_buffer, rate


class CayleyRMSprop(StiefelOptimizer):
    """RMSprop's scaling of the gradient, then the Cayley step.

    Args:
        params: Matrices on the Stiefel manifold, real or complex, as for any torch optimizer.
        lr: Learning rate of the Cayley step; the released code of the full-capacity uRNN uses 1e-6. The scaled gradient
            has entries of about 1, so a step turns M by at most about lr N radians. Default: 1e-4.
        alpha: Decay of the running mean of G^2. Default: 0.9.
        eps: Term added to the square root of the mean. Default: 1e-8.
        project: Scale the gradient's tangent part. The published update scales the whole gradient, and does not come to
            rest at a minimum. Default: False.
        reorthogonalize_every: Updates between two corrections of drift. Default: 10.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-4,
        alpha: float = 0.9,
        eps: float = 1e-8,
        project: bool = False,
        reorthogonalize_every: int = 10,
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "project": project,
            "reorthogonalize_every": reorthogonalize_every,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        check_below_1("alpha", group["alpha"], "With 1 the running mean of G^2 would stay 0.")
        check_flag("project", group["project"])
        if check_number("eps", group["eps"], 0) == 0:
            raise ArgumentError("Expected eps to be positive, but got 0. A gradient of 0 would be divided by 0.")

    def _moved(self, M: Tensor, G: Tensor, state: dict[str, Any], group: dict[str, Any], parameter: Tensor) -> Tensor:
        real = as_pairs(tangent_part(M, G) if group["project"] else G)
        if "square_avg" not in state:
            state["square_avg"] = torch.zeros_like(as_pairs(parameter))
        rounded = real.to(state["square_avg"].dtype)
        v = (state["square_avg"] * group["alpha"]).addcmul_(rounded, rounded, value=1 - group["alpha"])
        state["square_avg"] = check_buffer(v, G)
        scaled = real / (v.double().sqrt() + group["eps"])
        return cayley_update(M, as_matrix(scaled), rate(group["lr"]))
