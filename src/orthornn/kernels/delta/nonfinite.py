"""NaN and infinity in products over chunks of steps, which would add 0 times them to steps that they must not reach.

So the products get zeros in their place, and NaN is written over what they reach. A step that is not finite loses columns of
a state, until the next reset: all of a head by its keys, strengths or gate, one by an entry of its values, or by overflow.
What overflows in float64, within the triangular solve, and gradients that overflow may still reach further in their chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .call import DeltaCall


class Lost(NamedTuple):
    """Where the tensors of a call are not finite.

    Shape:
        - q: (..., H, 1). steps: (..., H, V), the columns that a step loses. state, restart: (B, H, V), columns.
    """

    q: Tensor
    steps: Tensor
    state: Tensor
    restart: Tensor | None


def finite(call: DeltaCall) -> tuple[DeltaCall, Lost]:
    """Return a call with zeros in place of what is not finite, and where that is. Zeros get no gradient."""
    q, k, v, beta, gate, state, restart = call.tensors()
    bad_q, bad_v, bad_state = _in_row(q), is_lost(v), is_lost(state)
    bad = (_in_row(k) | is_lost(beta).unsqueeze(-1)).any(-3)  # (..., H, 1)
    if gate is not None:
        # All of such a step: a gate of 0 that is 1 / (1 + inf) has a tangent of NaN.
        bad = bad | _in_row(gate)
        gate = gate.masked_fill(bad, 0)
    again = None
    if restart is not None:
        bad_restart = is_lost(restart)
        restart, again = restart.masked_fill(bad_restart, 0), bad_restart.any(-2)
    tensors = (
        q.masked_fill(bad_q, 0),
        k.masked_fill(bad.unsqueeze(-3), 0),
        v.masked_fill(bad_v, 0),
        beta.masked_fill(bad.squeeze(-1).unsqueeze(-2), 0),
        gate,
        state.masked_fill(bad_state, 0),
        restart,
    )
    return call.with_tensors(tensors), Lost(bad_q, bad | bad_v.any(-3), bad_state.any(-2), again)


def is_lost(x: Tensor) -> Tensor:
    """Return where x is NaN or infinite."""
    return x.detach() * 0 != 0


def _in_row(x: Tensor) -> Tensor:
    """Return where a row of x (..., w) has a NaN or an infinity, (..., 1)."""
    return (x.detach() * 0).sum(-1, keepdim=True) != 0


def reached(lost: Tensor, fresh: Tensor | None, state: Tensor, restart: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return which columns of a state are lost after each step, and at the end.

    Args:
        lost: Columns that a step loses.
        fresh: Where the state is replaced before a step, or None.
        state: Columns that are lost in the first state.
        restart: Columns that are lost in the state that replaces others, or None.

    Shape:
        - lost: (chunks, B, H, C, V). fresh: (chunks, B, 1, C, 1). state, restart: (B, H, V).
        - Output: (chunks, B, H, C, V), and (B, H, V).
    """
    if fresh is not None and restart is not None:
        lost = lost | (fresh & restart.unsqueeze(-2))
    rows = lost.permute(1, 2, 0, 3, 4).flatten(2, 3)
    count = torch.cat([state.unsqueeze(2), rows], 2).cumsum(2, dtype=torch.int32)
    since = count[:, :, 1:]
    if fresh is not None:
        again = fresh.permute(1, 2, 0, 3, 4).flatten(2, 3)
        since = since - torch.where(again, count[:, :, :-1], 0).cummax(2).values
    found = since > 0
    return found.unflatten(2, (lost.shape[0], lost.shape[3])).permute(2, 0, 1, 3, 4), found[:, :, -1]


def over(out: Tensor, lost: Tensor, link: Tensor) -> Tensor:
    """Return ``out`` with NaN where it is lost. There its gradient goes to ``link`` alone, and is NaN."""
    return torch.where(lost, link * torch.where(lost, torch.nan, 0.0).to(out.dtype), out)
