"""A backward pass for many gradients at once.

torch.autograd.grad(..., is_grads_batched=True), torch.autograd.functional.jacobian(..., vectorize=True) and gradcheck
call a node's backward under autograd's own vmap, and torch.func.vmap over torch.autograd.grad does so under its own: the
gradient is then a batched tensor, which has no address. A backward pass that is not made of plain torch operations runs
once for each gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]
Backward = Callable[[Tensor], Gradients]


def for_each_gradient(backward: Backward, grad: Tensor) -> Gradients:
    """Return backward(grad), or if `grad` is batched what `backward` returns for each of its entries, batched."""
    if torch._C._functorch.is_legacy_batchedtensor(grad):
        level = _level()
        each = [for_each_gradient(backward, part) for part in torch._remove_batch_dim(grad, level, 1, 0).unbind(0)]
        found = [None if value is None else torch._add_batch_dim(value, 0, level) for value in _stacked(each)]
        return tuple(found)
    if torch._C._are_functorch_transforms_active():
        return _by_function(backward, grad)
    return backward(grad)


def _level() -> int:
    """The number that autograd's vmap has given to the innermost batch dimension."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return max(level, 1)  # 0 in a thread of autograd that does not know of vmap


def _stacked(each: list[Gradients]) -> list[Tensor | None]:
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each)]


def _by_function(backward: Backward, grad: Tensor) -> Gradients:
    """By the vmap rule of a torch.autograd.Function, which may not return None."""
    there: list[bool] = []

    def without_none(grad: Tensor) -> tuple[Tensor, ...]:
        found = backward(grad)
        there[:] = [value is not None for value in found]
        return tuple(value for value in found if value is not None)

    found = iter(_ForEach.apply(without_none, grad))
    return tuple(next(found) if value else None for value in there)


class _ForEach(torch.autograd.Function):
    @staticmethod
    def forward(backward: Backward, grad: Tensor) -> Gradients:
        return backward(grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Gradients) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[None, int], backward: Backward, grad: Tensor
    ) -> tuple[Gradients, tuple[int, ...]]:
        found = tuple(_stacked([_ForEach.apply(backward, part) for part in grad.unbind(in_dims[1])]))
        return found, (0,) * len(found)
