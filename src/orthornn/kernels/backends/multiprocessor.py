"""The registers and the shared memory of one multiprocessor (SM), which hold the weights of a recurrence."""

from __future__ import annotations

import functools

import torch

REGISTERS = 65536  # of 32 bits
SHARED = 227 * 1024  # bytes of shared memory that one thread block can have on sm_90


@functools.cache
def shared_limit() -> int:
    """Return bytes of shared memory that a block can have on every GPU here: SHARED at most, and where there is none."""
    if not torch.cuda.is_available():
        return SHARED
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return min(SHARED, *(getattr(device, "shared_memory_per_block_optin", 48 * 1024) for device in devices))
