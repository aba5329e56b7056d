"""The optimiser of a model: which parameters move, how, and at which rate."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from ..optim import CayleyRMSprop, CayleySGD, param_groups
from ..optim.recipes import joined
from .config import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam or RMSprop for what moves freely; a Cayley step for what must stay on the Stiefel manifold.

    The groups are those of optim.param_groups; after each step every parametrization gets what it asks for.
    """
    groups = param_groups(
        model,
        config.lr,
        config.recurrent_lr,
        manifold_lr=config.manifold_lr,
        spectrum_lr=config.spectrum_lr,
    )
    free: Any
    if config.name == "adam":
        free = partial(torch.optim.Adam, fused=True)  # at batch size 1 the unfused one costs as much as the step
    else:
        free = partial(torch.optim.RMSprop, alpha=config.decay, foreach=True)
    if config.manifold == "cayley-rmsprop":
        return joined(model, groups, free, partial(CayleyRMSprop, alpha=config.decay))
    return joined(model, groups, free, CayleySGD)
