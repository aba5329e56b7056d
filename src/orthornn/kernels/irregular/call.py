"""The values of one run of rotations over irregular time. This module computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ...layout import SequenceLayout
from ..call import Options


class IrregularCall(NamedTuple):
    """One run of  h_t = exp(-lambda dt_t) R(omega dt_t) h_{t-1} + x_t,  pairs (i, i + N - N//2).

    Attributes:
        x: Term added at each step (T, B, N), or (R, N) for a ragged batch.
        angles: omega (N//2,), float64, radians per unit of time.
        rates: lambda (N - N//2,), float64, at least 0, per unit of time; for odd N the last one belongs to the middle
            unit.
        dt: Time since the previous step (T, B), or (R,), float64.
        h0: The initial state (B, N), which dt_0 also moves.
        restart: The state from which sequences restart (B, N); None without resets.
        layout: The division of the rows into steps.
        options: All other options.
    """

    x: Tensor
    angles: Tensor
    rates: Tensor
    dt: Tensor
    h0: Tensor
    restart: Tensor | None
    layout: SequenceLayout
    options: Options

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of the gradients."""
        return (self.x, self.angles, self.rates, self.dt, self.h0, self.restart)

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> IrregularCall:
        """Return the call with these tensors, in the order of `tensors`."""
        return IrregularCall(*tensors, self.layout, self.options)  # type: ignore[arg-type, call-arg]

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors of the layout."""
        return self.layout.batch_sizes, self.layout.resets

    def are_rows(self) -> tuple[bool, ...]:
        """Return the tensors that have a row for every step and sequence."""
        return (True, False, False, True, False, False)

    def contiguous(self) -> IrregularCall:
        """Return the call with contiguous rows."""
        return self._replace(x=self.x.contiguous(), dt=self.dt.contiguous())

    def part(self, rows: slice, layout: SequenceLayout, h: Tensor) -> IrregularCall:
        """Return the call of one segment: these rows, starting from the state h (B, N) before them; it returns all
        states.
        """
        x, dt = (layout.unflatten(self.layout.flatten(t)[rows]) for t in (self.x, self.dt))
        restart = None if self.restart is None else self.restart[: layout.batch]
        options = self.options.changed(only_last=False, segment_length=None)
        return IrregularCall(x, self.angles, self.rates, dt, h[: layout.batch], restart, layout, options)

    @property
    def returns_all(self) -> bool:
        """Whether all states are returned, instead of only the last ones."""
        return not self.options.only_last

    def spec(self) -> str:
        """Return the options as a string, for custom operators."""
        return self.options.to_spec()


Gradients = tuple[Tensor | None, ...]
"""Gradients of `IrregularCall.tensors`, each with the shape of its tensor."""
