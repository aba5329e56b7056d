"""Fixed divisions of one collection into training, validation and test, by a seed."""

from __future__ import annotations

import numpy as np

from ..._checks import check_number
from .streams import stream


def counts(total: int, validation_share: float, test_share: float) -> tuple[int, int, int]:
    """Return how many of `total` >= 3 are for training, validation and test: at least one each."""
    check_number("validation_share + test_share", validation_share + test_share, 0, 0.99)
    validation = max(1, round(validation_share * total))
    test = max(1, round(test_share * total))
    while validation + test >= total:
        validation, test = (validation - 1, test) if validation > test else (validation, test - 1)
    return total - validation - test, validation, test


def shares(total: int, validation_share: float, test_share: float, seed: int) -> dict[str, np.ndarray]:
    """Return which of `total` >= 3 are for training, validation and test: int64, each in ascending order, none in two."""
    train, validation, _ = counts(total, validation_share, test_share)
    order = stream("split", seed).permutation(total)
    parts = np.split(order, [train, train + validation])
    return {name: np.sort(part) for name, part in zip(("train", "validation", "test"), parts)}
