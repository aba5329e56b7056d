"""Shapes of cluster.cu: a dense W in a cluster of multiprocessors (SMs), which exchange states through shared memory.

Which cluster is best follows from the cost of the products (product.py) and of the exchange, and from how many clusters
run at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from .. import multiprocessor
from . import nvrtc
from .product import WARP, Product, free_tiles

BLOCKS = (2, 4, 8)  # of a cluster; more than 8 are not allowed everywhere
# Cycles of a step besides its product, as measured on an H200: from a state that is computed to one that is everywhere. A
# cluster that takes two sequences by turns hides none of it there, and four make it twice as long.
EXCHANGE = 950


@dataclass(frozen=True)
class Shape:
    """One kernel: `count` blocks share the rows of W (n, n).

    product: of one block's share of the rows.
    """

    n: int
    count: int
    product: Product

    program: ClassVar[nvrtc.Program] = nvrtc.Program("cluster.cu", ("forward", "backward"))
    m: ClassVar[int] = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.product.threads

    @property
    def bytes(self) -> int:
        """Dynamic shared memory of a block: barriers, two states, two shares, then weights."""
        state = -(-max(self.product.vector, self.count * self.product.rows) // 4) * 4
        return 16 + 4 * (2 * state + 2 * self.product.rows) + self.product.shared

    @property
    def macros(self) -> dict[str, int]:
        """The macros that cluster.cu is compiled with, without the activation."""
        return {
            "N": self.n,
            "BLOCKS": self.count,
            "SHARE": self.product.rows,
            "THREADS": self.threads,
            "LANES1": self.product.lanes,
            "HELD1": self.product.held,
        }

    @property
    def cycles(self) -> float:
        """The cost of a step, by count."""
        return self.product.cycles + EXCHANGE

    def blocks(self, batch: int) -> int:
        """Return the number of blocks for so many sequences."""
        return self.count * batch

    def describe(self) -> str:
        """Return the strategy in one line for a reader."""
        return f"one sequence a cluster of {self.count} multiprocessors, {self.threads} threads in each"


def number(count: int) -> int:
    """Return how many clusters of so many blocks run at once: some multiprocessors belong to none."""
    return max(int(multiprocessor.number() * 0.94) // count, 1)


def waves(shape: Shape, batch: int) -> int:
    """Return how often all clusters take sequences, one after the other."""
    return -(-batch // number(shape.count))


@functools.lru_cache(maxsize=256)
def best(n: int, batch: int) -> Shape | None:
    """Return the shape of least cost for so many sequences, or None if no cluster can hold W or no GPU here has clusters."""
    if not multiprocessor.has_clusters():
        return None
    return min(shapes(n), key=lambda shape: shape.cycles * waves(shape, batch), default=None)


def shapes(n: int) -> list[Shape]:
    """Return every shape that fits."""
    found = []
    for count in BLOCKS:
        rows = -(-n // (4 * count)) * 4
        if rows * (count - 1) >= n:
            continue  # a block would have no rows
        for threads in range(WARP, 512 + 1, WARP):
            tiles = free_tiles(threads)
            for lanes in (4, 8, 16, 32) if tiles >= 0 else ():
                product = Product(rows, n, threads, lanes)
                held = min(product.quads, tiles // product.passes)
                shape = Shape(n, count, Product(rows, n, threads, lanes, held))
                if product.passes * product.quads <= 64 and shape.bytes <= multiprocessor.shared_limit():
                    found.append(shape)
    return found
