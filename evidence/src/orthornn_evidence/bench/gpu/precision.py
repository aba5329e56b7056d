"""The precisions in which networks are timed, and the error that each allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from ..verify import rounding_bound

Precision = Literal["float32", "tf32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")

_TF32_ROUNDING = 2.0**-11  # of an operand, to the nearest
_BFLOAT16_ROUNDING = torch.finfo(torch.bfloat16).eps / 2


@contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """Compute float32 products exactly, or with tf32 rounded to tf32, in torch, cuDNN and our kernels."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def bound(precision: Precision, steps: int, n: int) -> float:
    """Return how far a recurrence of T steps may be off, relative to the largest entry.

    float32: 8 eps sqrt(T N), as bench/verify.py derives it. tf32: each step rounds both operands of every product, and
    errors of either sign grow like a square root: 8 * 2 * 2^-11 sqrt(T). bfloat16: the float32 bound plus one rounding of
    the stored states (the recurrence does not use rounded states), or two if a gradient is stored as well.
    """
    single = rounding_bound(steps, n)
    if precision == "tf32":
        return single + 16 * _TF32_ROUNDING * steps**0.5
    return single + (2 * _BFLOAT16_ROUNDING if precision == "bfloat16" else 0.0)
