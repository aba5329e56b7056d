"""Tensors that FSDP shards over processes (DTensors): gather them for computations, and store them sharded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .parametrization import BoundParametrization


def gathered(tensor: Tensor) -> Tensor:
    """Return the whole of a sharded tensor; return any other tensor unchanged."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def sharded_like(value: Tensor, tensor: Tensor) -> Tensor:
    """Return `value`, sharded like `tensor` if that is sharded."""
    if not hasattr(tensor, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    value = value.to(tensor.device, tensor.dtype)
    return distribute_tensor(value, tensor.device_mesh, tensor.placements)  # type: ignore[attr-defined]


@torch.no_grad()
def care_for(method: BoundParametrization, free: Sequence[Tensor]) -> None:
    """Run `after_update_` on the free tensors, after gathering sharded ones."""
    whole = [gathered(tensor) for tensor in free]
    method.after_update_(*whole)
    for value, tensor in zip(whole, free):
        if value is not tensor:
            tensor.copy_(sharded_like(value, tensor))
