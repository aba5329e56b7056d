"""A batch of sequences as flat rows, and the input projection: what both recurrences share.

Rows lie in time-major order, as in torch.nn.utils.rnn.PackedSequence: first the B_0 rows of step 0, then the B_1 rows
of step 1, and so on, with B_0 >= B_1 >= ...; sequence b is row b of every step that it reaches. R is their sum.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from .._checks import check_shape, check_tensor
from ..errors import DTypeError, ShapeError


class Steps:
    """How rows are divided into steps: T steps of B rows each, or B_t of them."""

    __slots__ = ("batch", "length", "rows", "sizes")

    def __init__(self, length: int, batch: int, sizes: list[int] | None = None) -> None:
        self.length, self.batch, self.sizes = length, batch, sizes
        self.rows = length * batch if sizes is None else sum(sizes)

    @classmethod
    def of(cls, x: Tensor, batch_sizes: Tensor | None) -> Steps:
        """The steps of an input (T, B, ...) or, with batch_sizes, of flat rows (R, ...)."""
        if batch_sizes is None:
            return cls(x.shape[0], x.shape[1])
        sizes = batch_sizes.tolist()
        return cls(len(sizes), sizes[0] if sizes else 0, sizes)

    @property
    def key(self) -> tuple[int, ...]:
        """What tells two divisions apart."""
        return (self.length, self.batch) if self.sizes is None else (-1, *self.sizes)

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows (R, ...) as one tensor (B_t, ...) a step. Views: one gradient, whatever T."""
        if self.sizes is None:
            return rows.reshape(self.length, self.batch, *rows.shape[1:]).unbind(0)
        return rows.split(self.sizes)

    def previous(self, states: Tensor, h0: Tensor) -> Tensor:
        """h_{t-1} for every row of h_t: (R, N)."""
        if self.length == 0:
            return states.to(h0.dtype)
        if self.sizes is None:
            return torch.cat([h0, states[: (self.length - 1) * self.batch]])
        steps = self.split(states)
        return torch.cat([h0, *(h[:size] for h, size in zip(steps, self.sizes[1:]))])

    def outer(self, left: Tensor, states: Tensor, h0: Tensor) -> Tensor:
        """sum over rows of left h_{t-1}': (K, N) from left (R, K); no copy of the states if B is constant."""
        if self.sizes is not None or self.length == 0:
            return left.mT @ self.previous(states, h0)
        first = left[: self.batch].mT @ h0
        return first.addmm_(left[self.batch :].mT, states[: (self.length - 1) * self.batch].to(left.dtype))

    def last_rows(self, device: torch.device) -> Tensor:
        """The row of each sequence's last step: int64, (B,). T must be at least 1."""
        if self.sizes is None:
            first = (self.length - 1) * self.batch
            return torch.arange(first, first + self.batch, device=device)
        sizes = torch.tensor(self.sizes)
        ends = torch.searchsorted(-sizes, -torch.arange(self.batch), side="left") - 1
        return ((sizes.cumsum(0) - sizes)[ends] + torch.arange(self.batch)).to(device)

    def last(self, states: Tensor, h0: Tensor) -> Tensor:
        """The last state of each sequence: (B, N); a copy."""
        if self.length == 0:
            return h0.to(states.dtype, copy=True)
        if self.sizes is None:
            return states[(self.length - 1) * self.batch :].clone()
        return states[self.last_rows(states.device)]


def is_tokens(x: Tensor) -> bool:
    """Whether an input is token numbers instead of vectors."""
    return not (x.is_floating_point() or x.is_complex())


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In this dtype. `Tensor.to` asks torch's dispatcher even where there is nothing to do."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def flat(x: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """Rows (R, ...) of an input (T, B, ...) or of rows that are flat already."""
    return x if batch_sizes is not None else x.flatten(0, 1)


def columns(tokens: Tensor, weight_ih: Tensor) -> Tensor:
    """The columns of V (N, I) for tokens (R,): (R, N). IndexError for a token outside [0, I)."""
    try:
        return F.embedding(tokens.long(), weight_ih.mT)
    except IndexError:
        low, high = (int(end) for end in tokens.aminmax())
        raise IndexError(f"tokens must lie in [0, {weight_ih.shape[1]}); got numbers from {low} to {high}") from None


def stored_dtype(rows: Tensor, weight_ih: Tensor | None) -> torch.dtype:
    """In which rows are stored: projected inputs, states, and what is kept beside them."""
    return rows.dtype if weight_ih is None else weight_ih.dtype


