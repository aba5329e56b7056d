"""The specification of rotations over irregular time: plain torch, a loop over steps, differentiable any number of
times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...layout import restarted
from ..call import States
from .call import IrregularCall


def turned(h: Tensor, angles: Tensor, rates: Tensor, dt: Tensor) -> Tensor:
    """Return states after a time without input, (B, N) in float64.

    Args:
        h: States (B, N).
        angles: omega (N//2,), float64.
        rates: lambda (N - N//2,), float64.
        dt: (B,), float64.
    """
    turn, factor = dt.unsqueeze(-1) * angles, torch.exp(-dt.unsqueeze(-1) * rates)
    half, single = turn.shape[-1], rates.shape[0] - turn.shape[-1]
    top, middle, low = h.double().split([half, single, half], -1)
    pairs = factor[..., :half]
    c, s = pairs * turn.cos(), pairs * turn.sin()
    return torch.cat([c * top + s * low, factor[..., half:] * middle, c * low - s * top], -1)


def forward(call: IrregularCall) -> States:
    """Return the states of a call; they are computed in float64 and rounded when they are returned."""
    layout, h, dtype = call.layout, call.h0.double(), call.h0.dtype
    states, ended = [], []
    steps = zip(layout.split(layout.flatten(call.x)), layout.split(layout.flatten(call.dt)), layout.split_resets())
    for x, dt, reset in steps:
        if x.shape[0] < h.shape[0]:
            ended.append(h[x.shape[0] :])
        h = restarted(h[: x.shape[0]], reset, None if call.restart is None else call.restart.double())
        h = turned(h, call.angles, call.rates, dt) + x
        states.append(h)
    every = layout.join(states).to(dtype) if states else call.h0.new_zeros(layout.shape(h.shape[1]))
    last = torch.cat([h, *reversed(ended)]).to(dtype)
    return States(None if call.options.only_last else every, last)
