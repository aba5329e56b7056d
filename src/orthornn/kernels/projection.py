"""The input projection V x + b for flat rows, and its backward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def is_tokens(x: Tensor) -> bool:
    """Return whether an input contains token numbers instead of vectors."""
    return not (x.is_floating_point() or x.is_complex())


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in this dtype. `Tensor.to` calls torch's dispatcher even if there is nothing to do."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return the tensor in at least float32: recurrences do not run in 16 bits."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def columns(tokens: Tensor, weight_ih: Tensor) -> Tensor:
    """Return the columns of V (N, I) for tokens (R,): (R, N). Raise IndexError for a token outside [0, I)."""
    try:
        return F.embedding(tokens.long(), weight_ih.mT)
    except IndexError:
        low, high = (int(end) for end in tokens.aminmax())
        raise IndexError(
            f"Expected tokens in [0, {weight_ih.shape[1]}), but got numbers from {low} to {high}."
        ) from None


def stored_dtype(rows: Tensor, weight_ih: Tensor | None) -> torch.dtype:
    """Return the dtype of rows: projected inputs, states, and the tensors saved with them."""
    return rows.dtype if weight_ih is None else weight_ih.dtype


def project(rows: Tensor, weight_ih: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return V x + b for rows (R, I), or the columns of V for tokens (R,): (R, N). Without V the rows are already
    projected.
    """
    bias = None if bias is None else cast(bias, stored_dtype(rows, weight_ih))
    if weight_ih is None:
        return rows if bias is None else rows + bias
    if is_tokens(rows):
        projected = columns(rows, weight_ih)
        return projected if bias is None else projected + bias
    return F.linear(rows, weight_ih, bias)


def project_backward(
    delta: Tensor, rows: Tensor, weight_ih: Tensor | None, needs_x: bool, needs_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return dL/dx (R, I) and dL/dV (N, I), in the dtypes of x and V, from dL/da (R, N)."""
    if weight_ih is None:
        return (delta.to(rows.dtype) if needs_x else None), None
    stored, wide = weight_ih.dtype, delta.dtype
    if is_tokens(rows):
        if not needs_weight:
            return None, None
        return None, _sum_by_token(delta, rows.long(), weight_ih.shape[1]).mT.to(stored)
    grad_x = (delta @ weight_ih.to(wide)).to(stored) if needs_x else None
    return grad_x, (delta.mT @ rows.to(wide)).to(stored) if needs_weight else None


def _sum_by_token(delta: Tensor, tokens: Tensor, count: int) -> Tensor:
    """Return the sum of the rows of each token, (I, N), always in the same order."""
    if delta.is_cuda:  # there index_add_ adds in the order in which threads arrive
        return torch.ops.aten.embedding_dense_backward(delta, tokens, count, -1, False)
    return delta.new_zeros(count, delta.shape[1]).index_add_(0, tokens, delta)
