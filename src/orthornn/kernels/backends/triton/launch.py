"""Launch parameters of the Triton kernels: how much of the weights stays on the chip, tile sizes, warps. No triton
here.

A multiprocessor (SM) of an H100 or H200 has 65536 registers of 32 bits, at most 255 a thread, and 227 KB of shared
memory. A program is one SM's work. Triton holds what is loaded before the time loop in registers, so a strategy is
resident when weights of at most RESIDENT numbers are, leaving half of the registers or more to everything else.

strategy     weights                              state                      used for
resident     in registers, read once              one sequence a program     whatever fits
tiles        in shared memory, read once          BB sequences a program     what fits, many sequences, tf32 allowed
streamed     read every step, from L1 or L2       one sequence a program     compact WY beyond the registers
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...call import Call
from .. import multiprocessor, tf32

# Of 65536 registers: weights take at most 40960 (80 a thread with 16 warps), and the compiler the others.
RESIDENT = 40960
ALIGNED = 16  # numbers: Triton specializes kernels on strides that are multiples of it
MANY = 512  # sequences from which on blocks of 16 with the tensor cores beat single sequences (derived, not measured)
BLOCK: int | None = None  # tests set it, to run both kinds of program


@dataclass(frozen=True)
class Strategy:
    """A name of the table above, and what the kernel is specialized on. sequences: of one program. shared: bytes of
    shared memory that it takes, at most.
    """

    name: str
    sequences: int
    constants: dict[str, Any]
    shared: int = 0

    def grid(self, batch: int) -> tuple[int]:
        """Return the number of programs."""
        return (-(-batch // self.sequences),)


def device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make the tensor's GPU the current one, where kernels are launched."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below the number (at least 1)."""
    return 1 << max(number - 1, 0).bit_length()


def warps(numbers: int, most: int = 8, each: int = 64) -> int:
    """Return the warps of 32 threads with `each` of so many numbers per thread: a power of two, 1 to `most`.

    8 warps have all the registers of an SM, 255 a thread; 16 of 128 were seen to spill more.
    """
    return max(1, min(most, power_of_two(-(-numbers // (32 * each)))))


def compiler_options(count: int) -> dict[str, int]:
    """Launch options: all the registers that so many warps can have, since one program has an SM to itself.

    Left to itself the assembler was seen to settle for 32 registers a thread and to spill the weights.
    """
    return {"num_warps": count, "num_stages": 1, "maxnreg": min(255, 65536 // (32 * count))}


def padded(matrix: Tensor) -> Tensor:
    """Return the matrix with zeros that make its rows multiples of ALIGNED numbers.

    Without them Triton 3.6 was seen to spill five times as much of W.
    """
    return pad(matrix, (0, -matrix.shape[1] % ALIGNED)).contiguous()


def specialized(call: Call) -> dict[str, Any]:
    """Return what every kernel is compiled for besides its strategy."""
    activation = call.options.activation
    return {
        "CODE": activation.code,
        "UNIT": activation.parameter == "unit",
        "PAIR": activation.parameter == "pair",
        "PACKED": call.layout.is_ragged,
    }


def worth_blocks(batch: int) -> bool:
    """Return whether so many sequences are taken in blocks of 16, by the tensor cores."""
    return tf32.allowed() and batch >= MANY


def shared_bytes(held: int, block: int, width: int) -> int:
    """Return the bytes of shared memory that a program takes, at most: weights and states that are operands of the
    tensor cores go through it. benchmarks/compile_ahead.py compares them with what is taken.
    """
    return 0 if block == 1 else 4 * (held + 3 * block * width)


def fits(strategy: Strategy) -> bool:
    """Return whether a program has the shared memory that it takes, on every GPU here."""
    return strategy.shared <= multiprocessor.shared_limit()


def compact_wy_strategy(n: int, m: int, batch: int, block: int | None = None) -> Strategy:
    """Return the strategy of least cost. block: sequences of one program (1, or a power of two from 16 on), chosen if
    None.
    """
    block = BLOCK if block is None else block
    if block is None:
        if worth_blocks(batch) and fits(blocks := compact_wy_strategy(n, m, batch, 16)):
            return blocks
        block = 1
    vector = block == 1
    least = 1 if vector else 16
    P, M = max(power_of_two(n - n // 2), least), max(power_of_two(m), least)
    both, one = 4 * P * M, 2 * P * M + M * M
    resident = both <= RESIDENT or one <= RESIDENT
    factored = resident and both > RESIDENT
    held = one if factored else both
    if not resident:
        M = max(least, RESIDENT // (8 * P))  # a chunk of U and V is half of what fits
        held = 4 * P * M
    constants = {
        "VECTOR": vector,
        "RESIDENT": resident,
        "FACTORED": factored,
        "PRECISION": "tf32" if tf32.allowed() else "ieee",
        "P": P,
        "MB": power_of_two(M + 1) // 2 if not resident else M,
        "BB": block,
        **compiler_options(warps(held, 8 if vector else 16)),
    }
    name = ("resident" if vector else "tiles") if resident else "streamed"
    return Strategy(name, block, constants, shared_bytes(held, block, 2 * P))


def unit_blocks(n: int, paired: bool, least: int = 1) -> tuple[int, int, int]:
    """Return N1, P1, P2 of a dense state: units [0, N1) padded to P1, the others to P2 <= P1.

    Halves if units are paired. Otherwise the smallest P1 + P2 of powers of two with P2 >= P1 / 4 (N=170: 128 + 64).
    """
    if paired:
        P = max(power_of_two(n - n // 2), least)
        return n - n // 2, P, P
    whole = power_of_two(n)
    choices = [(P1, P1 // share) for P1 in (whole, max(whole // 2, 1)) for share in (4, 2, 1)]
    choices = [(max(P1, least), max(P2, least, 1)) for P1, P2 in choices if n <= P1 + P2]
    P1, P2 = min(choices, key=lambda choice: (sum(choice), choice[0]))
    return min(n, P1), P1, P2


def dense_strategy(n: int, paired: bool, batch: int, block: int | None = None) -> Strategy | None:
    """Return what compact_wy_strategy does, for a dense W; paired: whether the activation acts on pairs. None if W does
    not fit.
    """
    block = BLOCK if block is None else block
    if block is None:
        blocks = dense_strategy(n, paired, batch, 16) if worth_blocks(batch) else None
        if blocks is not None and fits(blocks):
            return blocks
        block = 1
    vector = block == 1
    n1, P1, P2 = unit_blocks(n, paired, 1 if vector else 16)
    held = (P1 + P2) ** 2
    if held > RESIDENT:
        return None
    constants = {
        "n1": n1,
        "VECTOR": vector,
        "PRECISION": "tf32" if tf32.allowed() else "ieee",
        "P1": P1,
        "P2": P2,
        "BB": block,
        **compiler_options(warps(held, 8 if vector else 16)),
    }
    return Strategy("resident" if vector else "tiles", block, constants, shared_bytes(held, block, P1 + P2))
