"""Denormal numbers, those below the smallest normal one, as zero while a network is trained."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import torch

from .backends.cpp import extension

_inside = threading.local()


@contextlib.contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Treat denormal numbers as zero inside the context, on every thread of the CPU that torch uses.

    A gradient that vanishes over a thousand steps, as in an LSTM or a tanh RNN, becomes denormal on its way back; so do the
    squares of small gradients, of which Adam keeps a mean, once a network has learned its task. A processor may be many
    times slower on such numbers, and nothing is learned from them. `orthornn train` and `orthornn.train` do this by
    themselves; it is meant for loops of your own. `torch.set_flush_denormal` reaches the calling thread alone.

    Afterwards every thread computes as before. Without the compiled kernels, or where these have no threads (which
    `orthornn doctor` tells), it reaches this thread and those that are started inside. Without effect where
    `torch.set_flush_denormal` has none. As a decorator it holds for the function.
    """
    if getattr(_inside, "entered", False):
        yield
        return
    before = _exchange([True] * torch.get_num_threads())
    _inside.entered = True
    try:
        yield
    finally:
        _inside.entered = False
        begun = torch.get_num_threads() - len(before)  # inside, from a thread that treats denormals as zero
        _exchange(before + [before[0]] * begun)


def _exchange(as_zero: list[bool]) -> list[bool]:
    """Set it for each of torch's threads, this one first; return what was so before."""
    if extension.native is not None:
        return list(extension.native.exchange_denormals(as_zero))
    before = sys.float_info.min / 2 == 0.0
    torch.set_flush_denormal(as_zero[0])
    return [before]
