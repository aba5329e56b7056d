"""Random streams that are addressed, not carried along.

A batch is a function of (seed, step): a run that stops after any step resumes from there with no generator
state to save. Philox is a counter-based generator (Salmon et al., 2011): its key is the address, and
different keys make independent streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from ..._checks import check_integer

PURPOSES = ("train", "validation", "test", "order", "split")
_LARGEST_SEED = (1 << 64) - 1
_INDEX_BITS = 56  # next to the purpose in one 64-bit half of the key


class _Key(ISeedSequence):
    """The key as a seed. Given as `key` it makes the same generator, after numpy has asked the system for entropy."""

    def __init__(self, *halves: int) -> None:
        self._key = np.array(halves, dtype=np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return self._key


def stream(purpose: str, seed: int, index: int = 0) -> np.random.Generator:
    """Return the generator of this purpose, seed (0 <= seed < 2^64) and index (0 <= index < 2^56).

    ArgumentError for a seed outside of that.
    """
    check_integer("seed", seed, 0, _LARGEST_SEED, "A seed is half of the key of a generator.")
    address = (PURPOSES.index(purpose) << _INDEX_BITS) | index
    return np.random.Generator(np.random.Philox(_Key(seed, address)))  # type: ignore[arg-type]  # a stub too narrow
