"""A state_dict of version 0.1.0 in a network that was built with the defaults, which were others then.

W was ``Householder(reflections=min(16, N), base="rotations")`` and phi modReLU. Such a state has reflectors without a decay, and
no parameter of an activation: its meaning can be told, so that the network that reads it becomes what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..activations import Name
from ..parametrizations import Householder
from ..parametrizations.parametrization import Parametrization

FIRST_NONLINEARITY: Name = "modrelu"


def first_parametrization(hidden_size: int) -> Parametrization:
    """Return the default parametrization of that version."""
    return Householder(min(16, hidden_size), base="rotations")


def lacks_decay(state_dict: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a state of default transitions is one of that version."""
    transition = f"{prefix}transition_l0."
    return f"{transition}reflectors" in state_dict and f"{transition}decay" not in state_dict


def lacks_nonlinearity(state_dict: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a state of a network with the default nonlinearity is one of that version; torch.nn.RNN's is not."""
    is_own = f"{prefix}weight_ih_l0" in state_dict and f"{prefix}weight_hh_l0" not in state_dict
    return is_own and f"{prefix}activation_l0" not in state_dict
