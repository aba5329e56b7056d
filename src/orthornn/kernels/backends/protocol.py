"""The interface of a backend."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch

from ..call import Call, Gradients, Needs, Residuals, Size, States


class Backend(Protocol):
    """Runs calls on some device. Found by its name in `BACKENDS`; each derives from this class."""

    name: str

    @abstractmethod
    def unavailable(self, device: torch.device) -> str | None:
        """Return why the backend cannot run on this device, or None if it can."""

    @abstractmethod
    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why it cannot run a call of this dtype and size where it is available, or None if it can."""

    @abstractmethod
    def prepare(self, call: Call) -> Call:
        """Return the call with what all its segments share computed once: contiguous weights, or factors."""

    @abstractmethod
    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        """Return the states and, if ``save``, what the backward pass needs.

        `States.all` is None with ``only_last``; `Residuals.states` then has them, if the backward pass reads them.
        """

    @abstractmethod
    def backward(self, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
        """Return the gradients that are needed, from those that arrive at the states."""

    def describe(self, size: Size) -> str:
        """Return the name and, where there are several, the strategy for a float32 call of this size, for a reader."""
        return self.name
