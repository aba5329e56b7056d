"""Shapes of cluster.cu: a dense W in a cluster of multiprocessors (SMs), which exchange states through shared memory.

The best cluster size and number of sequences follow from the cost of the products (product.py), the cost of the exchange,
and the number of clusters that run at once.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import ClassVar

import torch

from ....errors import BackendError
from . import multiprocessor, nvrtc
from .product import WARP, Product, cost, free_tiles, registers, resident

BLOCKS = (1, 2, 4, 8)  # per cluster; not every GPU allows more than 8
SIDES, TURNS = (1, 2, 4), (1, 2, 3)
# Cycles of a step without its products, measured on an H200: from the moment a state is computed until it is everywhere,
# and for every turn after the first.
EXCHANGE, TURN = 950, 450
RESIDENT = 2  # blocks that share a multiprocessor, for which these cycles hold; more were not measured


@dataclass(frozen=True)
class Shape:
    """One kernel: `count` blocks share the rows of W (n, n) and process turns * side sequences, `side` of them per product.

    product: Shape of the product with one block's share of the rows.
    """

    n: int
    count: int
    product: Product
    side: int = 1
    turns: int = 1

    program: ClassVar[nvrtc.Program] = nvrtc.Program("cluster.cu", ("forward", "backward"))
    m: ClassVar[int] = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.product.threads

    @property
    def sequences(self) -> int:
        """Sequences of a cluster."""
        return self.side * self.turns

    @property
    def bytes(self) -> int:
        """Dynamic shared memory of a block: barriers, two states of each sequence, then weights."""
        states = 2 * self.sequences * (self.count + 1) * self.product.rows
        return 16 * self.turns + 4 * states + self.product.shared

    @property
    def macros(self) -> dict[str, int]:
        """The macros for compiling cluster.cu, without those of the activation."""
        return {
            "N": self.n,
            "BLOCKS": self.count,
            "SHARE": self.product.rows,
            "THREADS": self.threads,
            "LANES1": self.product.lanes,
            "HELD1": self.product.held,
            "SIDE": self.side,
            "TURNS": self.turns,
        }

    def cost(self, batch: int) -> float:
        """Return the cycles of a step of this many sequences, by count."""
        latency, work = EXCHANGE + (self.turns - 1) * TURN, self.turns * self.product.cycles(self.side)
        blocks = min(resident(self.threads, self.product.held, self.bytes), RESIDENT)
        return cost(self.clusters(batch), at_once(self.count), blocks, latency, work)

    def clusters(self, batch: int) -> int:
        """Return the number of clusters for this many sequences."""
        return -(-batch // self.sequences)

    def blocks(self, batch: int) -> int:
        """Return the number of blocks for this many sequences."""
        return self.count * self.clusters(batch)

    def describe(self) -> str:
        """Return a one-line description of the strategy."""
        sequences = "one sequence" if self.sequences == 1 else f"{self.sequences} sequences"
        place = "multiprocessor" if self.count == 1 else f"cluster of {self.count} multiprocessors"
        return f"{sequences} per {place}, {self.threads} threads" + " in each" * (self.count > 1)


_at_once: dict[int, int] = {}  # the driver's answers


def at_once(count: int) -> int:
    """Return how many clusters of this many blocks run at once: the driver's answer, or that of an H200 if it gives none."""
    if count not in _at_once:
        said = _by_driver(count)
        if said is None:
            return multiprocessor.CLUSTERS[count] * multiprocessor.number() // multiprocessor.NUMBER
        _at_once[count] = said
    return _at_once[count]


def _by_driver(count: int) -> int | None:
    """Query the driver, for the current GPU only, since the query creates a context on the GPU.

    Return None without a GPU or NVRTC, if the driver fails, and inside a capture, which the query would end. The shape
    that is then chosen is correct, though perhaps not the fastest.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return None
    device = torch.device("cuda", torch.cuda.current_device())
    if nvrtc.missing(device):
        return None
    try:
        return nvrtc.clusters_at_once(device, count, multiprocessor.shared_limit())
    except BackendError:
        return None


@functools.lru_cache(maxsize=256)
def best(n: int, batch: int) -> Shape | None:
    """Return the shape of least cost for this many sequences; None if no cluster can hold W or no GPU here has clusters."""
    if not multiprocessor.has_clusters():
        return None
    possible = [shape for shape in shapes(n) if at_once(shape.count)]
    return min(possible, key=lambda shape: shape.cost(batch), default=None)


@functools.cache
def shapes(n: int) -> tuple[Shape, ...]:
    """Return every shape that fits, with one pass over the rows, since several passes are slow."""
    found = []
    for count in BLOCKS:
        rows = -(-n // (4 * count)) * 4
        if rows * (count - 1) >= n:
            continue  # a block would have no rows
        for threads in range(WARP, 512 + 1, WARP):
            for lanes in (4, 8, 16, 32):
                product = Product(rows, n, threads, lanes)
                if product.passes == 1 and product.quads <= 64:
                    found += _of_sequences(n, count, product)
    return tuple(found)


def _of_sequences(n: int, count: int, product: Product) -> list[Shape]:
    """Return the shapes of one product for every number of sequences that fits into registers and shared memory."""
    found = []
    for side in SIDES:
        tiles = free_tiles(registers(product.threads), side)
        if 4 * side > product.lanes or tiles < 0:
            continue
        for turns in TURNS:
            if count == side == turns == 1:
                continue  # chain.cu is faster
            held = dataclasses.replace(product, held=min(product.quads, tiles))
            shape = Shape(n, count, held, side, turns)
            if shape.bytes <= multiprocessor.shared_limit():
                found.append(shape)
    return found
