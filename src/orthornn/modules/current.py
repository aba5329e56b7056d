"""A parameter as it is now, also where one of torch's tools computes it from others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_TOOLS = (BasePruningMethod, SpectralNorm, WeightNorm)


def current(module: nn.Module, name: str, called: bool = False) -> Any:
    """Return a parameter, or None; under a parametrization, weight_norm, pruning or DataParallel what has taken its place.

    Pruning, the older weight_norm and the older spectral_norm write an attribute before each call of the module. A
    transition is never called, nor is a network by its `step`, so that they are run here.

    called: The module is a network: it makes the power iteration of spectral_norm once per call, or in `before_step`.
    """
    own = module._parameters
    if name in own:
        return own[name]
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, _TOOLS) and name == getattr(hook, "_tensor_name", getattr(hook, "name", None)):
            if called and isinstance(hook, SpectralNorm):
                return _normalized(hook, module)
            hook(module, ())
    return getattr(module, name)


def before_step(module: nn.Module) -> None:
    """Run what torch runs before a call but not before a step: pruning, and the older weight_norm and spectral_norm."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, _TOOLS):
            hook(module, ())


def _normalized(hook: SpectralNorm, module: nn.Module) -> Tensor:
    """Return W / (u' W v) with copies of u and v, which the next call changes in place before a backward pass may."""
    weight, u, v = (getattr(module, hook.name + part) for part in ("_orig", "_u", "_v"))
    return weight / torch.dot(u.clone(), torch.mv(hook.reshape_weight_to_matrix(weight), v.clone()))
