"""The delta rule in matrix products over chunks of steps (the UT transform of the compact WY form), in plain torch.

docs/derivations/delta_rule.md derives it. It runs on every device and can be differentiated any number of times;
autograd stores one state per chunk and matrices of C x C numbers, but no state per step. Values computed from keys only
have twice the precision of the state: chunks with the same keys have the same rounding errors, which would accumulate.
In products, zeros replace NaN and infinity, and nonfinite.py finds the entries that these reach.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...layout import SequenceLayout
from ..call import States
from .call import DeltaCall
from .nonfinite import finite, is_lost, over, reached
from .reference import normalized

UPDATES = 64  # of a chunk
UPDATES_BY_KEY = 16  # of a chunk with a gate for every entry of a key: K numbers for each pair of updates


class _Steps(NamedTuple):
    """A call's tensors in chunks of C steps, n = C M updates. Gates have w numbers, 1 or K.

    Shape:
        - q: (chunks, B, H, C, K). k: (chunks, B, H, n, K). v: (chunks, B, H, n, V). beta: (chunks, B, H, n).
        - gate: (chunks, B, H, C, w), or None. fresh: bool (chunks, B, 1, C, 1), or None. state, restart: (B, H, K, V).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    gate: Tensor | None
    fresh: Tensor | None
    state: Tensor
    restart: Tensor | None


