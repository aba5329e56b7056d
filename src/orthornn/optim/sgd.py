"""Gradient descent along the Stiefel manifold (Vorontsov et al., 2017, "geoSGD")."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._checks import check_number
from ..errors import ArgumentError
from .stiefel import Parameters, StiefelOptimizer


class CayleySGD(StiefelOptimizer):
    """M <- (I + lr/2 A)^-1 (I - lr/2 A) M with A = G M^H - M G^H; see cayley.py.

    params: matrices on the manifold, as for any optimiser of torch; see StiefelOptimizer.
    lr: the paper has 1e-6 on the bases of its factorised matrix.
    momentum, nesterov: as in torch.optim.SGD, on the gradient before the projection: the buffer B <- momentum B + G
        takes the place of G (with nesterov, G + momentum B), and A is formed from it at the present M.
    reorthogonalize_every: updates between two corrections of drift.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
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
        if check_number("momentum", group["momentum"], 0, 1) == 0 and group["nesterov"]:
            raise ArgumentError("nesterov=True needs a momentum; got momentum=0. Give momentum=0.9, say.")

    def _direction(self, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        momentum = group["momentum"]
        if momentum == 0:
            return grad
        if "momentum_buffer" in state:
            state["momentum_buffer"].mul_(momentum).add_(grad)
        else:
            state["momentum_buffer"] = grad.clone()
        buffer = state["momentum_buffer"]
        return grad + momentum * buffer if group["nesterov"] else buffer
