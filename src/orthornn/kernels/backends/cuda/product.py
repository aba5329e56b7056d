"""The shape of one product of product.cuh: the distribution of a matrix over the threads of a block, and its cost.

A matrix is distributed in 4 x 4 tiles; a thread holds `held` tiles of a row of tiles in registers and reads the others
from shared memory. The cost counts issue slots of one multiprocessor (SM): 4 warps issue a multiply-add per cycle, shared
memory delivers 128 bytes per cycle, a shuffle takes one cycle. Several passes over the rows take SEVERAL_PASSES times
their count (measured on an H200: reflections (512, 32) with 256 and with 512 threads).
"""

from __future__ import annotations

from dataclasses import dataclass

from . import multiprocessor

SEVERAL_PASSES = 14
RESERVE = 48  # registers that a thread needs in addition to its weights
WARP = 32


@dataclass(frozen=True)
class Product:
    """The shape of one product: rows x columns over `threads` threads, with `lanes` threads per group of rows."""

    rows: int
    columns: int
    threads: int
    lanes: int
    held: int = 0

    @property
    def passes(self) -> int:
        """The number of passes in which groups of 4 rows cover all rows."""
        return -(-self.rows // (4 * (self.threads // self.lanes)))

    @property
    def quads(self) -> int:
        """Tiles of 4 columns per thread."""
        return -(-self.columns // (4 * self.lanes))

    @property
    def shared(self) -> int:
        """Bytes of weights in shared memory."""
        return self.passes * (self.quads - self.held) * 64 * self.threads

    @property
    def vector(self) -> int:
        """Length of the padded vector."""
        return 4 * self.lanes * self.quads

    def cycles(self, vectors: int = 1) -> float:
        """Return the issue slots of a step for this many vectors: multiply-adds, reads of vectors, shuffles, and reads of
        weights, which the vectors share.
        """
        warps = self.threads / WARP
        tiles = self.passes * self.quads
        from_shared = self.passes * (self.quads - self.held)
        shuffles = self.passes * (3 + max(self.lanes // 4, 1).bit_length() - 1)
        latency = self.passes * (16 * self.quads + 25 * (2 + max(self.lanes // 8, 1).bit_length()))
        count = max(warps * (vectors * (4 * tiles + 2 * tiles + shuffles) + 16 * from_shared), latency)
        return count if self.passes == 1 else SEVERAL_PASSES * count


def registers(threads: int) -> int:
    """Return the registers available per thread: a quarter of a multiprocessor's for its warps, in multiples of 8."""
    warps = -(-threads // WARP)
    return min(255, multiprocessor.REGISTERS // 4 // (-(-warps // 4) * WARP) // 8 * 8)


def free_tiles(registers: int, vectors: int = 1) -> int:
    """Return the number of tiles that a thread with this many registers can hold; negative if the kernel cannot run."""
    return (registers - RESERVE - 8 * (vectors - 1)) // 16


def resident(threads: int, tiles: int, shared: int) -> int:
    """Return how many blocks of a kernel fit on one multiprocessor at once, if each thread holds this many tiles."""
    registers = threads * min(255, RESERVE + 16 * tiles)
    return max(min(multiprocessor.REGISTERS // registers, multiprocessor.shared_limit() // shared), 1)


def cost(blocks: int, at_once: int, resident: int, latency: float, work: float) -> float:
    """Return the cycles per step of a launch.

    Args:
        blocks: Number of blocks, or clusters, of the launch.
        at_once: Number that run at once, if each has its multiprocessors to itself.
        resident: Number that can share a multiprocessor; they share its issue slots and hide each other's latency.
        latency: Cycles per step during which a block waits.
        work: Issue slots per step of a block.
    """
    shared_by = min(resident, max(-(-blocks // at_once), 1))
    return max(-(-blocks // (at_once * shared_by)), 1) * (latency + shared_by * work)
