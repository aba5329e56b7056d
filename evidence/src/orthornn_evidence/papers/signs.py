"""A search for sign changes of u_1 under the rule "set u_1 to -1 if u_1 <= 0 and to 1 otherwise after each update".

A step of Adam changes a number by at most rate * (1 - beta_1) / sqrt(1 - beta_2), 3.16 times the rate with the usual
betas. From +-1, a rate below 0.316 therefore never reaches the other side, and det W retains the sign it was drawn
with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from orthornn.parametrizations import Householder

REACH = (1 - 0.9) / (1 - 0.999) ** 0.5
"""The largest step of Adam over its rate."""


@dataclass(frozen=True)
class Flips:
    """flips of the sign of u_1; farthest: how far from +-1 an update brought it; distance: ||W - target||_F at the end."""

    flips: int
    farthest: float
    distance: float


def follow(n: int, rate: float, updates: int, seed: int) -> Flips:
    """Fit W (N, N), m = n, to an orthogonal matrix of the other determinant with Adam and the paper's rule."""
    generator = torch.Generator().manual_seed(seed)
    method = Householder(u1="soft").bind(n)
    (packed,) = method.initial(generator)
    target, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))
    if torch.linalg.det(target) * torch.linalg.det(method(packed)) > 0:
        target = torch.cat([-target[:1], target[1:]])
    free = torch.nn.Parameter(packed)
    optimizer = torch.optim.Adam([free], rate)
    flips, farthest = 0, 0.0
    loss = (method(free) - target).square().sum()
    for _ in range(updates):
        optimizer.zero_grad()
        loss = (method(free) - target).square().sum()
        loss.backward()
        before = float(free[-1].detach())
        optimizer.step()
        with torch.no_grad():
            after = float(free[-1])
            farthest = max(farthest, abs(after - before))
            sign = -1.0 if after <= 0 else 1.0
            flips += sign != before
            free[-1] = sign
    return Flips(flips, farthest, float(loss.detach().sqrt()))
