r"""The global Lipschitz bound of an LSTM for inputs in a range: what is known for all its inputs, without trying any.

With |h| < 1, gates and candidates of each unit have the largest values i, f, o, g, and the cell is at most
C_t = f C_{t-1} + i g. Derivatives of sigmoid and tanh are at most 1/4 and 1, so that the norms of dc and dh obey

    |dc_t| <= max f |dc_{t-1}| + (|C_{t-1}/4 U_f| + |i U_g| + |g/4 U_i|) |dh_{t-1}| + the same with w for U times |dx_t|
    |dh_t| <= max o |dc_t| + |tanh(C_t)/4 U_o| |dh_{t-1}| + |tanh(C_t)/4 w_o| |dx_t|

where a vector scales the rows of a matrix. The influence of step s is a product of 2 x 2 matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


@torch.no_grad()
def log10_influences(lstm: nn.LSTM, steps: int, low: float, high: float) -> Tensor:
    """Return log10 of by how much the last state moves at most if the input of a step moves by 1, (T,), float64.

    Args:
        lstm: Of one layer and direction.
        steps: Length of the sequences, T.
        low: Least value of an input.
        high: Largest value of an input.
    """
    w, U, first, second = (parameter.double().chunk(4) for parameter in lstm.parameters())  # each of i, f, g, o
    bias = [a + b for a, b in zip(first, second)]
    top = [u.abs().sum(1) + torch.maximum(v * low, v * high).sum(1) + b for u, v, b in zip(U, w, bias)]
    bottom = -U[2].abs().sum(1) + torch.minimum(w[2] * low, w[2] * high).sum(1) + bias[2]
    i, f, o = (top[k].sigmoid() for k in (0, 1, 3))
    g = torch.maximum(top[2].tanh().abs(), bottom.tanh().abs())

    def norm(rows: Tensor, A: Tensor) -> float:
        return float(torch.linalg.matrix_norm(rows[:, None] * A, 2))

    C, maps = torch.zeros_like(f), []
    for _ in range(steps):
        before, C = C, f * C + i * g
        cell, out = [], []
        for A in (U, w):
            cell.append(norm(before / 4, A[1]) + norm(i, A[2]) + norm(g / 4, A[0]))
            out.append(norm(C.tanh() / 4, A[3]))
        largest = float(o.max())
        kept = float(f.max())
        maps.append(
            (
                torch.tensor([[kept, cell[0]], [largest * kept, largest * cell[0] + out[0]]], dtype=torch.float64),
                torch.tensor([cell[1], largest * cell[1] + out[1]], dtype=torch.float64),
            )
        )
    row, scale, found = torch.tensor([0.0, 1.0], dtype=torch.float64), 0.0, []
    for M, m in reversed(maps):
        found.append(scale + math.log10(float(row @ m)))
        row = row @ M
        size = float(row.sum())
        row, scale = row / size, scale + math.log10(size)
    return torch.tensor(found[::-1], dtype=torch.float64)


def log10_in_energy(influences: Tensor) -> float:
    """Return log10 of the root of the sum of squares of influences that are given by their log10, (T,)."""
    return float(torch.logsumexp(2 * math.log(10) * influences, 0)) / (2 * math.log(10))
