"""A trained network with its transitions as plain matrices.

W and the gain become one matrix per layer and direction, under Unconstrained() (or under Stiefel(field="complex") if
complex, which stores the matrix itself as the free tensor). A gain under a torch parametrization remains separate.
Outputs equal those of the original network up to rounding. With tanh or relu the same matrices make a torch.nn.RNN.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from ..errors import ArgumentError
from ..parametrizations import Stiefel, Unconstrained
from .transition import Transition

Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def fold(network: Network) -> Network:
    """Return a copy of an OrthogonalRNN, a GORU, or a module that contains some (OrthogonalRNNCell), with folded
    transitions.
    """
    folded = copy.deepcopy(network)
    for module in folded.modules():
        if any(isinstance(child, Transition) for child in module.children()):
            _fold_(module)
    return folded


def _fold_(folded: nn.Module) -> None:
    plain = Stiefel(field="complex") if folded.is_complex else Unconstrained()
    computed = False
    for name, transition in list(folded.transitions()):  # type: ignore[operator]
        suffix = name.removeprefix("transition")
        gain, W = folded._parameters.get(f"gain{suffix}"), transition.matrix()
        if parametrize.is_parametrized(folded, f"gain{suffix}"):
            computed = True  # it stays: removing it would take it from the original, whose class the copy has
        else:
            W = W * (getattr(folded, "gain", 1.0) if gain is None else gain)
        replacement = transition.under(plain)
        replacement.assign_((torch.view_as_real(W) if W.is_complex() else W,))
        setattr(folded, name, replacement)
        if gain is not None:
            folded._parameters[f"gain{suffix}"] = None
    options = vars(folded)
    options["parametrization"] = plain
    if "gain" in options:
        options.update(gain=1.0, learn_gain=computed)


@torch.no_grad()
def as_torch_rnn(network: Any) -> nn.RNN:
    """Return a torch.nn.RNN with the same outputs as `network`, an OrthogonalRNN: bias_hh is zero, weight_hh is gain W.

    Mode, dtype and device are preserved; parameters require gradients. If torch.nn.RNN computes something else, raise
    ArgumentError and list all reasons.
    """
    reasons = {
        f"nonlinearity={network.nonlinearity!r} is neither 'tanh' nor 'relu'": network.nonlinearity in ("tanh", "relu"),
        f"the state is complex under {network.parametrization}": not network.is_complex,
        "linear_transition=True adds the transition outside of the nonlinearity": not network.linear_transition,
        "learn_h0=True trains an initial state": not network.learn_h0,
        f"clip_backward={network.clip_backward} changes gradients": network.clip_backward is None,
    }
    found = [reason for reason, fits in reasons.items() if not fits]
    if found:
        raise ArgumentError(
            f"Expected a network that torch.nn.RNN can represent, but got {'; '.join(found)}. Use fold(), which keeps "
            f"these options."
        )
    first = network._parameter(f"weight_ih_{network.suffixes[0]}")
    folded = nn.RNN(
        network.input_size,
        network.hidden_size,
        network.num_layers,
        nonlinearity=network.nonlinearity,
        bias=network.bias,
        batch_first=network.batch_first,
        dropout=network.dropout if network.num_layers > 1 else 0.0,
        bidirectional=network.bidirectional,
        device="meta",  # where it draws no random numbers
        dtype=first.dtype,
    ).to_empty(device=first.device)
    for layer, suffix in zip(network.layers(), network.suffixes):
        getattr(folded, f"weight_ih_{suffix}").copy_(layer.weight_ih)
        getattr(folded, f"weight_hh_{suffix}").copy_(layer.matrix() * layer.gain)
        if network.bias:
            getattr(folded, f"bias_ih_{suffix}").copy_(getattr(network, f"bias_ih_{suffix}"))
            getattr(folded, f"bias_hh_{suffix}").zero_()
    return folded.train(network.training)
