"""Which backend runs a call."""

from __future__ import annotations

from typing import Literal

import torch

from .._checks import check_choice
from ..errors import BackendError

Backend = Literal["auto", "reference"]
BACKENDS = ("auto", "reference")


def available(device: torch.device) -> dict[str, str | None]:
    """For every backend, None if it can run on this device, else the reason why not."""
    return {"reference": None}


def choose(backend: str, device: torch.device) -> str:
    """The backend that runs a call; BackendError if the one asked for cannot."""
    check_choice("backend", backend, BACKENDS)
    reasons = available(device)
    if backend == "auto":
        return next(name for name, reason in reasons.items() if reason is None)
    if reasons[backend] is not None:
        raise BackendError(f"backend {backend!r} cannot run on {device}: {reasons[backend]}.")
    return backend
