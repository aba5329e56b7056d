"""Which autograd machinery is at work around a kernel call.

A kernel's own backward serves plain reverse mode. torch.func transforms (grad, vmap, jvp, ...), forward-mode automatic
differentiation and higher derivatives need every operation in between, so they take the reference recurrence, which is
plain torch: slower, and right.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def needs_plain_torch() -> bool:
    """Whether a torch.func transform or forward-mode differentiation is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
