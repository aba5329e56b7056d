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
    """Inside, this thread takes denormal numbers as zero; afterwards as before.

    Of torch's other threads, those that are started inside take them so from then on, and those that are there already
    take them as they did: torch.set_flush_denormal reaches the calling thread only, and a new thread inherits its state.
    A process that trains from the beginning, like the command line, has all of them started inside. Without effect
    where torch.set_flush_denormal has none.
    """
    before = counts_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
