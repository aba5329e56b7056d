"""The program of the chain has the solution of the unrolled network's, between attack and closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn_evidence.certificates.attack import most_moved
from orthornn_evidence.certificates.sdp import sdp_bound

cp = pytest.importorskip("cvxpy")
N, I, O = 4, 2, 2


def network(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    W = np.linalg.qr(random.standard_normal((N, N)))[0]
    return W, random.standard_normal((N, I)), random.standard_normal((O, N))


def unrolled(W: np.ndarray, V: np.ndarray, Y: np.ndarray, steps: int) -> float:
    """Return the bound by one matrix inequality of all states and inputs."""
    size = steps * (N + I)
    h = [np.eye(size)[t * N : (t + 1) * N] for t in range(steps)]
    x = [np.eye(size)[steps * N + t * I : steps * N + (t + 1) * I] for t in range(steps)]
    c, total = cp.Variable(nonneg=True), (Y @ h[-1]).T @ (Y @ h[-1])
    for t in range(steps):
        L = cp.diag(cp.Variable(N, nonneg=True))
        z = V @ x[t] + (W @ h[t - 1] if t else 0)
        term = h[t].T @ L @ (z - h[t])
        total = total + term + term.T - c * (x[t].T @ x[t])
    problem = cp.Problem(cp.Minimize(c), [(total + total.T) / 2 << 0])
    problem.solve(solver=cp.CLARABEL)
    return float(np.sqrt(problem.value))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_chain_is_the_unrolled_program_and_no_attack_is_above_it(steps):
    W, V, Y = network(steps)
    found = sdp_bound(W, V, Y, steps)
    assert found == pytest.approx(unrolled(W, V, Y, steps), rel=1e-4)
    assert found <= np.linalg.norm(Y, 2) * np.linalg.norm(V, 2) * steps**0.5 * (1 + 1e-5)
    parts = [torch.from_numpy(part) for part in (W, V, Y)]

    def run(x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[1], N).double()
        for row in x:
            h = torch.tanh(h @ parts[0].T + row @ parts[1].T)
        return h @ parts[2].T

    attack = most_moved(run, 0.1 * torch.randn(steps, 30, I).double(), 1e-4, updates=50)
    assert 0.2 * found < attack <= found * (1 + 1e-5)
