"""Shapes of chain.cu: the weights of either recurrence in one multiprocessor (SM), one sequence per block.

`best` searches the few possible shapes for the one of least cost (product.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from . import multiprocessor, nvrtc
from .product import WARP, Product, cost, free_tiles, resident

STEP = 750  # cycles of a step without its products, measured on an H200


@dataclass(frozen=True)
class Shape:
    """One kernel's products: (W) or (into M, out of M)."""

    program: ClassVar[nvrtc.Program] = nvrtc.Program("chain.cu", ("forward", "backward"))

    n: int
    m: int
    products: tuple[Product, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.products[0].threads

    @property
    def bytes(self) -> int:
        """Dynamic shared memory: three states and h~, then weights."""
        state = -(-max(self.products[0].vector, self.n) // 4) * 4
        tilde = self.products[1].vector if self.m else 0
        return 4 * (3 * state + tilde) + sum(product.shared for product in self.products)

    @property
    def macros(self) -> dict[str, int]:
        """The macros for compiling chain.cu, without those of the activation."""
        macros = {"N": self.n, "M": self.m, "THREADS": self.threads}
        for k, product in enumerate(self.products, 1):
            macros |= {f"LANES{k}": product.lanes, f"HELD{k}": product.held}
        return macros

    @property
    def work(self) -> float:
        """Issue slots of a step, by count."""
        return sum(product.cycles() for product in self.products)

    def cost(self, batch: int) -> float:
        """Return the cycles of a step of this many sequences, by count."""
        tiles = sum(product.held * product.passes for product in self.products)
        blocks = resident(self.threads, tiles, self.bytes)
        return cost(batch, multiprocessor.number(), blocks, STEP, self.work)

    def blocks(self, batch: int) -> int:
        """Return the number of blocks for this many sequences."""
        return batch

    def describe(self) -> str:
        """Return a one-line description of the strategy."""
        in_shared = sum(product.shared for product in self.products)
        where = "registers" if not in_shared else f"registers and {in_shared // 1024} KB of shared memory"
        return f"one sequence per multiprocessor, {self.threads} threads, weights in {where}"


@functools.cache
def best(n: int, m: int) -> Shape | None:
    """Return the shape of least cost, or None if one SM cannot hold the weights. m = 0 is dense."""
    return min(shapes(n, m), key=lambda shape: shape.work, default=None)


def shapes(n: int, m: int) -> list[Shape]:
    """Return every shape that fits into one SM."""
    found = []
    for threads in range(WARP, 1024 + 1, WARP):
        # For some numbers of threads this exceeds `registers`, and a few tiles spill. Without it, GPUs without clusters
        # would have no kernel for the largest dense sizes.
        tiles = free_tiles(min(255, multiprocessor.REGISTERS // threads // 8 * 8))
        if tiles < 0:
            continue
        for lanes1 in (4, 8, 16, 32):
            for lanes2 in (4, 8, 16, 32) if m else (4,):
                first = Product(m or n, n, threads, lanes1)
                products = [first, Product(n, m, threads, lanes2)] if m else [first]
                if sum(p.passes * p.quads for p in products) > 64:
                    continue
                free, chosen = tiles, []
                for p in products:
                    held = min(p.quads, free // p.passes)
                    free -= held * p.passes
                    chosen.append(Product(p.rows, p.columns, threads, p.lanes, held))
                shape = Shape(n, m, tuple(chosen))
                if shape.bytes <= multiprocessor.shared_limit():
                    found.append(shape)
    return found
