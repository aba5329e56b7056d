"""What the gated networks have in common: how their input is checked and laid out."""

from __future__ import annotations

from torch import Tensor

from ..errors import ShapeError
from ..kernels.sequence import is_tokens


def check_sequence(name: str, x: Tensor, input_size: int, batch_first: bool) -> tuple[Tensor, int]:
    """(time-major input (T, B, I) or tokens (T, B), B). ShapeError if it is neither, or empty in time."""
    tokens = is_tokens(x)
    if x.dim() != (2 if tokens else 3) or (not tokens and x.shape[-1] != input_size):
        layout = "(B, T" if batch_first else "(T, B"
        raise ShapeError(
            f"{name} takes an input of shape {layout}, {input_size}), or integer classes {layout}); got {tuple(x.shape)}."
        )
    x = x.transpose(0, 1) if batch_first else x
    if x.shape[0] == 0:
        raise ShapeError(f"{name} needs at least one step; got an input of shape {tuple(x.shape)}.")
    return x, x.shape[1]
