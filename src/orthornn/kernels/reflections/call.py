"""The values of one run of input-dependent reflections. This module computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ...layout import SequenceLayout
from ..call import Options

# Also in csrc/reflections_call.hpp, and for the keys of the delta rule.
SHORTEST = 1e-6  # a reflector shorter than this fades out instead of being normalized
LONGEST = 2.0**20  # a longer one is scaled before it is squared


class ReflectionCall(NamedTuple):
    """One run of  h_t = phi(g_t * (H_M ... H_1 R_t h_{t-1}) + a_t).

    Without an index the first sizes of k, beta, gate, add (and angles) are (T, B), or (R,) of a ragged batch; with one
    they are (S,), and step t of sequence b takes row index[t, b].

    Attributes:
        k: Reflectors (..., M, N).
        beta: Their strengths (..., M, H), one per head.
        gate: g (..., H) or (..., N), or None for 1.
        angles: Angles of R (N // 2,), or (..., N // 2), or None for no rotation.
        add: a (..., N), or None for 0.
        h0: The initial state (B, N).
        parameter: phi's trainable vector, or None.
        restart: The state from which sequences restart (B, N); None without resets, or for zero.
        index: int64 (T, B), or (R,), or None.
        layout: The division of the rows into steps.
        options: All other options.
    """

    k: Tensor
    beta: Tensor
    gate: Tensor | None
    angles: Tensor | None
    add: Tensor | None
    h0: Tensor
    parameter: Tensor | None
    restart: Tensor | None
    index: Tensor | None  # type: ignore[assignment]  # not tuple.index
    layout: SequenceLayout
    options: Options

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of the gradients."""
        return (self.k, self.beta, self.gate, self.angles, self.add, self.h0, self.parameter, self.restart)

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> ReflectionCall:
        """Return the call with these tensors, in the order of `tensors`."""
        return ReflectionCall(*tensors, self.index, self.layout, self.options)  # type: ignore[arg-type, call-arg]

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors of the layout, and the index."""
        return self.layout.batch_sizes, self.layout.resets, self.index

    def are_rows(self) -> tuple[bool, ...]:
        """Return the tensors that have a row for every step and sequence; tables do not."""
        rows = self.index is None
        return (rows, rows, rows, rows and not self.shares_angles, rows, False, False, False)

    def contiguous(self) -> ReflectionCall:
        """Return the call with contiguous rows and a contiguous index."""
        tensors = [
            t.contiguous() if is_rows and t is not None else t for t, is_rows in zip(self.tensors(), self.are_rows())
        ]
        index = None if self.index is None else self.index.contiguous()
        return self.with_tensors(tensors)._replace(index=index)

    def part(self, rows: slice, layout: SequenceLayout, h: Tensor) -> ReflectionCall:
        """Return the call of one segment: these rows, starting from the state h (B, N) before them; it returns all
        states.
        """
        cut = [
            layout.unflatten(self.layout.flatten(t)[rows]) if is_rows and t is not None else t
            for t, is_rows in zip(self.tensors(), self.are_rows())
        ]
        index = None if self.index is None else layout.unflatten(self.layout.flatten(self.index)[rows])
        restart = None if self.restart is None else self.restart[: layout.batch]
        options = self.options._replace(only_last=False, segment_length=None)
        return self.with_tensors(cut)._replace(
            h0=h[: layout.batch], restart=restart, index=index, layout=layout, options=options
        )

    @property
    def returns_all(self) -> bool:
        """Whether all states are returned, instead of only the last ones."""
        return not self.options.only_last

    def spec(self) -> str:
        """Return the options as a string, for custom operators."""
        return self.options.to_spec()

    def flat(self, tensor: Tensor) -> Tensor:
        """Return a table (S, ...) from rows (T, B, ...) or (R, ...); a table is returned unchanged."""
        return tensor if self.index is not None else self.layout.flatten(tensor)

    @property
    def shares_angles(self) -> bool:
        """Whether all steps rotate by the same angles."""
        return self.angles is not None and self.angles.dim() == 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes M, N and H."""
        return self.k.shape[-2], self.k.shape[-1], self.beta.shape[-1]


class Saved(NamedTuple):
    """The tensors that a forward pass saves for the backward pass; with segments, only the first one.

    Attributes:
        states: All states, (T, B, N) or (R, N); with segments, the states before each one (segments, B, N).
        preactivations: (R, N), if phi' reads them; otherwise None.
        dots: k_i'x of every reflection, (R, M, H); a long k_i is scaled as by `scale_down`.
        inverse: 1 / max(k_i'k_i, SHORTEST^2) of every row of the tables, float64 (S, M, H); a long k_i is scaled
            likewise, which the compiled kernel marks by a negative value.
    """

    states: Tensor
    preactivations: Tensor | None
    dots: Tensor | None
    inverse: Tensor | None


Gradients = tuple[Tensor | None, ...]
"""Gradients of `ReflectionCall.tensors`, each with the shape of its tensor."""
