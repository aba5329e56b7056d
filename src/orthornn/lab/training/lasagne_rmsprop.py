"""RMSprop with epsilon inside the root, as Lasagne has it and with it Vorontsov et al., 2017, released code.

v <- alpha v + (1 - alpha) g^2 from v = 0;   x <- x - lr g / sqrt(v + eps).

torch.optim.RMSprop has sqrt(v) + eps: at eps = 1e-8 a gradient of any size moves x by about lr, while here one well below
sqrt(eps) = 1e-3 moves it in proportion to its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class LasagneRMSprop(torch.optim.Optimizer):
    """RMSprop for real parameters with dense gradients.

    Args:
        params: As for any optimizer of torch.
        lr: Learning rate.
        alpha: Of the running mean of g^2. Default: 0.9.
        eps: Added to it before the root. Default: 1e-6.
    """

    def __init__(self, params: Any, lr: float, alpha: float = 0.9, eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Run one step, and return the loss of the closure if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in moved:
                if not self.state[parameter]:
                    self.state[parameter]["square_avg"] = torch.zeros_like(parameter)
            if not moved:
                continue
            gradients = [parameter.grad for parameter in moved]
            means = [self.state[parameter]["square_avg"] for parameter in moved]
            torch._foreach_mul_(means, group["alpha"])
            torch._foreach_addcmul_(means, gradients, gradients, 1 - group["alpha"])
            roots = torch._foreach_add(means, group["eps"])
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(moved, gradients, roots, -group["lr"])
        return loss
