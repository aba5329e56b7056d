"""The optimizer of each paper, in one call, attached to the model.

Rates and decays follow the text or, if it does not give them, the released code (RMSprop's decay 0.9).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from .attachment import attach
from .groups import param_groups
from .joint import JointOptimizer
from .rmsprop import CayleyRMSprop
from .sgd import CayleySGD


def joined(model: nn.Module, groups: list[dict[str, Any]], free: Any, on_manifold: Any) -> torch.optim.Optimizer:
    """Return `free(groups)` for the groups that move freely and `on_manifold(groups)` for the others, joined and
    attached.
    """
    manifold = [group for group in groups if group["name"] == "manifold"]
    rest = [group for group in groups if group["name"] != "manifold"]
    parts = [make(chosen) for make, chosen in ((free, rest), (on_manifold, manifold)) if chosen]
    optimizer = parts[0] if len(parts) == 1 else JointOptimizer(*parts)
    attach(model, optimizer)
    return optimizer


def mhammedi2017(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    """Return Adam with one rate for all parameters (Mhammedi et al., 2017, section 5).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate. The paper uses 1e-2 for adding, 1e-3 and 1e-4 for MNIST, 1e-4 for PTB. Default: 1e-3.
    """
    groups = param_groups(model, lr, lr)
    return joined(model, groups, torch.optim.Adam, CayleyRMSprop)


def vorontsov2017(
    model: nn.Module, lr: float = 1e-4, bases_lr: float = 1e-6, momentum: float = 0.0
) -> torch.optim.Optimizer:
    """Return geodesic SGD for the bases and RMSprop for the rest (Vorontsov et al., 2017, section 3).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate of the rest. The paper uses 1e-3 for PTB. Default: 1e-4.
        bases_lr: Learning rate of the bases U and V. Default: 1e-6.
        momentum: Momentum of the bases. Default: 0.
    """
    groups = param_groups(model, lr, lr, manifold_lr=bases_lr)
    return joined(
        model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleySGD, lr=bases_lr, momentum=momentum)
    )


def wisdom2016(model: nn.Module, lr: float = 1e-3, unitary_lr: float = 1e-6) -> torch.optim.Optimizer:
    """Return RMSprop, with a Cayley step for the unitary matrix (Wisdom et al., 2016, released code).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate of RMSprop. Default: 1e-3.
        unitary_lr: Learning rate of the unitary matrix. Default: 1e-6.
    """
    groups = param_groups(model, lr, lr, manifold_lr=unitary_lr)
    return joined(model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleyRMSprop, alpha=0.9))


def helfrich2018(model: nn.Module, lr: float = 1e-3, recurrent_lr: float = 1e-4) -> torch.optim.Optimizer:
    """Return RMSprop, with a tenth of the rate for the skew-symmetric matrix (Helfrich et al., 2018, section 5).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate. Default: 1e-3.
        recurrent_lr: Learning rate of the skew-symmetric matrix. Default: 1e-4.
    """
    groups = param_groups(model, lr, recurrent_lr)
    return joined(model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleyRMSprop, alpha=0.9))
