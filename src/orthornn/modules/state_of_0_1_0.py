"""Load a state_dict of version 0.1.0 into a network that was built with today's defaults.

In that version W was ``Householder(reflections=min(16, N), base="rotations")`` and phi was modReLU; in blocks W was
``Rotations()``. Such a state has no decay and no parameter of an activation, and its metadata lacks the class version
that later states have. These signs identify it, and the network that loads it switches to the old defaults. Only a whole
state has them: part of a later one, loaded with ``strict=False``, may lack the same entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..activations import Name
from ..compact_wy import packed_size
from ..parametrizations import Householder
from ..parametrizations.parametrization import Parametrization

STATE_VERSION = 2
"""The `_version` of classes whose defaults have changed, which torch stores in the metadata of a state_dict."""
FIRST_NONLINEARITY: Name = "modrelu"
_REFLECTIONS = 16
_LATER = "decay"  # the free tensor that default transitions had not in that version


def may_be_first(local_metadata: Mapping[str, Any]) -> bool:
    """Return whether a state may come from that version: its version is missing, as in files without metadata, or 1."""
    return (local_metadata.get("version") or 1) < STATE_VERSION


def first_parametrization(hidden_size: int) -> Parametrization:
    """Return the default parametrization of that version."""
    return Householder(min(_REFLECTIONS, hidden_size), base="rotations")


def is_whole(state_dict: Mapping[str, Any], prefix: str, suffixes: Iterable[str], names: Iterable[str]) -> bool:
    """Return whether a state has the input weights and the free tensors of W, except the decay, of every layer and
    direction.

    Args:
        state_dict: The state.
        prefix: Prefix of the network's keys.
        suffixes: Suffixes of the network's layers and directions.
        names: Names of the free tensors.
    """
    own = [name for name in names if name != _LATER]
    keys = (
        f"{prefix}{key}" for s in suffixes for key in (f"weight_ih_{s}", *(f"transition_{s}.{name}" for name in own))
    )
    return all(key in state_dict for key in keys)


def has_first_transition(state_dict: Mapping[str, Any], prefix: str, hidden_size: int) -> bool:
    """Return whether a whole state of default transitions comes from that version: without decay, with its number of
    reflections.
    """
    transition = f"{prefix}transition_l0."
    reflectors = state_dict.get(f"{transition}reflectors")
    if reflectors is None or f"{transition}{_LATER}" in state_dict:
        return False
    return tuple(reflectors.shape) == (packed_size(hidden_size, min(_REFLECTIONS, hidden_size)),)


def lacks_decay(state_dict: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a whole state of default rotations in blocks comes from that version."""
    return f"{prefix}transition_l0.angles" in state_dict and f"{prefix}transition_l0.{_LATER}" not in state_dict


def lacks_nonlinearity(state_dict: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a whole state with the default nonlinearity comes from that version; False for a state of
    torch.nn.RNN.
    """
    later = {f"{prefix}activation_l0", f"{prefix}transition_l0.{_LATER}", f"{prefix}weight_hh_l0"}
    return not later & state_dict.keys()
