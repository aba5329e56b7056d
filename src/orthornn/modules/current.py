"""A parameter as it is now, also where one of torch's tools computes it from others."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_TOOLS = (BasePruningMethod, SpectralNorm, WeightNorm)


def current(module: nn.Module, name: str) -> Any:
    """Return a parameter, or None; under a parametrization, weight_norm, pruning or DataParallel what has taken its place.

    Pruning and the older weight_norm write an attribute before each call of the module. A transition is never called, nor
    is a network by its `step`, so that they are run here.
    """
    own = module._parameters
    if name in own:
        return own[name]
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, _TOOLS) and name == getattr(hook, "_tensor_name", getattr(hook, "name", None)):
            hook(module, ())
    return getattr(module, name)
