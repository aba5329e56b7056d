"""The division of the rows of a batch of sequences into time steps.

Rows are stored in time-major order, as in torch.nn.utils.rnn.PackedSequence: first the B_0 rows of step 0, then the B_1
rows of step 1, and so on, with B_0 >= B_1 >= ...; sequence b is row b of every step that it reaches. R is the number of
rows. Without batch sizes every step has B rows, R = T B, and tensors may keep their shape (T, B, ...).
"""

from __future__ import annotations

import torch
from torch import Tensor


class SequenceLayout:
    """T steps of B rows each, or of B_t rows each.

    Args:
        length: Number of steps, T.
        batch: Number of sequences, B.
        batch_sizes: Rows of each step, int64 (T,) on the CPU, never increasing. Default: None, B rows in each step.
        rows: Number of rows, R. Required only with ``batch_sizes``.
        resets: bool (R,), True if a sequence restarts before its step, from a state given elsewhere. Default: None, no
            resets.
        dt: Time since the previous step, float64 (R,). Default: None, 1 everywhere.
        sizes: The numbers in ``batch_sizes``, if they are known. Default: None, they are read when needed.
    """

    __slots__ = ("_sizes", "batch", "batch_sizes", "dt", "length", "resets", "rows")

    def __init__(
        self,
        length: int,
        batch: int,
        batch_sizes: Tensor | None = None,
        rows: int | None = None,
        resets: Tensor | None = None,
        dt: Tensor | None = None,
        sizes: list[int] | None = None,
    ) -> None:
        self.length, self.batch, self.batch_sizes, self.resets, self.dt = length, batch, batch_sizes, resets, dt
        self.rows: int = length * batch if rows is None else rows
        self._sizes = sizes

    @classmethod
    def of(
        cls, x: Tensor, batch_sizes: Tensor | None, batch: int | None = None, resets: Tensor | None = None
    ) -> SequenceLayout:
        """Return the layout of an input (T, B, ...), or of flat rows (R, ...) with ``batch_sizes``.

        Args:
            x: The input.
            batch_sizes: Same as in a PackedSequence.
            batch: B if it is known; otherwise it is read from ``batch_sizes``.
            resets: Same as in the constructor, or (T, B).
        """
        if resets is not None and resets.dim() > 1:
            resets = resets.flatten()
        if batch_sizes is None:
            return cls(x.shape[0], x.shape[1], resets=resets)
        if batch is None:
            batch = int(batch_sizes[0]) if len(batch_sizes) else 0
        return cls(batch_sizes.shape[0], batch, batch_sizes, x.shape[0], resets)

    @classmethod
    def of_sizes(cls, sizes: list[int], resets: Tensor | None = None, dt: Tensor | None = None) -> SequenceLayout:
        """Return the layout of steps with these numbers of rows. resets, dt: Same as in the constructor."""
        batch_sizes = torch.tensor(sizes, dtype=torch.int64, device="cpu")
        return cls(len(sizes), sizes[0] if sizes else 0, batch_sizes, sum(sizes), resets, dt, sizes)

    def between(self, resets: Tensor | None, dt: Tensor | None = None) -> SequenceLayout:
        """Return the same division with these resets and times between steps, both as in the constructor."""
        return SequenceLayout(self.length, self.batch, self.batch_sizes, self.rows, resets, dt, self._sizes)

    @property
    def is_ragged(self) -> bool:
        """Whether the number of rows may differ between steps."""
        return self.batch_sizes is not None

    @property
    def sizes(self) -> list[int] | None:
        """Number of rows of each step; None if every step has B rows."""
        if self._sizes is None and self.batch_sizes is not None:
            self._sizes = self.batch_sizes.tolist()
        return self._sizes

    @property
    def key(self) -> tuple[int, ...]:
        """A hashable value that is equal for equal layouts."""
        return (self.length, self.batch) if self.sizes is None else (-1, *self.sizes)

    def flatten(self, x: Tensor) -> Tensor:
        """Return rows (R, ...) of x (T, B, ...); flat rows are returned unchanged."""
        return x if self.is_ragged else x.flatten(0, 1)

    def unflatten(self, rows: Tensor) -> Tensor:
        """Return rows (R, ...) in the shape of an input: (T, B, ...), or (R, ...) for a ragged batch."""
        return rows if self.is_ragged else rows.view(self.length, self.batch, *rows.shape[1:])

    def shape(self, width: int) -> tuple[int, ...]:
        """Return the shape of rows of this width: (T, B, width), or (R, width) for a ragged batch."""
        return (self.rows, width) if self.is_ragged else (self.length, self.batch, width)

    def join(self, steps: list[Tensor]) -> Tensor:
        """Return one tensor (T, B, ...), or (R, ...) for a ragged batch, from T tensors (B_t, ...). T must be at least
        1.
        """
        return torch.cat(steps) if self.is_ragged else torch.stack(steps)

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return rows (R, ...) as one view (B_t, ...) per step, with a single gradient tensor for all T."""
        sizes = self.sizes
        if sizes is None:
            return rows.reshape(self.length, self.batch, *rows.shape[1:]).unbind(0)
        return rows.split(sizes)

    def split_resets(self) -> tuple[Tensor, ...] | list[None]:
        """Return the resets of each step, (B_t, 1), or None for each step if there are no resets."""
        return [None] * self.length if self.resets is None else self.split(self.resets.unsqueeze(1))

    def previous(self, states: Tensor, h0: Tensor, restart: Tensor | None = None) -> Tensor:
        """Return h_{t-1} for every row of h_t: (R, N) from states (R, N), h0 (B, N) and, with resets, restart (B,
        N).
        """
        if self.length == 0:
            return states.to(h0.dtype)
        sizes = self.sizes
        if sizes is None:
            before = torch.cat([h0, states[: (self.length - 1) * self.batch]])
        else:
            steps = self.split(states)
            before = torch.cat([h0, *(h[:size] for h, size in zip(steps, sizes[1:]))])
        if self.resets is None or restart is None:
            return before
        return torch.where(self.resets.unsqueeze(1), self.repeat(restart), before)

    def repeat(self, h: Tensor) -> Tensor:
        """Return rows (R, N), each taken from its sequence in h (B, N)."""
        sizes = self.sizes
        if sizes is None:
            return h.repeat(self.length, 1)
        return torch.cat([h[:size] for size in sizes]) if sizes else h[:0]

    def sum_outer(self, left: Tensor, states: Tensor, h0: Tensor, restart: Tensor | None = None) -> Tensor:
        """Return the sum over rows of left h_{t-1}', (K, N) from left (R, K), without copying the states if B is
        constant.
        """
        if self.is_ragged or self.length == 0 or self.resets is not None:
            return left.mT @ self.previous(states, h0, restart)
        first = left[: self.batch].mT @ h0
        return first.addmm_(left[self.batch :].mT, states[: (self.length - 1) * self.batch].to(left.dtype))

    def lengths(self, device: torch.device | None = None) -> Tensor:
        """Return the number of steps of each sequence: int64, (B,)."""
        if self.batch_sizes is None:
            return torch.full((self.batch,), self.length, dtype=torch.int64, device=device)
        sequences = torch.arange(self.batch, device=self.batch_sizes.device)
        lengths = (self.batch_sizes.unsqueeze(0) > sequences.unsqueeze(1)).sum(dim=1)
        return lengths if device is None else lengths.to(device)

    def last_rows(self, device: torch.device | None = None) -> Tensor:
        """Return the row of each sequence's last step: int64, (B,). T must be at least 1."""
        if self.batch_sizes is None:
            first = (self.length - 1) * self.batch
            return torch.arange(first, first + self.batch, device=device)
        starts = self.batch_sizes.cumsum(0) - self.batch_sizes
        rows = starts[self.lengths() - 1] + torch.arange(self.batch, device=starts.device)
        return rows if device is None else rows.to(device)

    def last(self, states: Tensor, h0: Tensor) -> Tensor:
        """Return a copy of each sequence's last state, (B, N), from states (R, N), or h0 for a sequence without
        steps.
        """
        if self.length == 0:
            return h0.to(states.dtype, copy=True)
        if not self.is_ragged:
            return states[(self.length - 1) * self.batch :].clone()
        return states[self.last_rows(states.device)]

    def places(self) -> tuple[Tensor, Tensor]:
        """Return the step and the sequence of each row of a ragged batch: int64, (R,) both."""
        assert self.batch_sizes is not None
        starts = self.batch_sizes.cumsum(0) - self.batch_sizes
        steps = torch.arange(self.length, device=starts.device)
        step = torch.repeat_interleave(steps, self.batch_sizes, output_size=self.rows)
        return step, torch.arange(self.rows, device=starts.device) - starts[step]

    def padded(self, x: Tensor, fill: float = 0) -> Tensor:
        """Return x, (T, B, ...) or flat rows of a ragged batch, as (T, B, ...), with `fill` for missing steps."""
        if self.batch_sizes is None:
            return x
        places = tuple([place.to(x.device) for place in self.places()])
        return x.new_full((self.length, self.batch, *x.shape[1:]), fill).index_put(places, x)

    def reverse(self, x: Tensor) -> Tensor:
        """Return each sequence reversed, starting with its last step: x is (T, B, ...), or flat rows of a ragged
        batch.
        """
        if self.batch_sizes is None:
            return x.flip(0)
        starts = self.batch_sizes.cumsum(0) - self.batch_sizes
        step, sequence = self.places()
        step, sequence, starts = step.to(x.device), sequence.to(x.device), starts.to(x.device)
        end = starts.new_zeros(self.rows).scatter_reduce(0, sequence, step, "amax")[sequence]
        return x[starts[end - step] + sequence]

    def reversed(self) -> SequenceLayout:
        """Return the layout of the result of `reverse`.

        A reset before step t separates t - 1 from t in both directions: backwards it is before step t - 1. The same
        holds for the time between the two steps; the time before the first step backwards is 1.
        """
        if (self.resets is None and self.dt is None) or self.length == 0:
            return self
        resets = None if self.resets is None else self._backwards(self.resets, 0)
        dt = None if self.dt is None else self._backwards(self.dt, 1)
        return self.between(resets, dt)

    def _backwards(self, between: Tensor, first: int) -> Tensor:
        """Return for the reversed steps the value between each step and the previous one, (R,), with `first` before
        the first step.
        """
        backwards = self.flatten(self.reverse(self.unflatten(between.unsqueeze(1))))
        return self.previous(backwards, between.new_full((self.batch, 1), first)).squeeze(1)

    def segments(self, length: int) -> list[tuple[slice, SequenceLayout]]:
        """Return (rows, layout) of successive segments of ``length`` steps; the last one may be shorter."""
        B, T, stop = self.batch, self.length, 0
        cuts = []
        for t in range(0, T, length):
            steps, own = min(length, T - t), None if self.sizes is None else self.sizes[t : t + length]
            start, stop = stop, stop + (steps * B if own is None else sum(own))
            rows = slice(start, stop)
            resets, dt = (None if each is None else each[rows] for each in (self.resets, self.dt))
            if own is None:
                cuts.append((rows, SequenceLayout(steps, B, resets=resets, dt=dt)))
            else:
                cuts.append((rows, SequenceLayout.of_sizes(own, resets, dt)))
        return cuts


def restarted(h: Tensor, reset: Tensor | None, restart: Tensor | None) -> Tensor:
    """Return the states before a step, (B_t, N): rows of ``restart`` (B, N) if ``reset`` (B_t, 1) is true, otherwise
    rows of h.
    """
    if reset is None or restart is None:
        return h
    return torch.where(reset, restart[: h.shape[0]], h)


def cut(grad: Tensor, reset: Tensor | None, grad_restart: Tensor | None) -> Tensor:
    """Return the gradient of the states before a step, (B_t, N), with zeros in the rows that `restarted` has replaced.

    The replaced rows are added to the first rows of ``grad_restart`` (B, N).
    """
    if reset is None or grad_restart is None:
        return grad
    none = torch.zeros_like(grad)
    grad_restart[: grad.shape[0]] += torch.where(reset, grad, none)
    return torch.where(reset, none, grad)


def replace_first_rows(h: Tensor, rows: Tensor) -> Tensor:
    """Return h (B, N) with its first rows replaced; sequences that ended earlier keep their state."""
    return rows if rows.shape[0] == h.shape[0] else torch.cat([rows, h[rows.shape[0] :]])
