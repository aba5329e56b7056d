"""The optimizer of each paper, in one call; attached to the model.

Rates and decays are those of the text or, where it is silent, of the released code (RMSprop's decay 0.9).
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
    """Return `free(groups)` for the groups that move freely, `on_manifold(groups)` for the others, together and
    attached.
    """
    manifold = [group for group in groups if group["name"] == "manifold"]
    rest = [group for group in groups if group["name"] != "manifold"]
    parts = [make(chosen) for make, chosen in ((free, rest), (on_manifold, manifold)) if chosen]
    optimizer = parts[0] if len(parts) == 1 else JointOptimizer(*parts)
    attach(model, optimizer)
    return optimizer


def mhammedi2017(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    """Return Adam with one rate for all (Mhammedi et al., 2017, section 5).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate; in the paper 1e-2 for adding, 1e-3 and 1e-4 for MNIST, 1e-4 for PTB. Default: 1e-3.
    """
    groups = param_groups(model, lr, lr)
    return joined(model, groups, torch.optim.Adam, CayleyRMSprop)


def vorontsov2017(
    model: nn.Module, lr: float = 1e-4, bases_lr: float = 1e-6, momentum: float = 0.0
) -> torch.optim.Optimizer:
    """Return geodesic SGD on the bases, RMSprop on the rest (Vorontsov et al., 2017, section 3).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate of the rest; in the paper 1e-3 for PTB. Default: 1e-4.
        bases_lr: Of the bases U and V. Default: 1e-6.
        momentum: Of the bases. Default: 0.
    """
    groups = param_groups(model, lr, lr, manifold_lr=bases_lr)
    return joined(
        model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleySGD, lr=bases_lr, momentum=momentum)
    )


def wisdom2016(model: nn.Module, lr: float = 1e-3, unitary_lr: float = 1e-6) -> torch.optim.Optimizer:
    """Return RMSprop, and its product with the Cayley step on the unitary matrix (Wisdom et al., 2016, released code).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate of RMSprop. Default: 1e-3.
        unitary_lr: Of the unitary matrix. Default: 1e-6.
    """
    groups = param_groups(model, lr, lr, manifold_lr=unitary_lr)
    return joined(model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleyRMSprop, alpha=0.9))


def helfrich2018(model: nn.Module, lr: float = 1e-3, recurrent_lr: float = 1e-4) -> torch.optim.Optimizer:
    """Return RMSprop, the skew-symmetric matrix at a tenth of the rate (Helfrich et al., 2018, section 5).

    Args:
        model: The network; the optimizer is attached to it.
        lr: Learning rate. Default: 1e-3.
        recurrent_lr: Of the skew-symmetric matrix. Default: 1e-4.
    """
    groups = param_groups(model, lr, recurrent_lr)
    return joined(model, groups, partial(torch.optim.RMSprop, alpha=0.9), partial(CayleyRMSprop, alpha=0.9))
