r"""Lipschitz bound of a recurrent network in energy by a semidefinite program, as LipSDP and RNN-SDP compute it.

Let h_t = phi(W h_{t-1} + V x_t + b), with phi of slope in [0, 1] in every unit, and let differences of two sequences be
marked by D. For every diagonal matrix L_t >= 0,

    Dh_t' L_t (W Dh_{t-1} + V Dx_t - Dh_t) >= 0                                            (Fazlyab et al., 2019)

RNN-SDP (Hamelbeck & Schiffer, 2025) unrolls the network: it looks for the L_t and the least c for which the sum of these,
doubled, and c sum_t |Dx_t|^2 is at least |Y Dh_T|^2 for all vectors, a linear matrix inequality of T (N + I) rows. Its
sparsity is that of a chain, so it holds if and only if symmetric P_1, ..., P_T = Y'Y and P_0 = 0 exist with, for every t,

    Dh_t' P_t Dh_t - Dh_{t-1}' P_{t-1} Dh_{t-1} + 2 Dh_t' L_t (W Dh_{t-1} + V Dx_t - Dh_t) <= c |Dx_t|^2

(Agler et al., 1988). These T inequalities of 2N + I rows have the same solution and are solved faster. The bound is the
root of c. Here h_0 is given, which RNN-SDP lets move too. Numbers are those of the solver, not rounded outwards.
"""

from __future__ import annotations

import numpy as np


def sdp_bound(W: np.ndarray, V: np.ndarray, Y: np.ndarray, steps: int) -> float:
    """Return how far Y h_T moves at most for changes of the inputs of energy 1, from h_0 on.

    Args:
        W: (N, N). V: (N, I). Y: (O, N).
        steps: T.
    """
    import cvxpy as cp

    n, width = V.shape
    size = np.linalg.norm(Y, 2) * np.linalg.norm(V, 2)  # so that the solver sees numbers near 1
    V, Y = V / np.linalg.norm(V, 2), Y / np.linalg.norm(Y, 2)
    c = cp.Variable(nonneg=True)
    before, rules = None, []
    for t in range(steps):
        P = cp.Constant(Y.T @ Y) if t == steps - 1 else cp.Variable((n, n), symmetric=True)
        L = cp.diag(cp.Variable(n, nonneg=True))
        inputs, corner = -c * np.eye(width), P - 2 * L
        if before is None:
            matrix = cp.bmat([[inputs, V.T @ L], [L @ V, corner]])
        else:
            none = np.zeros((n, width))
            matrix = cp.bmat([[-before, none, W.T @ L], [none.T, inputs, V.T @ L], [L @ W, L @ V, corner]])
        rules.append((matrix + matrix.T) / 2 << 0)
        before = P
    problem = cp.Problem(cp.Minimize(c), rules)
    problem.solve(solver=cp.CLARABEL)
    return float(np.sqrt(problem.value) * size)
