"""RMSprop with epsilon inside the root, as Lasagne and TensorFlow have it, with which released code of the papers
trains.

v <- alpha v + (1 - alpha) g^2;   x <- x - lr g / sqrt(v + eps).

                          first v    eps      alpha
Lasagne                   0          1e-6     0.9      Vorontsov et al., 2017
TensorFlow, version 1     1          1e-10    0.9      Helfrich et al., 2018
torch.optim.RMSprop       0          1e-8     0.99     has sqrt(v) + eps

Outside the root, at eps = 1e-8, a gradient of any size moves x by about lr, while inside of it one well below
sqrt(eps), with Lasagne 1e-3, moves it in proportion to its size. With a first v of 1 the first updates are smaller: v
falls to g^2 over some tens of updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class RootRMSprop(torch.optim.Optimizer):
    """RMSprop for real parameters with dense gradients.

    Args:
        params: Parameters, as for any torch optimizer.
        lr: Learning rate.
        alpha: Decay of the running mean of g^2. Default: 0.9.
        eps: Term added to the mean before the square root. Default: 1e-6.
        start: The mean before the first step. Default: 0.
    """

    def __init__(self, params: Any, lr: float, alpha: float = 0.9, eps: float = 1e-6, start: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "start": start})

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
                    self.state[parameter]["square_avg"] = torch.full_like(parameter, self.defaults["start"])
            if not moved:
                continue
            gradients = [parameter.grad for parameter in moved]
            means = [self.state[parameter]["square_avg"] for parameter in moved]
            torch._foreach_mul_(means, group["alpha"])
            torch._foreach_addcmul_(means, gradients, gradients, 1 - group["alpha"])
            roots = torch._foreach_add(means, self.defaults["eps"])  # not that of a checkpoint
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(moved, gradients, roots, -group["lr"])
        return loss
