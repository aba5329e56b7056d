"""NaN and infinity in products over chunks of steps, which would spread through 0 * NaN to steps they must not reach.

Zeros replace them in the products, and NaN is written over everything they do reach. A step that is not finite loses
columns of a state until the next reset: all columns of a head through its keys, strengths or gate, or one column
through an entry of its values or through overflow. Values that overflow in float64, inside the triangular solve, and
gradients that overflow may still spread further within their chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .call import DeltaCall


class Lost(NamedTuple):
    """The positions at which the tensors of a call are not finite.

    Shape:
        - q: (..., H, 1). steps: (..., H, V), the columns that a step loses. state, restart: (B, H, V), columns.
    """

    q: Tensor
    steps: Tensor
    state: Tensor
    restart: Tensor | None


def finite(call: DeltaCall) -> tuple[DeltaCall, Lost]:
    """Return a call with zeros in place of non-finite values, and their positions. The zeros have no gradient."""
    q, k, v, beta, gate = call.q, call.k, call.v, call.beta, call.gate
    state, restart = call.state, call.restart
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
    """Return a mask of the entries of x that are NaN or infinite."""
    return x.detach() * 0 != 0


def _in_row(x: Tensor) -> Tensor:
    """Return a mask of the rows of x (..., w) with a NaN or an infinity, (..., 1)."""
    return (x.detach() * 0).sum(-1, keepdim=True) != 0


def reached(lost: Tensor, fresh: Tensor | None, state: Tensor, restart: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the columns of a state that are lost after each step, and at the end.

    Args:
        lost: Columns that a step loses.
        fresh: Whether the state is replaced before a step, or None.
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
    """Return ``out`` with NaN at the lost entries, whose gradient goes only to ``link`` and is NaN."""
    return torch.where(lost, link * torch.where(lost, torch.nan, 0.0).to(out.dtype), out)
