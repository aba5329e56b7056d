"""Tensors as the memory that compiled kernels read and write; kernels only read their addresses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....errors import ArgumentError
from . import extension

# Bytes from which large pages are asked for. Smaller arrays mostly lie in memory that is in use already (`keep_freed_memory`
# of csrc/parallel.hpp).
_LARGE = 1 << 23


def memory(tensor: Tensor) -> Tensor:
    """Return the tensor as the memory at its address: contiguous, and negated if a lazy negation is pending."""
    tensor = tensor.contiguous()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def memory_or_none(tensor: Tensor | None) -> Tensor | None:
    """Return the memory of a tensor, or None without a tensor."""
    return None if tensor is None else memory(tensor)


def empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return memory that will be overwritten completely, on large pages if it is large."""
    out = like.new_empty(*shape)  # torch parses a tuple in half as much time again
    size = out.nbytes
    if size >= _LARGE:
        extension.native.ask_for_large_pages(out, size)
    return out


def empty_like_needed(like: Tensor, tensors: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor | None]:
    """Return memory for the required gradients, with the shapes of `tensors`."""
    return [empty(like, t.shape) if need and t is not None else None for t, need in zip(tensors, needs)]


def check(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ArgumentError unless a tensor, if given, has the layout that the extension assumes."""
    if tensor is not None and (tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu):
        raise ArgumentError(
            f"Expected {name} of shape {shape} in {dtype} on the CPU, but got {tuple(tensor.shape)} in "
            f"{tensor.dtype} on {tensor.device}. Do not replace a network's parameters by tensors of another shape, dtype "
            f"or device."
        )
