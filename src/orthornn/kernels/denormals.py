"""Treat denormal numbers, smaller than the smallest normal one, as zero while a network is trained."""

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
    """Treat denormal numbers as zero inside the context, on every CPU thread that torch uses.

    A gradient that vanishes over a thousand steps, as in an LSTM or a tanh RNN, becomes denormal during the backward
    pass; so do the squares of small gradients, which Adam averages, once a network has learned its task. A processor
    may be many times slower on such numbers, and they contribute nothing to learning. `orthornn train` and
    `orthornn.train` do this automatically; use the context in custom loops. `torch.set_flush_denormal` affects only the
    calling thread.

    On exit every thread returns to its previous setting. Without the compiled kernels, or if they have no threads
    (which `orthornn doctor` reports), the context affects only this thread and threads that are started inside it. It
    has no effect if `torch.set_flush_denormal` has none. As a decorator it applies to the function.
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
    """Set it for each of torch's threads, this one first, and return the previous settings."""
    if extension.native is not None:
        return list(extension.native.exchange_denormals(as_zero))
    before = sys.float_info.min / 2 == 0.0
    torch.set_flush_denormal(as_zero[0])
    return [before]
