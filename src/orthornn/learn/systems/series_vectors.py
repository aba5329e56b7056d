"""A trained vector for each series of many, which the network reads with every step.

The last input of a step is the number of its series, k in 0..S-1; the core reads the other inputs and e_k. For k = S, a
series that training did not have, it reads the mean of all e_k.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

LARGEST_VECTOR = 4096


class SeriesVectors(nn.Module):
    """The vectors e_k. count: S, how many. size: E, how many numbers each has; at first as wide as standardized inputs."""

    def __init__(self, count: int, size: int, **where: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, size, **where))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the inputs of the core (..., I - 1 + E) from (..., I)."""
        vectors = torch.cat([self.weight, self.weight.mean(0, keepdim=True)])
        return torch.cat([rows[..., :-1], vectors[rows[..., -1].long()]], -1)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.weight.shape[0]} series, {self.weight.shape[1]}"
