"""Torch's tools that compute a tensor of a module from parameters with other names: parametrize, and the older pruning,
weight_norm and spectral_norm.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

OLDER_TOOLS = {  # each sets an attribute before every call of the module; what it is called, and what takes it back
    BasePruningMethod: ("pruning", "prune.remove"),
    SpectralNorm: ("spectral_norm", "remove_spectral_norm"),
    WeightNorm: ("weight_norm", "remove_weight_norm"),
}
_SUFFIXES = ("_orig", "_g", "_v")  # of their parameters


def older_tool(module: nn.Module, name: str) -> Any:
    """Return the hook of an older tool that computes this tensor, or None."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, tuple(OLDER_TOOLS)) and name == getattr(hook, "_tensor_name", getattr(hook, "name", None)):
            return hook
    return None


def parameters_behind(module: nn.Module, name: str) -> tuple[nn.Parameter, ...]:
    """Return the parameters from which a tool computes this tensor, or the tensor itself if it is a parameter."""
    own = module._parameters.get(name)
    if own is not None:
        return (own,)
    if parametrize.is_parametrized(module, name):
        return tuple(module.parametrizations[name].parameters())  # type: ignore[union-attr, index]
    found = (module._parameters.get(f"{name}{suffix}") for suffix in _SUFFIXES)
    return tuple(parameter for parameter in found if parameter is not None)
