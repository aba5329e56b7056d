"""The networks that can be exported: a recurrent core and a head."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from ..errors import ArgumentError


class Network(Protocol):
    """A recurrent core and a head, such as `orthornn.load(RUN).model`.

    core: :class:`OrthogonalRNN`, or torch's RNN, LSTM or GRU; time-major.
    head: Maps the core's output (N wide; 2N for a complex state, Re and Im of each unit side by side) to the
        prediction: torch.nn.Linear, or torch.nn.Sequential that begins with one.
    output: "all" to read out every step, "last" for the last step only.
    token_classes: I if the input is int64 classes (T, B); None if it is real (T, B, I).
    """

    @property
    def core(self) -> Any:
        """Return the recurrent core."""

    @property
    def head(self) -> nn.Module:
        """Return the head."""

    @property
    def output(self) -> str:
        """Return "all" or "last"."""

    @property
    def token_classes(self) -> int | None:
        """Return the number of classes of the input, or None for real inputs."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the prediction for inputs (T, B, I) or (T, B)."""

    def eval(self) -> Any:
        """Switch to evaluation mode."""

    def to(self, device: Any) -> Any:
        """Move to a device; called only if the network is not on the CPU."""


def check_steps_are_equal(model: Any) -> None:
    """Raise ArgumentError if a network reads the time between its steps, since its W differs between steps."""
    if getattr(model, "elapsed", False):
        raise ArgumentError(
            "Expected a network with equal time steps, but got a network that reads the time between them, which has no "
            "exported form: each step has a different matrix. Train it without irregular, --irregular."
        )
