"""The folded network as plain tensors."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from .._files import write_together
from .._safetensors import save_tensors
from .graphs import Step
from .network import Network


def to_safetensors(model: Network, folder: str | Path) -> list[Path]:
    """Write folded.safetensors: W, V, b, the first state and the readout as plain tensors.

    Args:
        model: The network.
        folder: Where the file is written; it is made if it is missing.
    """
    return write_together(Path(folder), {"folded.safetensors": save_tensors(weights(model))})


def weights(model: Network) -> dict[str, Tensor]:
    """Return the tensors of a folded network: state, the head's tensors, and per layer W, weight (V), bias, parameter.

    Args:
        model: The network.
    """
    step = Step(model)
    return {name: tensor.contiguous() for name, tensor in step.state_dict().items() if tensor.numel()}
