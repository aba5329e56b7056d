"""Read and set a parameter, even if one of torch's tools computes it from others."""

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
    """Return a parameter, or None. Under a parametrization, weight_norm, pruning or DataParallel, return its
    replacement.

    Pruning, the older weight_norm and the older spectral_norm write an attribute before each call of the module. Since
    a transition is never called, and a network is not called by `step`, their hooks are run here.

    called: Whether the module is a network: spectral_norm then runs its power iteration once per call, or in
        `before_step`.
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
    """Raise ArgumentError if pruning or weight_norm, which have no inverse, computes a parameter from others."""
    for name in names:
        if name not in module._parameters and not parametrize.is_parametrized(module, name):
            raise ArgumentError(
                f"Expected {name} to be a parameter, but got a tensor that pruning or weight_norm computes. Make it "
                f"permanent first, with torch.nn.utils.prune.remove(module, {name!r}) or remove_weight_norm."
            )


@torch.no_grad()
def assign_(module: nn.Module, name: str, value: Tensor) -> None:
    """Copy a value into a parameter, or pass it to the torch parametrization that computes it. See
    `check_assignable`.
    """
    parameter = module._parameters.get(name)
    if parameter is None:
        now = getattr(module, name)
        setattr(module, name, value.to(now.device, now.dtype))
    else:
        parameter.copy_(sharded_like(value, parameter))


def before_step(module: nn.Module) -> None:
    """Run the hooks that torch runs before a call but not before a step: pruning, older weight_norm and
    spectral_norm.
    """
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, tuple(OLDER_TOOLS)):
            hook(module, ())


def _normalized(hook: SpectralNorm, module: nn.Module) -> Tensor:
    """Return W / (u' W v) with copies of u and v, since the next call may change them in place before the backward
    pass.
    """
    weight, u, v = (getattr(module, hook.name + part) for part in ("_orig", "_u", "_v"))
    return weight / torch.dot(u.clone(), torch.mv(hook.reshape_weight_to_matrix(weight), v.clone()))
