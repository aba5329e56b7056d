"""The description of a ragged batch for GPU kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ....layout import SequenceLayout


def device_layout(layout: SequenceLayout, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Return, on the device, the first row of each step (int64) and the length of each sequence (int32); None for both if
    B is constant.
    """
    if not layout.is_ragged:
        return None, None
    sizes = torch.tensor(layout.sizes, dtype=torch.int64, device="cpu")
    return (sizes.cumsum(0) - sizes).to(device), layout.lengths(device).to(torch.int32)