def project(rows: Tensor, weight_ih: Tensor | None, bias: Tensor | None) -> Tensor:
    """V x + b for rows (R, I), or the columns of V for tokens (R,): (R, N). Without V the rows are projected already."""
    bias = None if bias is None else bias.to(stored_dtype(rows, weight_ih))
    if weight_ih is None:
        return rows if bias is None else rows + bias
    if is_tokens(rows):
        projected = columns(rows, weight_ih)
        return projected if bias is None else projected + bias
    return F.linear(rows, weight_ih, bias)


def project_backward(
    delta: Tensor, rows: Tensor, weight_ih: Tensor | None, needs_x: bool, needs_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """dL/dx (R, I) and dL/dV (N, I), in the dtypes of x and V, from dL/da (R, N)."""
    if weight_ih is None:
        return (delta.to(rows.dtype) if needs_x else None), None
    stored, wide = weight_ih.dtype, delta.dtype
    if is_tokens(rows):
        by_token = delta.new_zeros(weight_ih.shape[1], weight_ih.shape[0]).index_add_(0, rows.long(), delta)
        return None, by_token.mT.to(stored)
    by_x = (delta @ weight_ih.to(wide)).to(stored) if needs_x else None
    return by_x, (delta.mT @ rows.to(wide)).to(stored) if needs_weight else None


def check_input(
    x: Tensor, h0: Tensor, n: int, weight_ih: Tensor | None, bias: Tensor | None, batch_sizes: Tensor | None
) -> None:
    """Raise ShapeError or DTypeError unless input, initial state and projection fit a state of size n."""
    check_tensor("x", x)
    tokens = is_tokens(x)
    if x.dtype in (torch.bool, torch.uint8) or x.is_complex() or (tokens and weight_ih is None):
        raise DTypeError(
            f"x must be real rows, or tokens of a signed integer dtype together with weight_ih; got {x.dtype}"
            f"{' without weight_ih' if tokens and weight_ih is None else ''}."
        )
    leading = "(T, B" if batch_sizes is None else "(R"
    wanted = (2 if batch_sizes is None else 1) + (not tokens)
    if x.dim() != wanted:
        raise ShapeError(f"x must have shape {leading}{'' if tokens else ', I'}); got {tuple(x.shape)}.")
    if weight_ih is not None:
        check_shape("weight_ih", weight_ih, (n, "I"))
    width = n if weight_ih is None else weight_ih.shape[-1]
    if not tokens and x.shape[-1] != width:
        what = "the hidden size" if weight_ih is None else "weight_ih's columns"
        raise ShapeError(f"the last size of x must be {width}, {what}; got x of shape {tuple(x.shape)}.")
    if bias is not None:
        check_shape("bias", bias, (n,))
    if batch_sizes is None:
        check_shape("h0", h0, (x.shape[1], n))
        return
    check_tensor("batch_sizes", batch_sizes)
    if batch_sizes.dim() != 1 or batch_sizes.dtype != torch.int64 or batch_sizes.device.type != "cpu":
        raise ShapeError(
            f"batch_sizes must be an int64 tensor (T,) on the CPU; got {batch_sizes.dtype} of shape "
            f"{tuple(batch_sizes.shape)} on {batch_sizes.device}."
        )
    check_shape("h0", h0, ("B", n))
    if torch.compiler.is_compiling():
        return  # the values are not known while a graph is traced; the kernel checks them when it runs
    check_batch_sizes(batch_sizes, x.shape[0], h0.shape[0])


def check_batch_sizes(batch_sizes: Tensor, rows: int, batch: int) -> None:
    """Raise ShapeError unless the step sizes are positive, never grow, start with `batch` and add up to `rows`."""
    sizes = batch_sizes.tolist()
    falls = all(a >= b for a, b in pairwise(sizes))
    if not falls or (sizes and sizes[-1] < 1) or sum(sizes) != rows or (sizes and sizes[0] != batch):
        shown = f"{sizes[:8]}{'...' if len(sizes) > 8 else ''}"
        raise ShapeError(
            f"batch_sizes must be positive, never grow, start with h0's batch {batch} and add up to the "
            f"{rows} rows of x; got {shown} with sum {sum(sizes)}. Pack with "
            f"torch.nn.utils.rnn.pack_padded_sequence."
        )
