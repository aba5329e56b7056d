"""The optimizer of a model: which parameters move, how, and at which rate."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from ...optim import CayleyRMSprop, CayleySGD, JointOptimizer, param_groups
from ...optim.recipes import joined
from .config import Optimizer, OptimizerConfig
from .rmsprop import RootRMSprop

_NEVER = 2**62  # updates


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return one optimizer, or two, for what moves freely; a Cayley step for what must stay on the Stiefel manifold.

    The groups are those of optim.param_groups; after each step every parametrization applies its corrections.
    """
    groups = param_groups(
        model,
        config.lr,
        config.recurrent_lr,
        manifold_lr=config.manifold_lr,
        spectrum_lr=config.spectrum_lr,
    )
    free = partial(_free, config=config)
    every = _NEVER if config.reorthogonalize_every is None else config.reorthogonalize_every
    if config.manifold == "cayley-rmsprop":
        on_manifold: Any = partial(CayleyRMSprop, alpha=config.decay, reorthogonalize_every=every)
    else:
        on_manifold = partial(CayleySGD, reorthogonalize_every=every)
    return joined(model, groups, free, on_manifold)


def _free(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return the optimizer of these groups: a joint one if the recurrent matrix has a separate optimizer."""
    if config.recurrent in (None, config.name):
        return _one(config.name, groups, config)
    parts = [
        (name, [group for group in groups if (group["name"] == "other") == (name == config.name)])
        for name in (config.name, config.recurrent)
    ]
    made = [_one(name, chosen, config) for name, chosen in parts if chosen]
    return made[0] if len(made) == 1 else JointOptimizer(*made)


def _one(name: Optimizer, groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(groups, fused=True)  # at batch size 1 the unfused one costs as much as the step
    if name == "adamw":
        decays = [
            {**group, "weight_decay": config.decoupled_decay if group["name"] == "other" else 0.0} for group in groups
        ]
        return torch.optim.AdamW(decays, fused=True)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)
    if name == "rmsprop-lasagne":
        return RootRMSprop(groups, lr=config.lr, alpha=config.decay)
    if name == "rmsprop-tensorflow":
        return RootRMSprop(groups, lr=config.lr, alpha=config.decay, eps=1e-10, start=1.0)
    return torch.optim.RMSprop(groups, alpha=config.decay, foreach=True)
