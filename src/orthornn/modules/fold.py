"""A trained network with its transitions as plain matrices.

W and the gain become one matrix per layer and direction, under Unconstrained() (Stiefel(field="complex") if complex,
where the matrix itself is the free tensor). Outputs are those of the original to rounding.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

from ..parametrizations import Stiefel, Unconstrained
from .transition import Transition

Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def fold(network: Network) -> Network:
    """A copy of an OrthogonalRNN, or of a module that holds some (OrthogonalRNNCell), with folded transitions."""
    folded = copy.deepcopy(network)
    for module in folded.modules():
        if any(isinstance(child, Transition) for child in module.children()):
            _fold_(module)
    return folded


def _fold_(folded: nn.Module) -> None:
    plain = Stiefel(field="complex") if folded.is_complex else Unconstrained()
    for name, transition in list(folded.transitions()):  # type: ignore[operator]
        suffix = name.removeprefix("transition")
        gain = folded._parameters.get(f"gain{suffix}")
        W = transition.matrix() * (getattr(folded, "gain", 1.0) if gain is None else gain)
        first = transition.free()[0]
        replacement = Transition(plain, transition.method.n, device=first.device, dtype=first.dtype)
        replacement.assign_((torch.view_as_real(W) if W.is_complex() else W,))
        setattr(folded, name, replacement)
        if gain is not None:
            folded._parameters[f"gain{suffix}"] = None
    folded.gain, folded.learn_gain, folded.parametrization = 1.0, False, plain  # type: ignore[assignment]
