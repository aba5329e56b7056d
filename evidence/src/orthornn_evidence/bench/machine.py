"""The speed at which this machine multiplies float32 matrices, as a reference for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .cases import Work
from .timing import Contender, interleave

PRODUCT = "matrix product"
_SIZE = 1024
PRODUCT_MULTIPLY_ADDS = float(_SIZE**3)


def product(work: Work, name: str = PRODUCT) -> Contender:
    """Return a product of two float32 matrices of 1024 x 1024 by torch, with the threads that torch has."""
    left, right = (torch.randn(_SIZE, _SIZE, device=work.device) for _ in range(2))
    out = torch.empty_like(left)
    return Contender(name, lambda: torch.mm(left, right, out=out), synchronize=work.synchronize)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use this many threads (None: no change), and restore the previous number afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def product_rate(work: Work, count: int | None = None, rounds: int = 3) -> float:
    """Return the multiply-adds per second of the median product, with this many threads (None: torch's current number)."""
    with threads(count):
        return PRODUCT_MULTIPLY_ADDS / interleave([product(work)], rounds)[PRODUCT].median
