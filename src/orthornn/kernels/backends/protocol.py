"""The interface of a backend."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch

from ..call import Call, Gradients, Needs, Residuals, Size, States


class Backend(Protocol):
    """Runs calls on some device. `BACKENDS` lists backends by name; each derives from this class."""

    name: str

    @abstractmethod
    def unavailable(self, device: torch.device) -> str | None:
        """Return why the backend cannot run on this device, or None if it can."""

    @abstractmethod
    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why an available backend cannot run a call of this dtype and size, or None if it can."""

    @abstractmethod
    def prepare(self, call: Call) -> Call:
        """Return the call with values shared by all its segments precomputed: contiguous weights, or factors."""

    @abstractmethod
    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        """Return the states and, if ``save``, the residuals for the backward pass.

        `States.all` is None with ``only_last``; `Residuals.states` then contains them, if the backward pass reads them.
        """

    @abstractmethod
    def backward(self, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
        """Return the required gradients, from the gradients of the states."""

    def describe(self, size: Size) -> str:
        """Return a description: the name and, if there are several strategies, the one for a float32 call of this
        size.
        """
        return self.name
