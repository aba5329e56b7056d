"""The registers and the shared memory of one multiprocessor (SM), which hold the weights of a recurrence."""

from __future__ import annotations

import functools

import torch

REGISTERS = 65536  # of 32 bits
NUMBER = 132  # of an H100 or H200
CLUSTERS = {1: NUMBER, 2: 66, 4: 30, 8: 15}  # multiprocessors per cluster: clusters that run at once on an H200
SHARED = 227 * 1024  # bytes of shared memory that one thread block can have on sm_90


@functools.cache
def shared_limit() -> int:
    """Return the bytes of shared memory that a block can have on every GPU here: at most SHARED; SHARED without a GPU."""
    if not torch.cuda.is_available():
        return SHARED
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return min(SHARED, *(getattr(device, "shared_memory_per_block_optin", 48 * 1024) for device in devices))


@functools.cache
def number() -> int:
    """Return the number of multiprocessors of the smallest GPU here; that of an H100 without a GPU."""
    if not torch.cuda.is_available():
        return NUMBER
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return min(device.multi_processor_count for device in devices)


@functools.cache
def has_clusters() -> bool:
    """Return whether every GPU here has clusters of thread blocks (compute capability 9.0 and later)."""
    if not torch.cuda.is_available():
        return True
    return all(torch.cuda.get_device_capability(index)[0] >= 9 for index in range(torch.cuda.device_count()))
