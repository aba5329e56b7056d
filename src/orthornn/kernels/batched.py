"""A backward pass for many gradients at once.

torch.autograd.grad(..., is_grads_batched=True), torch.autograd.functional.jacobian(..., vectorize=True) and gradcheck
call a node's backward under autograd's internal vmap, and torch.func.vmap over torch.autograd.grad does so under its
vmap. The gradient is then a batched tensor without an address. A backward pass that does not consist of plain torch
operations therefore runs once per gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Found = tuple[Tensor | None, ...]
Backward = Callable[..., Found]


def for_each_gradient(backward: Backward, *grads: Tensor | None) -> Found:
    """Return backward(*grads). If some gradients are batched, call ``backward`` for each of their entries and batch the
    results.
    """
    if any([g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in grads]):
        level = _level()
        parts = [_unbound(g, level) for g in grads]
        count = max(len(part) for part in parts if part is not None)
        each = [for_each_gradient(backward, *(_entry(part, i) for part in parts)) for i in range(count)]
        return tuple(None if value is None else torch._add_batch_dim(value, 0, level) for value in _stacked(each))
    if torch._C._are_functorch_transforms_active():
        return _by_function(backward, grads)
    return backward(*grads)


def _unbound(grad: Tensor | None, level: int) -> tuple[Tensor, ...] | None:
    """Return the entries of a batched gradient; return any other gradient unchanged."""
    if grad is None:
        return None
    if not torch._C._functorch.is_legacy_batchedtensor(grad):
        return (grad,)
    return torch._remove_batch_dim(grad, level, 1, 0).unbind(0)


def _entry(parts: tuple[Tensor, ...] | None, index: int) -> Tensor | None:
    return None if parts is None else parts[index if len(parts) > 1 else 0]


def _level() -> int:
    """Return the number that autograd's vmap has assigned to the innermost batch dimension."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return max(level, 1)  # 0 in a thread of autograd that does not know of vmap


def _stacked(each: list[Found]) -> list[Tensor | None]:
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each)]


def _by_function(backward: Backward, grads: tuple[Tensor | None, ...]) -> Found:
    """Run by the vmap rule of a torch.autograd.Function, which may not return None."""
    there: list[bool] = []

    def without_none(*given: Tensor) -> tuple[Tensor, ...]:
        rest = iter(given)
        found = backward(*(None if g is None else next(rest) for g in grads))
        there[:] = [value is not None for value in found]
        return tuple(value for value in found if value is not None)

    found = iter(_ForEach.apply(without_none, *(g for g in grads if g is not None)))
    return tuple(next(found) if value else None for value in there)


class _ForEach(torch.autograd.Function):
    @staticmethod
    def forward(backward: Backward, *grads: Tensor) -> Found:
        return backward(*grads)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Found) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], backward: Backward, *grads: Tensor) -> tuple[Found, tuple[int, ...]]:
        each = [
            _ForEach.apply(backward, *(g if dim is None else g.select(dim, i) for g, dim in zip(grads, in_dims[1:])))
            for i in range(info.batch_size)
        ]
        found = tuple(_stacked(each))
        return found, (0,) * len(found)
