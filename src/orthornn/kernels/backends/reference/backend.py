"""The reference backend: any device, any real dtype. Autograd can differentiate its forward pass directly."""

from __future__ import annotations

import torch
from torch import Tensor

from ...call import Call, Size, States
from ..scan import Scan, ScanBackend, ScanGradients
from . import compact_wy, dense, rotations


class ReferenceBackend(ScanBackend):
    """The loops in this folder."""

    name = "reference"

    def unavailable(self, device: torch.device) -> str | None:
        """Return None: it runs everywhere."""
        return None

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return None: it runs every call."""
        return None

    def scan(self, call: Call, x: Tensor) -> Scan:
        """Run the loop of the call's kind."""
        if call.options.kind == "compact_wy":
            return Scan(*compact_wy.forward(call, x))
        return Scan(*(rotations if call.options.kind == "rotations" else dense).forward(call, x))

    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Run the loop of the call's kind backwards."""
        grad, saved = grad.to(call.h0.dtype), saved.to(call.h0.dtype)
        states = States(None, grad) if last else States(grad, None)
        if call.options.kind == "compact_wy":
            return ScanGradients(*compact_wy.backward(call, states, saved))
        loop = rotations if call.options.kind == "rotations" else dense
        delta, h0, parameter, restart = loop.backward(call, states, saved)
        return ScanGradients(delta, h0, parameter, restart=restart)


REFERENCE = ReferenceBackend()
