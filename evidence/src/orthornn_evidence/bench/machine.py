"""The speed at which this machine multiplies float32 matrices and reads memory, as a reference for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .cases import Work
from .timing import Contender, interleave

PRODUCT = "matrix product"
_SIZE = 1024
_BYTES_READ = 2**24
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


def product_rate(work: Work, count: int | None = None, rounds: int = 5) -> float:
    """Return the multiply-adds per second of the fastest product, with this many threads (None: torch's current number)."""
    with threads(count):
        return PRODUCT_MULTIPLY_ADDS / min(interleave([product(work)], rounds)[PRODUCT].runs)


def bandwidth(size: int, rounds: int = 5) -> float:
    """Return the bytes per second at which one thread reads the same `size` bytes of float32 again and again, at best."""
    again = max(1, _BYTES_READ // size)
    values = torch.ones(max(1, size // 4)).expand(again, -1)
    with threads(1):
        runs = interleave([Contender("sum", values.sum)], rounds)["sum"].runs
    return 4 * values.numel() / min(runs)
