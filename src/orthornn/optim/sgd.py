"""Gradient descent along the Stiefel manifold (Vorontsov et al., 2017, "geoSGD")."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._checks import check_flag, check_number
from ..errors import ArgumentError
from ..parametrizations.matrices import widen
from .cayley import cayley_update, generator, tangent_part
from .stiefel import Parameters, StiefelOptimizer, as_matrix, check_buffer, rate, stored


class CayleySGD(StiefelOptimizer):
    """M <- (I + lr/2 A)^-1 (I - lr/2 A) M with A = G M^H - M G^H (Wen & Yin, 2013; Vorontsov et al., 2017, eq. 9).

    Args:
        params: Matrices on the Stiefel manifold, real or complex, as for any torch optimizer.
        lr: Learning rate of the Cayley step; the paper uses 1e-6 for the bases of its factorized matrix. Default: 1e-3.
        momentum: Momentum factor as in torch.optim.SGD, applied in the tangent space: V <- momentum V + A M replaces A
            M, and the unitary factor of the step carries it to the next M. (A buffer of the plain gradient G, as for a
            vector space, would keep parts that were normal to the manifold at earlier points and no longer are; on the
            Procrustes problem it does not converge.) Default: 0.
        nesterov: Use A M + momentum V instead of V. Requires a momentum. Default: False.
        reorthogonalize_every: Updates between two corrections of drift. Default: 10.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        reorthogonalize_every: int = 10,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "reorthogonalize_every": reorthogonalize_every,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        nesterov = check_flag("nesterov", group["nesterov"])
        if check_number("momentum", group["momentum"], 0, 1) == 0 and nesterov:
            raise ArgumentError(
                "Expected a momentum with nesterov=True, but got momentum=0. Pass momentum=0.9, for example."
            )

    def _moved(self, M: Tensor, G: Tensor, state: dict[str, Any], group: dict[str, Any], parameter: Tensor) -> Tensor:
        momentum, p = group["momentum"], M.shape[1]
        if momentum == 0:
            return cayley_update(M, G, rate(group["lr"]))
        R = V = tangent_part(M, G)
        if "momentum_buffer" in state:
            V = momentum * widen(as_matrix(state["momentum_buffer"])) + R
        direction = R + momentum * V if group["nesterov"] else V
        both = cayley_update(M, generator(M, direction), rate(group["lr"]), carried=V)
        state["momentum_buffer"] = check_buffer(stored(both[:, p:], parameter).contiguous(), G)
        return both[:, :p]
