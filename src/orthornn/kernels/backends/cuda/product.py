"""The shape of one product of product.cuh: how a matrix is dealt out to the threads of a block, and what it costs.

A matrix is dealt out in 4 x 4 tiles; a thread holds `held` tiles of a row of tiles in registers and reads the others from
shared memory. The cost counts issue slots of one multiprocessor (SM): 4 warps issue a multiply-add a cycle, shared memory
delivers 128 bytes a cycle, a shuffle takes one cycle. Several passes over the rows take SEVERAL_PASSES times their count
(measured on an H200: reflections (512, 32) with 256 and with 512 threads).
"""

from __future__ import annotations

from dataclasses import dataclass

from . import multiprocessor

SEVERAL_PASSES = 14
RESERVE = 48  # registers a thread needs besides its weights
WARP = 32


@dataclass(frozen=True)
class Product:
    """The shape of one product: rows x columns over `threads` threads, `lanes` of them a group of rows."""

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
        """Tiles of 4 columns of one thread."""
        return -(-self.columns // (4 * self.lanes))

    @property
    def shared(self) -> int:
        """Bytes of weights in shared memory."""
        return self.passes * (self.quads - self.held) * 64 * self.threads

    @property
    def vector(self) -> int:
        """Numbers of the padded vector."""
        return 4 * self.lanes * self.quads

    def cycles(self, vectors: int = 1) -> float:
        """Issue slots of a step for so many vectors at once: multiply-adds, reads of vectors, shuffles, and reads of weights,
        which are made once.
        """
        warps = self.threads / WARP
        tiles = self.passes * self.quads
        from_shared = self.passes * (self.quads - self.held)
        shuffles = self.passes * (3 + max(self.lanes // 4, 1).bit_length() - 1)
        latency = self.passes * (16 * self.quads + 25 * (2 + max(self.lanes // 8, 1).bit_length()))
        count = max(warps * (vectors * (4 * tiles + 2 * tiles + shuffles) + 16 * from_shared), latency)
        return count if self.passes == 1 else SEVERAL_PASSES * count


def registers(threads: int) -> int:
    """Return the registers that a thread can have: a warp has those of one quarter of a multiprocessor, 8 at a time."""
    warps = -(-threads // WARP)
    return min(255, multiprocessor.REGISTERS // 4 // (-(-warps // 4) * WARP) // 8 * 8)


def free_tiles(registers: int, vectors: int = 1) -> int:
    """Return the tiles that a thread of so many registers can hold; negative if it cannot work at all."""
    return (registers - RESERVE - 8 * (vectors - 1)) // 16


def resident(threads: int, tiles: int, shared: int) -> int:
    """Return how many blocks of a kernel one multiprocessor can have at once, whose threads hold so many tiles."""
    registers = threads * min(255, RESERVE + 16 * tiles)
    return max(min(multiprocessor.REGISTERS // registers, multiprocessor.shared_limit() // shared), 1)


def cost(blocks: int, at_once: int, resident: int, latency: float, work: float) -> float:
    """Return the cycles of a step of a launch.

    Args:
        blocks: Of the launch, or clusters.
        at_once: How many of them run at once, if each has its multiprocessors to itself.
        resident: How many can share a multiprocessor: they share its issue slots, and hide each other's latency.
        latency: Cycles of a step in which a block waits.
        work: Issue slots of a step of a block.
    """
    shared_by = min(resident, max(-(-blocks // at_once), 1))
    return max(-(-blocks // (at_once * shared_by)), 1) * (latency + shared_by * work)
