"""Reading and setting a parameter, also where one of torch's tools computes it from others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm

from ..errors import ArgumentError
from ..parametrizations.sharded import sharded_like
from ..parametrizations.torch_tools import OLDER_TOOLS, older_tool


def current(module: nn.Module, name: str, called: bool = False) -> Any:
    """Return a parameter, or None; under a parametrization, weight_norm, pruning or DataParallel what has taken its place.

    Pruning, the older weight_norm and the older spectral_norm write an attribute before each call of the module. A
    transition is never called, nor is a network by its `step`, so that they are run here.

    called: The module is a network: it makes the power iteration of spectral_norm once per call, or in `before_step`.
    """
    own = module._parameters
    if name in own:
        return own[name]
    hook = older_tool(module, name)
    if called and isinstance(hook, SpectralNorm):
        return _normalized(hook, module)
    if hook is not None:
        hook(module, ())
    return getattr(module, name)


def check_assignable(module: nn.Module, *names: str) -> None:
    """Raise ArgumentError if a parameter is computed from others by pruning or weight_norm, which have no inverse."""
    for name in names:
        if name not in module._parameters and not parametrize.is_parametrized(module, name):
            raise ArgumentError(
                f"Expected {name} to be a parameter, but got a tensor that pruning or weight_norm computes. Make it "
                f"one first, with torch.nn.utils.prune.remove(module, {name!r}) or remove_weight_norm."
            )


@torch.no_grad()
def assign_(module: nn.Module, name: str, value: Tensor) -> None:
    """Copy a value into a parameter, or through the parametrization of torch that computes it. See `check_assignable`."""
    parameter = module._parameters.get(name)
    if parameter is None:
        now = getattr(module, name)
        setattr(module, name, value.to(now.device, now.dtype))
    else:
        parameter.copy_(sharded_like(value, parameter))


def before_step(module: nn.Module) -> None:
    """Run what torch runs before a call but not before a step: pruning, and the older weight_norm and spectral_norm."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, tuple(OLDER_TOOLS)):
            hook(module, ())


def _normalized(hook: SpectralNorm, module: nn.Module) -> Tensor:
    """Return W / (u' W v) with copies of u and v, which the next call changes in place before a backward pass may."""
    weight, u, v = (getattr(module, hook.name + part) for part in ("_orig", "_u", "_v"))
    return weight / torch.dot(u.clone(), torch.mv(hook.reshape_weight_to_matrix(weight), v.clone()))
