"""The state of a network as one tensor, which the frameworks carry from step to step."""

from __future__ import annotations

from torch import Tensor

from ..errors import ArgumentTypeError
from ..modules.network import RecurrentNetwork


def initial_state(network: RecurrentNetwork, instead: str) -> Tensor:
    """Return the state (L, 1, ...) from which one sequence starts, without its graph.

    Args:
        network: A network of orthornn.
        instead: What to do if its state is a pair of tensors, as a sentence.

    Raises:
        ArgumentTypeError: If its state is a pair of tensors.
    """
    state = network.initial_states(1)
    if not isinstance(state, Tensor):
        raise ArgumentTypeError(
            f"Expected a network whose state is one tensor, but got {type(network).__name__}, whose state is a pair. "
            f"{instead}"
        )
    return state.detach()
