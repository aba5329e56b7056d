"""Random streams that are addressed, not carried along.

A batch is a function of (seed, step): a run that stops after any step goes on from there with no generator
state to save. Philox is a counter-based generator (Salmon et al., 2011): its key is the address, and
different keys give independent streams.
"""

from __future__ import annotations

import numpy as np

PURPOSES = ("train", "validation", "test", "order", "split")
_INDEX_BITS = 56  # beside the purpose in one 64-bit half of the key


def stream(purpose: str, seed: int, index: int = 0) -> np.random.Generator:
    """The generator of this purpose, seed (0 <= seed < 2^64) and index (0 <= index < 2^56)."""
    address = (PURPOSES.index(purpose) << _INDEX_BITS) | index
    return np.random.Generator(np.random.Philox(key=np.array([seed, address], dtype=np.uint64)))