def forward(call: DeltaCall, updates: int | None = None) -> States:
    """Return the outputs of the steps, and the state after each sequence's last step.

    Args:
        call: The call.
        updates: Approximate number of updates per chunk, C M. Default: 64, or 16 with a gate per entry of a key.
    """
    layout, (M, H, _, V) = call.layout, call.shape
    if layout.length == 0:
        return States(call.state.new_zeros(*layout.shape(H), V), call.state.clone())
    by_key = call.gate is not None and call.gate.shape[-1] > 1
    steps = max(1, (updates or (UPDATES_BY_KEY if by_key else UPDATES)) // M)
    q = call.q
    call, lost = finite(call.with_tensors((q, normalized(call.k), *call.tensors()[2:])))
    given = _in_chunks(call, steps)
    out, last, overflows = _products(given, M)
    lost_steps = _steps(_chunks(layout, lost.steps, steps)) | overflows.unflatten(3, (-1, M)).any(4)
    reads, end = reached(lost_steps, given.fresh, lost.state, lost.restart)
    out, reads = (_rows(layout, t) for t in (out, reads))
    last = last.masked_fill(end.unsqueeze(-2), torch.nan)
    return States(over(out, reads | lost.q, q.sum(-1, keepdim=True)), last)


def _rows(layout: SequenceLayout, chunks: Tensor) -> Tensor:
    """Return (T, B, H, V) or (R, H, V) from (chunks, B, H, C, V)."""
    rows = chunks.permute(0, 3, 1, 2, 4).flatten(0, 1)[: layout.length]
    return rows if layout.batch_sizes is None else rows[layout.places()]


def _in_chunks(call: DeltaCall, steps: int) -> _Steps:
    """Return the tensors of a call, whose keys are normalized, in chunks of this many steps."""
    layout = call.layout
    q, k, v, beta = (_chunks(layout, t, steps) for t in (call.q, call.k, call.v, call.beta.unsqueeze(-1)))
    gate = None if call.gate is None else _steps(_chunks(layout, call.gate, steps, 1))
    fresh = restart = None
    if layout.resets is not None:
        resets = layout.unflatten(layout.resets)[..., None, None]
        fresh, restart = _steps(_chunks(layout, resets, steps)), call.restart
    return _Steps(_steps(q), _updates(k), _updates(v), _updates(beta).squeeze(-1), gate, fresh, call.state, restart)


def _steps(chunks: Tensor) -> Tensor:
    """Return (chunks, B, H, C, ...) from (chunks, C, B, H, ...)."""
    return chunks.permute(0, 2, 3, 1, 4)


def _updates(chunks: Tensor) -> Tensor:
    """Return (chunks, B, H, n, ...) from (chunks, C, B, M, H, ...)."""
    return chunks.permute(0, 2, 4, 1, 3, 5).flatten(3, 4)


def _products(given: _Steps, M: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of the steps, the last state, and the columns that overflow at an update (chunks, B, H, n,
    V).
    """
    q, k, v, beta, gate, fresh, S, restart = given
    n, K, V = k.shape[3], k.shape[4], v.shape[4]
    reads = slice(M - 1, None, M)  # o_t is read after the last update of a step
    wide = k.double()
    inner, outer = wide @ wide.mT, q @ k.mT
    # A rounded key is a reflector like any other: its strength is over its own squared length, not over 1.
    squares = inner.diagonal(dim1=-2, dim2=-1).detach()
    strengths = beta / torch.where(squares < 1 - 4 * torch.finfo(k.dtype).eps, 1, squares)
    k_0, q_0, k_end = k, q, k
    kept = again = None
    if gate is not None or fresh is not None:
        between, since, again = _decay(given, M)
        if between.shape[-1] > 1:
            inner = torch.einsum("cbhik,cbhijk,cbhjk->cbhij", wide, between.double(), wide)
            outer = torch.einsum("cbhik,cbhijk,cbhjk->cbhij", q, between[:, :, :, reads], k)
        else:
            inner, outer = inner * between[..., 0], outer * between[:, :, :, reads, :, 0]
        k_0, q_0, k_end = k * since, q * since[:, :, :, reads], k * between[:, :, :, -1]
        kept = since[:, :, :, -1].unsqueeze(-1)
    lower = (inner * strengths.unsqueeze(-2)).tril(-1) + torch.eye(n, dtype=inner.dtype, device=k.device)
    known = v
    if again is not None and restart is not None:
        known = v - (k * again) @ restart
    right = torch.cat([known, k_0], dim=-1).to(lower.dtype)
    solved = strengths.unsqueeze(-1) * torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([V, K], dim=-1)
    from_values, from_state, written = from_values.to(k.dtype), _parts(from_state, k.dtype), k_end.mT
    starts, missing, overflows = [], [], []
    for c in range(k.shape[0]):
        starts.append(S)
        amounts = from_values[c]
        for part in from_state:
            amounts = torch.baddbmm(*_flat3(amounts, part[c], S), alpha=-1).view_as(amounts)
        lost = is_lost(amounts)
        amounts = amounts.masked_fill(lost, 0)
        missing.append(amounts)
        before = S if kept is None else kept[c] * S
        S = torch.baddbmm(*_flat3(before, written[c], amounts)).view_as(S)
        if again is not None and restart is not None:
            S = S + again[c, :, :, -1].unsqueeze(-1) * restart
        infinite = is_lost(S)
        S = S.masked_fill(infinite, 0)
        overflows.append(torch.cat([lost[:, :, :-1], lost[:, :, -1:] | infinite.any(-2, keepdim=True)], 2))
    mask = torch.arange(n, device=k.device) <= torch.arange(M - 1, n, M, device=k.device).unsqueeze(1)
    out = torch.where(mask, outer, 0) @ torch.stack(missing) + q_0 @ torch.stack(starts)
    if again is not None and restart is not None:
        out = out + (q * again[:, :, :, reads]) @ restart
    return out, S, torch.stack(overflows)


def _parts(wide: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return tensors of this dtype whose sum is `wide`: itself, or its leading and trailing digits as two tensors."""
    if wide.dtype == dtype:
        return [wide]
    leading = wide.to(dtype)
    return [leading, (wide - leading).detach().to(dtype)]


def _flat3(*tensors: Tensor) -> list[Tensor]:
    """Return tensors (B, H, ., .) as (B H, ., .)."""
    return [t.flatten(0, 1) for t in tensors]


def _chunks(layout: SequenceLayout, tensor: Tensor, steps: int, fill: float = 0) -> Tensor:
    """Return (chunks, C, B, ...) from (T, B, ...) or from flat rows, with `fill` for missing steps."""
    padded = layout.padded(tensor, fill)
    missing = -layout.length % steps
    if missing:
        padded = torch.cat([padded, padded.new_full((missing, *padded.shape[1:]), fill)])
    return padded.unflatten(0, (-1, steps))


def _decay(given: _Steps, M: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the factors that gates and resets leave; w is 1 or K.

    Shape:
        - for update j at update i of the same chunk: (chunks, B, H, n, n, w), 0 for j > i;
        - for the chunk's first state at update i: (chunks, B, H, n, w);
        - for the restart's state at update i: likewise, or None without resets.
    """
    fresh, steps = given.fresh, given.q.shape[3]
    gate = torch.ones_like(given.q[..., :1]) if given.gate is None else given.gate
    zero = torch.zeros_like(gate[:, :, :, 0])
    keeps = gate if fresh is None else torch.where(fresh, 0, gate)
    eye = torch.eye(steps, dtype=gate.dtype, device=gate.device)
    row, left, again = zero.unsqueeze(3).expand(-1, -1, -1, steps, -1), torch.ones_like(zero), zero
    between, since, agains = [], [], []
    for i in range(steps):
        row = row * keeps[:, :, :, i, None] + eye[i].unsqueeze(-1)
        left = left * keeps[:, :, :, i]
        between.append(row)
        since.append(left)
        if fresh is not None:
            again = torch.where(fresh[:, :, :, i], gate[:, :, :, i], again * keeps[:, :, :, i])
            agains.append(again)
    # A step's gate comes before its M updates: they are the same step to it.
    pairs = torch.stack(between, 3).repeat_interleave(M, 3).repeat_interleave(M, 4)
    by_update = [None if not a else torch.stack(a, 3).repeat_interleave(M, 3) for a in (since, agains)]
    assert by_update[0] is not None
    return pairs, by_update[0], by_update[1]
