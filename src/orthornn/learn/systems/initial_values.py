"""Initial values of the papers, and the nonlinearity with its slope.

arjovsky_: input weights and h_0 uniform as in Arjovsky et al., 2016: +-sqrt(6 / (fan in + fan out)) and +-sqrt(3 / 2N);
biases 0.
small_: input weights U(-0.01, 0.01), biases 0; a trained h_0 U(-0.01, 0.01) too, because at h = 0 and input 0 modReLU
passes no gradient and a zero h_0 would stay zero.
lasagne_: the same with a trained h_0 from 0: the defaults of Lasagne's recurrent layer, in which Vorontsov et al., 2017,
wrote theirs.
torch_: the biases of torch.nn.RNN, U(-1 / sqrt(N), 1 / sqrt(N)).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from ...activations import Activation
from ...activations import get as activation
from ...errors import ArgumentError
from ...modules import OrthogonalRNN

_SMALL = 0.01


def arjovsky_(core: OrthogonalRNN) -> OrthogonalRNN:
    """Fill the input weights, the bias and h_0 as Arjovsky et al. do; return the core."""
    real_rows = core.hidden_size * (2 if core.is_complex else 1)
    for suffix in core.suffixes:
        weight = core.get_parameter(f"weight_ih_{suffix}")
        bound = math.sqrt(6 / (weight.shape[1] + real_rows))
        nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(core.get_parameter(f"bias_ih_{suffix}"))
    bound = math.sqrt(3 / (2 * core.hidden_size))
    nn.init.uniform_(core.h0, -bound, bound)
    return core


def small_(core: OrthogonalRNN) -> OrthogonalRNN:
    """Fill the input weights, and h_0 if it is trained, with small numbers; return the core.

    Layers above the first, whose inputs are the small states below, keep OrthogonalRNN's own initial values.
    """
    for suffix in core.suffixes:
        if suffix.startswith("l0"):
            nn.init.uniform_(core.get_parameter(f"weight_ih_{suffix}"), -_SMALL, _SMALL)
        nn.init.zeros_(core.get_parameter(f"bias_ih_{suffix}"))
    if core.learn_h0:
        nn.init.uniform_(core.h0, -_SMALL, _SMALL)
    return core


def lasagne_(core: OrthogonalRNN) -> OrthogonalRNN:
    """Fill the input weights and biases as `small_` does, and h_0 with zeros if it is trained; return the core."""
    small_(core)
    if core.learn_h0:
        nn.init.zeros_(core.h0)
    return core


def torch_(core: OrthogonalRNN) -> OrthogonalRNN:
    """Fill biases that are added as torch.nn.RNN does; the other values of OrthogonalRNN are torch's. Return the core."""
    if core.activation.parameter_is_bias:
        return core
    bound = 1 / math.sqrt(core.hidden_size)
    for suffix in core.suffixes:
        nn.init.uniform_(core.get_parameter(f"bias_ih_{suffix}"), -bound, bound)
    return core


def one_bias_(core: nn.RNNBase) -> nn.RNNBase:
    """Hold the second of torch's two bias vectors at 0: only their sum matters, and the papers' counts have one."""
    for name, second in core.named_parameters():
        if name.startswith("bias_hh"):
            with torch.no_grad():
                second.zero_()
            second.requires_grad_(False)
    return core


def start_slope_(core: OrthogonalRNN, slope: float | None) -> OrthogonalRNN:
    """Set the slope from which a prelu starts in every layer and direction, if one is given; return the core."""
    if core.nonlinearity == "prelu" and slope is not None:
        for suffix in core.suffixes:
            nn.init.constant_(core.get_parameter(f"activation_{suffix}"), slope)
    return core


def nonlinearity(name: str, slope: float | None) -> Activation:
    """Return the activation with its fixed slope; a prelu's slope is only its initial value, for `start_slope_`."""
    if slope is not None and name not in ("leaky_relu", "prelu"):
        raise ArgumentError(f"Expected slope={slope} only with leaky_relu or prelu, but got nonlinearity={name!r}.")
    return activation(name, slope if name == "leaky_relu" else None)
