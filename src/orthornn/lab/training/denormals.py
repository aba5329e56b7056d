"""Denormal numbers, those below the smallest normal one, as zero while a network is trained.

A gradient that vanishes over a thousand steps, as in an LSTM or a tanh RNN, becomes denormal on its way back. A processor
may be ten times slower on such numbers, and nothing is learned from them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch


def counts_as_zero() -> bool:
    """Return whether this thread takes denormal numbers as zero."""
    return sys.float_info.min / 2 == 0.0


@contextlib.contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Inside, this thread, and the threads that torch starts from it, take denormal numbers as zero.

    Afterwards this thread takes them as before. Without effect where torch.set_flush_denormal has none.
    """
    before = counts_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
