"""The input of a readout besides the last output: a pool of the outputs of all steps, and the lags of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError

Array = np.ndarray
PARTS = {"last": 1, "mean": 1, "both": 2, "summary": 3}
"""Number of times that each output appears in the readout's input, by pool."""


@dataclass(frozen=True)
class Reading:
    """A pool and the matrix of lags.

    Attributes:
        pool: "last"; "mean" of the outputs of all steps; "both"; or "summary", which adds the maximum.
        size: F, the size of an output.
        A: (O, k (I - J) + J), a matrix added to the readout that reads the inputs of the last k steps; the last J inputs
            count only at the newest step. None without lags.
        own: I - J.
        lags: k, or 0.
    """

    pool: str = "last"
    size: int = 0
    A: Array | None = None
    own: int = 0
    lags: int = 0

    @property
    def counts(self) -> bool:
        """Whether it must know whether a step is the first."""
        return self.pool != "last" or self.A is not None

    @property
    def has_mean(self) -> bool:
        """Whether the mean is read."""
        return self.pool != "last"

    @property
    def has_maximum(self) -> bool:
        """Whether the maximum is read."""
        return self.pool == "summary"

    def first(self) -> list[Array]:
        """Return the memory before the first step: the number of steps, the sum, the maximum, the last inputs."""
        if not self.counts:
            return []
        recent = 0 if self.A is None else self.A.shape[1]
        return [np.zeros(()), np.zeros(self.size), np.zeros(self.size), np.zeros(recent)]

    def after(self, output: Array, x: Array, seen: list[Array]) -> tuple[Array, list[Array]]:
        """Return the input of the readout after a step, (..., F), (..., 2F) or (..., 3F), and the updated memory.

        Args:
            output: Output of the step, (..., F).
            x: Input of the step as the network reads it, (..., I).
            seen: Memory before the step.
        """
        if not self.counts:
            return output, []
        count, total, largest, recent = seen
        first, count, total = not count, count + 1, total + output
        largest = output + 0 * largest if first else np.maximum(largest, output)
        recent = self.newer(x, recent, first)
        parts = {
            "last": (output,),
            "mean": (total / count,),
            "both": (output, total / count),
            "summary": (output, total / count, largest),
        }[self.pool]
        return np.concatenate(parts, -1), [count, total, largest, recent]

    def newer(self, x: Array, recent: Array, first: bool) -> Array:
        """Return the last inputs after a step with inputs x (..., I). first: Whether it is the first step."""
        if self.A is None:
            return recent
        own, past = self.own, self.own * (self.lags - 1)
        before = np.concatenate([recent[..., :own], recent[..., x.shape[-1] :]], -1)[..., :past]
        return np.concatenate([x, np.tile(x[..., :own], self.lags - 1) if first else before], -1)


def reading_of(model: Any, size: int) -> Reading:
    """Return the pool and the lags of a network. size: Size of an output.

    Raises:
        ArgumentError: If it has another kind of pool or lags.
    """
    pool = getattr(model, "pool", "last") if getattr(model, "output", "all") == "last" else "last"
    recent = getattr(model, "recent", None)
    if not isinstance(pool, str) or pool not in PARTS or not (recent is None or hasattr(recent, "known_inputs")):
        raise ArgumentError(
            f"Expected pool to be {', '.join(PARTS)}, and recent to be the lags that orthornn builds, but got "
            f"pool={pool!r:.40} and recent={type(recent).__name__}, which have no C form. If these attributes of your module "
            f"have another meaning, rename them."
        )
    if recent is None:
        return Reading(pool, size)
    A = recent.weight.detach().cpu().double().numpy()
    return Reading(pool, size, A, recent.input_size - recent.known_inputs, recent.lags)
