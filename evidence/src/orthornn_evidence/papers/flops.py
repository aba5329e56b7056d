"""The multiplications and additions of one step through the hidden-to-hidden connections, counted while they are made.

Algorithm 1 of Mhammedi et al., 2017, and the compact WY form of its Theorem 2, on vectors that leave out the zeros
above the trapezoid. A product, a sum and a quotient are one operation each. Norms (one a sequence) are not counted, as
in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Counter:
    """Operations so far."""

    count: int = 0

    def dot(self, a: np.ndarray, b: np.ndarray) -> float:
        """Return a'b."""
        self.count += 2 * len(a) - 1
        return float(a @ b)

    def scaled(self, factor: float, value: float) -> float:
        """Return factor * value."""
        self.count += 1
        return factor * value

    def minus(self, target: np.ndarray, factor: float, vector: np.ndarray) -> np.ndarray:
        """Return target - factor * vector."""
        self.count += 2 * len(vector)
        return target - factor * vector


@dataclass(frozen=True)
class Step:
    """The results of one step. forward, backward: operations."""

    C: np.ndarray
    grad_h: np.ndarray
    grad_U: np.ndarray
    forward: int
    backward: int


def algorithm1(U: np.ndarray, h: np.ndarray, d: np.ndarray) -> Step:
    """Run Algorithm 1 on U (N, M), lower trapezoid, h (N,) and d = dL/dC (N,). H is stored, not recomputed."""
    n, m = U.shape
    scale = [2 / float(U[k:, k] @ U[k:, k]) for k in range(m)]
    forward, backward = Counter(), Counter()
    H = np.zeros((n, m + 1))
    H[:, m] = h
    h_tilde = np.zeros(m)
    for k in reversed(range(m)):
        u = U[k:, k]
        h_tilde[k] = forward.scaled(scale[k], forward.dot(u, H[k:, k + 1]))
        H[:, k] = H[:, k + 1]
        H[k:, k] = forward.minus(H[k:, k + 1], h_tilde[k], u)
    g, G = d.copy(), np.zeros((n, m))
    for k in range(m):
        u = U[k:, k]
        c = backward.scaled(scale[k], backward.dot(u, g[k:]))
        g[k:] = backward.minus(g[k:], c, u)
        backward.count += n - k  # h~ g, whose sign goes with the next line
        G[k:, k] = backward.minus(-h_tilde[k] * g[k:], c, H[k:, k + 1])
    return Step(H[:, 0], g, G, forward.count, backward.count)


def compact_wy_forward(U: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, int]:
    """Return C = h - U T^-1 U'h by a triangular solve, and its operations; T is given."""
    m = U.shape[1]
    T = np.triu(U.T @ U, 1) + np.diag((U * U).sum(0) / 2)
    counter = Counter()
    y = np.array([counter.dot(U[k:, k], h[k:]) for k in range(m)])
    for k in reversed(range(m)):
        if k + 1 < m:
            y[k] -= counter.dot(T[k, k + 1 :], y[k + 1 :])
            counter.count += 1
        y[k] = counter.scaled(1 / T[k, k], y[k])
    C = h.copy()
    for k in range(m):
        C[k:] = counter.minus(C[k:], y[k], U[k:, k])
    return C, counter.count


def dense(n: int) -> tuple[int, int]:
    """Return the operations of W h, and of W'd and the outer product d h' together."""
    product = n * (2 * n - 1)
    return product, product + n * n


def published(n: int, m: int) -> dict[str, int]:
    """Return the counts of Table 2."""
    return {
        "oRNN FP": (4 * n - m + 2) * m,
        "oRNN BP": (7 * n - 2 * m + 3) * m,
        "oRNN BP, H recomputed": (11 * n - 3 * m + 5) * m,
        "sRNN FP": 2 * n * n - n,
        "sRNN BP": 3 * n * n - n,
    }
