"""The values of one run of the delta rule. This module computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ...layout import SequenceLayout

Gradients = tuple[Tensor | None, ...]
"""Gradients of `DeltaCall.tensors`, each with the shape of its tensor."""


class DeltaCall(NamedTuple):
    """One run of  S_t = H_M ... H_1 diag(g_t) S_{t-1} + what the M updates write,  o_t = S_t' q_t.

    The first sizes of q, k, v, beta and gate are (T, B), or (R,) of a ragged batch.

    Attributes:
        q: Queries (..., H, K).
        k: Keys (..., M, H, K), of any length.
        v: Values (..., M, H, V).
        beta: Strengths (..., M, H).
        gate: g (..., H, 1) or (..., H, K), or None for 1.
        state: S_0 (B, H, K, V).
        restart: The state from which sequences restart (B, H, K, V); None without resets, or for zero.
        layout: The division of the rows into steps, and the resets.
        backend: Name of a backend, or "auto".
    """

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    gate: Tensor | None
    state: Tensor
    restart: Tensor | None
    layout: SequenceLayout
    backend: str = "auto"

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of the gradients."""
        return (self.q, self.k, self.v, self.beta, self.gate, self.state, self.restart)

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> DeltaCall:
        """Return the call with these tensors, in the order of `tensors`."""
        return DeltaCall(*tensors, self.layout, self.backend)  # type: ignore[arg-type, call-arg]

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors of the layout."""
        return self.layout.batch_sizes, self.layout.resets

    @property
    def returns_all(self) -> bool:
        """True: the outputs of all steps are always returned."""
        return True

    def spec(self) -> str:
        """Return the backend, the only option."""
        return self.backend

    def flat(self, tensor: Tensor) -> Tensor:
        """Return rows (R, ...) from rows (T, B, ...) or (R, ...)."""
        return self.layout.flatten(tensor)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes M, H, K and V."""
        return self.k.shape[-3], self.k.shape[-2], self.k.shape[-1], self.v.shape[-1]
