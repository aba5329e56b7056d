"""Finite groups by name, as multiplication tables.

name        elements                                                          generators
S2 .. S7    all permutations of n objects                                     (1 2), (1 2 ... n)
A3 .. A7    the even permutations                                             the 3-cycles (1 2 k)
Z1, Z2, ..  numbers modulo n, added                                           1
D3, D4, ..  rotations and reflections of the polygon with n corners, 2n       a turn by 1/n, a reflection

table[a, b] is a after b: for permutations i -> a(b(i)).
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import NamedTuple

import numpy as np

from orthornn.errors import ArgumentError

_RANGES = {"S": (2, 7), "A": (3, 7), "Z": (1, 4096), "D": (3, 2048)}


class FiniteGroup(NamedTuple):
    """A group of G elements, numbered from 0.

    Attributes:
        name: Name, in the form of `group_named`.
        table: table[a, b] is the product ab, int64 (G, G).
        identity: Its number.
        generators: The numbers of elements that generate the group.
        labels: A name of each element: the images of a permutation, a number, or r3 and s3 (a reflection after r3).
    """

    name: str
    table: np.ndarray
    identity: int
    generators: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def order(self) -> int:
        """G."""
        return len(self.table)

    def after(self, word: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """Return the product of the first t + 1 elements at each step t, the latest on the left: (T, B) from (T, B).

        Args:
            word: Elements, int64 (T, B).
            start: What they are multiplied to, (B,). Default: None, the identity.
        """
        states = np.full(word.shape[1:], self.identity) if start is None else start
        products = np.empty_like(word)
        for t, letter in enumerate(word):
            states = self.table[letter, states]
            products[t] = states
        return products


@functools.lru_cache(maxsize=16)
def group_named(name: str) -> FiniteGroup:
    """Return the group of this name: S5, A5, Z60 or D4, say.

    Raises:
        ArgumentError: If the name is unknown.
    """
    match = re.fullmatch(r"([SAZD])(\d{1,4})", name) if isinstance(name, str) else None
    if match is None or not _RANGES[match[1]][0] <= int(match[2]) <= _RANGES[match[1]][1]:
        known = ", ".join(f"{kind}{low} to {kind}{high}" for kind, (low, high) in _RANGES.items())
        raise ArgumentError(f"Expected a group ({known}), but got {name!r}. Write S5, say.")
    kind, n = match[1], int(match[2])
    if kind == "Z":
        numbers = np.arange(n)
        table = (numbers[:, None] + numbers) % n
        return FiniteGroup(name, table, 0, (1 % n,), tuple(map(str, numbers)))
    if kind == "D":
        # Element i is the turn by i; element n + i the reflection after it: s r^i. r s = s r^-1.
        turns, flips = np.arange(2 * n) % n, np.arange(2 * n) // n
        signs = 1 - 2 * flips
        after = (turns[:, None] * signs[None, :] + turns[None, :]) % n
        table = after + n * (flips[:, None] ^ flips[None, :])
        return FiniteGroup(name, table, 0, (1, n), tuple(f"{'rs'[i // n]}{i % n}" for i in range(2 * n)))
    return _permutations(name, n, even=kind == "A")


def _permutations(name: str, n: int, even: bool) -> FiniteGroup:
    every = np.array(list(itertools.permutations(range(n))))
    if even:
        inversions = sum((every[:, i] > every[:, j]).astype(int) for i, j in itertools.combinations(range(n), 2))
        every = every[inversions % 2 == 0]
    number = {tuple(images): i for i, images in enumerate(every.tolist())}
    place = n ** np.arange(n)
    code = np.full(n**n, -1)
    code[every @ place] = np.arange(len(every))
    table = np.stack([code[images[every] @ place] for images in every])
    if even:
        cycles = []
        for k in range(2, n):
            images = list(range(n))
            images[0], images[1], images[k] = 1, k, 0
            cycles.append(tuple(images))
    else:
        cycles = [(1, 0, *range(2, n)), (*range(1, n), 0)]
    generators = tuple(dict.fromkeys(number[images] for images in cycles))
    labels = tuple("".join(str(i + 1) for i in images) for images in every.tolist())
    return FiniteGroup(name, table, number[tuple(range(n))], generators, labels)
