r"""The parts of OrthogonalBlocks next to their recurrences, as plain numbers, in float64.

    h_t = W h_{t-1} + V n(u_t) + b,        u_t  <-  S u_t + mix(h_t)

n standardizes a vector; V and b include the trained scale and offset of the normalization. S is a matrix in the first
block, the identity in the others, and zero without residual connections.

mixing     mix(h)                                   numbers                multiply-adds
glu        (A h + a)_1 * sigmoid((A h + a)_2)       2D (N + 1)             2DN + D
gelu       gelu(A h + a)                            D (N + 1)              DN
mlp        C gelu(A h + a) + c                      M (N + D + 1) + D      M (N + D)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ArgumentError

Array = np.ndarray


@dataclass(frozen=True)
class FoldedBlock:
    """The parts of a block next to its recurrence.

    Attributes:
        norm: Normalization of the recurrence's input: "layer", (u - mean) / sqrt(variance + eps); "rms",
            u / sqrt(mean(u^2) + eps); or "none".
        eps: Epsilon of the norm.
        mixing: "glu", "gelu" or "mlp".
        A, a: (M, N), (M,) or None. C, c: (D, M), (D,) for "mlp", else None.
        residual: Whether the block adds its input to its output.
        S: (D, I), a matrix applied to that input; None for the identity.
    """

    norm: str
    eps: float
    mixing: str
    A: Array
    a: Array | None
    C: Array | None = None
    c: Array | None = None
    residual: bool = True
    S: Array | None = None

    @property
    def size(self) -> int:
        """D, the features of its outputs."""
        if self.C is not None:
            return len(self.C)
        return len(self.A) // 2 if self.mixing == "glu" else len(self.A)

    def multiply_adds(self, tokens: bool) -> int:
        """Return the multiply-adds of a step without the recurrence. tokens: Whether the block reads classes."""
        total = sum(matrix.size for matrix in (self.A, self.C) if matrix is not None)
        total += 0 if self.S is None or tokens else self.S.size
        return total + (self.size if self.mixing == "glu" else 0) + (0 if self.norm == "none" else 2 * self.size)

    def normalized(self, u: Array) -> Array:
        """Return n(u) of rows u (..., D)."""
        if self.norm == "none":
            return u
        centered = u - u.mean(-1, keepdims=True) if self.norm == "layer" else u
        return centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + self.eps)

    def hidden(self, h: Array) -> Array:
        """Return the nonlinearity applied to the states (..., N): (..., D), or (..., M) for "mlp"."""
        z = torch.from_numpy(h @ self.A.T + (0 if self.a is None else self.a))
        return (F.glu(z, -1) if self.mixing == "glu" else F.gelu(z)).numpy()

    def out(self, u: Array, z: Array, tokens: bool = False) -> Array:
        """Return the outputs (..., D) from the block's input, u (..., I) or tokens (...,), and `hidden` of its states."""
        if self.C is not None:
            z = z @ self.C.T + (0 if self.c is None else self.c)
        if not self.residual:
            return z
        if self.S is None:
            return u + z
        return z + (self.S.T[u] if tokens else u @ self.S.T)


def fold_block(block: Any, reads: Callable[[Array], Array]) -> FoldedBlock:
    """Return the parts of a block of OrthogonalBlocks next to its recurrence.

    Args:
        block: The block.
        reads: Converts a matrix that multiplies the module's states to one that multiplies the states in C.

    Raises:
        ArgumentError: If a part was replaced by another module.
    """
    norm, eps = _norm(block.norm)
    first, second = block.mix[0], block.mix[2] if len(block.mix) == 3 else None
    mixing = _mixing(block)
    return FoldedBlock(
        norm=norm,
        eps=eps,
        mixing=mixing,
        A=reads(_array(first.weight)),
        a=None if first.bias is None else _array(first.bias),
        C=None if second is None else _array(second.weight),
        c=None if second is None or second.bias is None else _array(second.bias),
        residual=block.residual,
        S=None if block.skip is None else _array(block.skip.weight),
    )


def affine(norm: Any) -> tuple[Array | None, Array | None]:
    """Return the trained scale and offset (D,) of a normalization, each None if it has none."""
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    return None if weight is None else _array(weight), None if bias is None else _array(bias)


def _norm(norm: Any) -> tuple[str, float]:
    if norm is None:
        return "none", 0.0
    if type(norm) is nn.LayerNorm and len(norm.normalized_shape) == 1:
        return "layer", float(norm.eps)
    if type(norm) is nn.RMSNorm and len(norm.normalized_shape) == 1:
        kind = torch.get_default_dtype() if norm.weight is None else norm.weight.dtype
        return "rms", float(torch.finfo(kind).eps if norm.eps is None else norm.eps)
    raise _replaced(type(norm).__name__)


def _mixing(block: Any) -> Literal["glu", "gelu", "mlp"]:
    """Return the mixing of a block; raise ArgumentError if a part was replaced."""
    kinds = [type(part) for part in block.mix]
    plain = block.skip is None or (type(block.skip) is nn.Linear and block.skip.bias is None)
    if plain and kinds == [nn.Linear, nn.GLU]:
        return "glu"
    perceptron = kinds == [nn.Linear, nn.GELU, nn.Linear]
    if plain and (perceptron or kinds == [nn.Linear, nn.GELU]) and block.mix[1].approximate == "none":
        return "mlp" if perceptron else "gelu"
    raise _replaced(", ".join(kind.__name__ for kind in (*kinds, type(block.skip))))


def _replaced(found: str) -> ArgumentError:
    return ArgumentError(
        f"Expected blocks with the parts that OrthogonalBlocks builds, but got {found}, which has no C form. Pass the "
        f"network without replaced parts."
    )


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()
