"""What is kept of a long sequence for its backward pass, and the lengths in which it is worked through.

mode         kept                                      made again in the backward pass
store        N numbers a step (compact WY: N + M)      nothing
checkpoint   the state before every segment            the segment, forwards
reverse      the state before every run of segments    the segment, backwards from its last state

segment. In steps. S segments keep S B N numbers, and the one at work needs for each of its steps at most a state, a
pre-activation and a delta, 3 N, and h~ and C~, 2 M. B (N T/k + k (3N + 2M)) is least at k = sqrt(T N / (3N + 2M)).

reverse. It keeps fewer states, so that its segments need not grow with T: LONGEST steps are as fast as any. A state that
was made backwards is wrong by rounding, and by how far W'W is off the identity, both once a step. README.md derives the
bound that is set on it, and how far apart the kept states therefore are.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .. import compact_wy
from .._checks import check_choice, check_integer
from ..activations import Activation
from ..errors import ArgumentError, OrthornnWarning

Mode = Literal["store", "checkpoint", "reverse"]
MODES = ("store", "checkpoint", "reverse")
LONGEST = 512


class Memory(NamedTuple):
    """A mode other than "store", with its lengths: steps of a segment, and segments from one kept state to the next."""

    mode: str
    segment: int
    run: int = 1


def check_memory(memory: str, segment: int | None) -> None:
    """ArgumentError unless `memory` is a mode and `segment` None or, where there are segments, a length."""
    check_choice("memory", memory, MODES)
    if segment is None:
        return
    check_integer("segment", segment, 1)
    if memory == "store":
        raise ArgumentError(
            f"segment={segment} was given, but memory='store' has no segments. Use memory='checkpoint' or 'reverse'."
        )


def make(memory: str, segment: int | None, T: int, n: int, m: int) -> Memory:
    """The mode with its segment: the one that was given, or the one of the smallest peak, for T steps."""
    if segment is None:
        known = not isinstance(T, torch.SymInt)  # a graph that is traced for any T has segments of one length
        segment = _segment(memory, T, n, m) if known else LONGEST
    return Memory(memory, segment)


def _segment(memory: str, T: int, n: int, m: int) -> int:
    # Even: the compiled compact form goes through U to and fro, so that the bits of a step depend on its parity.
    best = 2 * max(1, round(math.sqrt(T * n / (3 * n + 2 * m)) / 2))
    return best if memory == "checkpoint" else min(best, LONGEST)


def numbers(memory: Memory | None, T: int, batch: int, n: int, m: int, dtype: torch.dtype = torch.float32) -> int:
    """How many numbers a sequence holds at the peak, states and what the kernels keep beside them counted."""
    if memory is None:
        return T * batch * (n + m)
    apart = memory.segment * (1 if memory.mode == "checkpoint" else _run(memory.segment, T, n, 1.0))
    return batch * (n * -(-T // apart) + min(memory.segment, T) * (3 * n + 2 * m))


def reverse_bound(dtype: torch.dtype, T: int, n: int) -> float:
    """How far a state that was made backwards may be off, relative to the largest entry of the states around it."""
    return 8 * torch.finfo(dtype).eps * math.sqrt(max(T * n, 1))


def _run(segment: int, T: int, n: int, off: float) -> int:
    """Segments from one kept state to the next, where W'W is off the identity by so many eps."""
    return max(1, round(kept_every(T, n) / (max(off, 1.0) * segment)))


def kept_every(T: int, n: int) -> float:
    """How many steps lie between two kept states of a reversal, where W'W is off the identity by eps at most."""
    return math.sqrt(T * n) / 4


def settle_reverse(
    segment: int, T: int, activation: Activation, parameter: Tensor | None, matrix: Tensor
) -> tuple[Memory, str | None]:
    """How `reverse` is carried out for this phi and this W (N, N): with which runs, or as `checkpoint` and why."""
    n, eps = matrix.shape[0], torch.finfo(matrix.dtype).eps
    loss = activation.loss(parameter)
    if loss is not None:
        return Memory("checkpoint", segment), loss
    wide = matrix.double()
    gram = wide.mT @ wide - torch.eye(n, dtype=wide.dtype, device=wide.device)
    off = float(torch.linalg.matrix_norm(gram)) / math.sqrt(n) / eps
    if not (off <= 1 or off * min(segment, T) <= 4 * math.sqrt(T * n)):
        return Memory("checkpoint", segment), "W'W is too far off the identity (a gain, or an unconstrained W)"
    return Memory("reverse", segment, _run(segment, T, n, off)), None


def warn_of_checkpoint(reason: str) -> None:
    """Say, once for every reason, that a reversal is a checkpointing."""
    warnings.warn(
        f"memory='reverse' works as 'checkpoint' here: {reason}. The gradient is the same; pass memory='checkpoint' to "
        f"say that it is meant.",
        OrthornnWarning,
        stacklevel=3,
    )


def compact_matrix(U: Tensor, S: Tensor, base: compact_wy.Base) -> Tensor:
    """W (N, N) of rounded factors, as the recurrence applies them."""
    wide = None if base is None else (base[0].double(), base[1].double())
    rows = compact_wy.apply_base(torch.eye(U.shape[0], dtype=torch.float64, device=U.device), wide)
    return compact_wy.reflect(rows, U.double(), S.double())[0].mT.to(U.dtype)
