"""A matrix product whose gradients keep their precision even if autocast is active around the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._checks import is_transformed
from .interception import no_autocast


def product(A: Tensor, B: Tensor) -> Tensor:
    """Return A B as `Product` does, or as torch does under transforms, which do not support it."""
    return A @ B if is_transformed() else Product.apply(A, B)


class Product(torch.autograd.Function):
    """A B for A (..., K) and B (K, N). Like the kernels' gradients, its gradients are not rounded if autocast is active
    around the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor) -> Tensor:
        """Return A B."""
        ctx.save_for_backward(A if ctx.needs_input_grad[1] else None, B)
        return A @ B

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return dL/dA and dL/dB."""
        A, B = ctx.saved_tensors
        with no_autocast(B):
            grad_A = grad @ B.mT if ctx.needs_input_grad[0] else None
            if not ctx.needs_input_grad[1]:
                return grad_A, None
            return grad_A, A.reshape(-1, A.shape[-1]).mT @ grad.reshape(-1, grad.shape[-1])
