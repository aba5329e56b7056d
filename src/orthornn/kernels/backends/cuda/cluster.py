"""Shapes of cluster.cu: a dense W in a cluster of multiprocessors (SMs), which exchange states through shared memory.

A cluster takes several sequences through the same step, in two groups, so that the exchange of one is hidden behind the
products of the other. Which cluster is best follows from the cost of the products (product.py) and of the exchange.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from .. import multiprocessor
from . import nvrtc
from .product import WARP, Product, free_tiles

BLOCKS = (2, 4, 8)  # of a cluster; more than 8 are not allowed everywhere
MOST_SLOTS = 4  # sequences of a cluster
# Cycles of a step besides its products, as measured on an H200: from a state that is computed to one that is everywhere,
# and of what is done for each group of sequences.
EXCHANGE, GROUP = 900, 350


@dataclass(frozen=True)
class Shape:
    """One kernel: `count` blocks share the rows of W (n, n) and take `slots` sequences.

    product: of one block's share of the rows.
    """

    n: int
    count: int
    slots: int
    product: Product

    program: ClassVar[nvrtc.Program] = nvrtc.Program("cluster.cu", ("forward", "backward"))
    m: ClassVar[int] = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.product.threads

    @property
    def bytes(self) -> int:
        """Dynamic shared memory of a block: barriers, two states and two shares of every sequence, then weights."""
        state = -(-max(self.product.vector, self.count * self.product.rows) // 4) * 4
        return 32 + 4 * 2 * self.slots * (state + self.product.rows) + self.product.shared

    @property
    def macros(self) -> dict[str, int]:
        """The macros that cluster.cu is compiled with, without the activation."""
        return {
            "N": self.n,
            "BLOCKS": self.count,
            "SHARE": self.product.rows,
            "SLOTS": self.slots,
            "THREADS": self.threads,
            "LANES1": self.product.lanes,
            "HELD1": self.product.held,
        }

    @property
    def cycles(self) -> float:
        """The cost of a step of all its sequences, by count: of several, the exchange is hidden."""
        if self.slots == 1:
            return self.product.cycles + EXCHANGE
        return max(self.slots * self.product.cycles + 2 * GROUP, self.product.cycles + EXCHANGE)

    def blocks(self, batch: int) -> int:
        """Return the number of blocks for so many sequences."""
        return self.count * -(-batch // self.slots)

    def describe(self) -> str:
        """Return the strategy in one line for a reader."""
        sequences = "one sequence" if self.slots == 1 else f"{self.slots} sequences"
        return f"{sequences} a cluster of {self.count} multiprocessors, {self.threads} threads in each"


def number(count: int) -> int:
    """Return how many clusters of so many blocks run at once: some multiprocessors belong to none."""
    return max(int(multiprocessor.number() * 0.94) // count, 1)


def waves(shape: Shape, batch: int) -> int:
    """Return how often all clusters take sequences, one after the other."""
    return -(-batch // (number(shape.count) * shape.slots))


@functools.lru_cache(maxsize=256)
def best(n: int, batch: int) -> Shape | None:
    """Return the shape of least cost for so many sequences, or None if no cluster can hold W or no GPU here has clusters."""
    if not multiprocessor.has_clusters():
        return None
    return min(shapes(n, batch), key=lambda shape: shape.cycles * waves(shape, batch), default=None)


def shapes(n: int, batch: int) -> list[Shape]:
    """Return every shape that fits, with as many sequences of a cluster as make the fewest turns."""
    found, batch = [], max(batch, 1)
    for count in BLOCKS:
        rows = -(-n // (4 * count)) * 4
        if rows * (count - 1) >= n:
            continue  # a block would have no rows
        turns = -(-batch // (number(count) * MOST_SLOTS))
        slots = -(-batch // (number(count) * turns))
        for threads in range(WARP, 512 + 1, WARP):
            tiles = free_tiles(threads)
            for lanes in (4, 8, 16, 32) if tiles >= 0 else ():
                product = Product(rows, n, threads, lanes)
                held = min(product.quads, tiles // product.passes)
                shape = Shape(n, count, slots, Product(rows, n, threads, lanes, held))
                if product.passes * product.quads <= 64 and shape.bytes <= multiprocessor.shared_limit():
                    found.append(shape)
    return found
