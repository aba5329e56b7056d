"""Fixed divisions of one collection into training, validation and test, by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._checks import check_number
from ...errors import ArgumentError
from ..files.cells import coded
from .streams import stream

PARTS = ("train", "validation", "test")


def counts(total: int, validation_share: float, test_share: float) -> tuple[int, int, int]:
    """Return how many of `total` >= 3 are for training, validation and test: at least one each."""
    check_number("validation_share + test_share", validation_share + test_share, 0, 0.99)
    validation = max(1, round(validation_share * total))
    test = max(1, round(test_share * total))
    while validation + test >= total:
        validation, test = (validation - 1, test) if validation > test else (validation, test - 1)
    return total - validation - test, validation, test


def check_no_shares(task: Any, where: str, folder: Path) -> None:
    """Raise ArgumentError if a task whose folder names the parts itself was given a share or a seed for dividing it.

    where: The data that are divided, for the error.
    """
    for name in ("validation_share", "test_share", "split_seed"):
        value, default = getattr(task, name), getattr(type(task), name)
        if value != default:
            raise ArgumentError(
                f"Expected {name}, --{name.replace('_', '-')}, only with {where}, but got {value} for the folder {folder}, "
                f"whose files are the parts. Leave it out."
            )


def shares(
    total: int, validation_share: float, test_share: float, seed: int, classes: Sequence[Any] | None = None
) -> dict[str, np.ndarray]:
    """Return which of `total` >= 3 are for what: int64, each in ascending order, none in two.

    classes: The class of each, if every part is to have about the same share of each class.
    """
    for part, share in (("validation", validation_share), ("test", test_share)):
        if share == 0:
            raise ArgumentError(
                f"Expected {part}_share, --{part}-share, above 0, since each part has something, but got 0. Leave it out."
            )
    sizes = dict(zip(PARTS, counts(total, validation_share, test_share)))
    return divided(np.arange(total), sizes, seed, classes)


def divided(
    which: np.ndarray, sizes: dict[str, int], seed: int, classes: Sequence[Any] | None = None
) -> dict[str, np.ndarray]:
    """Return `these`, in parts of these sizes, which add up to them; as `shares` has them."""
    order = stream("split", seed).permutation(len(which))
    if classes is None:
        parts = np.split(order, np.cumsum(list(sizes.values()))[:-1])
        return {name: np.sort(which[part]) for name, part in zip(sizes, parts)}
    _, codes = coded(map(str, classes))
    left = order[np.argsort(codes[order], kind="stable")]  # those of a class together, at random within it
    found = {}
    for name, size in [*sizes.items()][:0:-1]:
        offset = stream("split", seed, 1).random()
        chosen = np.floor((np.arange(size) + offset) * len(left) / max(size, 1)).astype(np.int64)
        found[name] = np.sort(which[left[chosen]])
        left = np.delete(left, chosen)
    first = next(iter(sizes))
    return {first: np.sort(which[left]), **{name: found[name] for name in sizes if name != first}}
