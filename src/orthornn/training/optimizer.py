"""The optimiser of a model: which parameters move, and at which rate."""

from __future__ import annotations

import torch
from torch import nn

from ..modules import Transition
from .config import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam or RMSprop over two groups: the free tensors of the recurrent matrices, and the rest.

    Free tensors that have to stay on a manifold (the factors of SpectralMargin) are left where they are: an
    update that knows nothing of the manifold would take them off it.
    """
    recurrent: list[nn.Parameter] = []
    held: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, Transition):
            for name, free in zip(module.method.names, module.free()):
                (held if name in module.method.manifolds else recurrent).append(free)
    elsewhere = {id(parameter) for parameter in [*recurrent, *held]}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in elsewhere]
    recurrent_lr = config.lr / 10 if config.recurrent_lr is None else config.recurrent_lr
    groups = [{"params": rest, "lr": config.lr}]
    if recurrent:
        groups.append({"params": recurrent, "lr": recurrent_lr})
    if config.name == "adam":
        return torch.optim.Adam(groups, fused=True)  # at batch size 1 the unfused one costs as much as the step
    return torch.optim.RMSprop(groups, alpha=config.decay, foreach=True)
