"""The delta rule in matrix products over chunks of steps (the UT transform of the compact WY form), in plain torch.

README.md has the derivation. It runs on every device and can be differentiated any number of times; autograd keeps a state
per chunk and matrices of C x C numbers, no state per step. What is made of keys alone has twice the precision of the state:
chunks of the same keys have the same rounding errors, which would add up.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...layout import SequenceLayout
from ..call import States
from .call import DeltaCall
from .reference import normalized

UPDATES = 64  # of a chunk
UPDATES_BY_KEY = 16  # of a chunk with a gate for every entry of a key: K numbers for each pair of updates


def forward(call: DeltaCall, updates: int | None = None) -> States:
    """Return what the steps read, and the state after each sequence's last step.

    Args:
        call: The call.
        updates: C M, about how many of them a chunk has. Default: 64, or 16 with a gate per entry of a key.
    """
    layout, (M, H, K, V) = call.layout, call.shape
    if layout.length == 0:
        return States(call.state.new_zeros(*layout.shape(H), V), call.state.clone())
    by_key = call.gate is not None and call.gate.shape[-1] > 1
    steps = max(1, (updates or (UPDATES_BY_KEY if by_key else UPDATES)) // M)
    q, k, v, beta = (_chunks(layout, t, steps) for t in (call.q, normalized(call.k), call.v, call.beta))
    # (chunks, B, H, n, ...) with n = C M updates, or C steps.
    q = q.permute(0, 2, 3, 1, 4)
    k, v = (t.permute(0, 2, 4, 1, 3, 5).flatten(3, 4) for t in (k, v))
    beta = beta.permute(0, 2, 4, 1, 3).flatten(3, 4)
    decay = _decay(call, steps)
    n = k.shape[3]
    reads = slice(M - 1, None, M)  # o_t is read after the last update of a step
    wide = k.double()
    inner, outer = wide @ wide.mT, q @ k.mT
    # A rounded key is a reflector like any other: its strength is over its own squared length, not over 1.
    squares = inner.diagonal(dim1=-2, dim2=-1).detach()
    strengths = beta / torch.where(squares < 1 - 4 * torch.finfo(k.dtype).eps, 1, squares)
    k_0, q_0, k_end = k, q, k
    kept = again = None
    if decay is not None:
        between, since, again = decay
        if by_key:
            inner = torch.einsum("cbhik,cbhijk,cbhjk->cbhij", wide, between.double(), wide)
            outer = torch.einsum("cbhik,cbhijk,cbhjk->cbhij", q, between[:, :, :, reads], k)
        else:
            inner, outer = inner * between[..., 0], outer * between[:, :, :, reads, :, 0]
        k_0, q_0, k_end = k * since, q * since[:, :, :, reads], k * between[:, :, :, -1]
        kept = since[:, :, :, -1].unsqueeze(-1)
    lower = (inner * strengths.unsqueeze(-2)).tril(-1) + torch.eye(n, dtype=inner.dtype, device=k.device)
    known = v
    restart = None if again is None else call.restart
    if again is not None and restart is not None:
        known = v - (k * again) @ restart
    right = torch.cat([known, k_0], dim=-1).to(lower.dtype)
    solved = strengths.unsqueeze(-1) * torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([V, K], dim=-1)
    from_values, from_state, written = from_values.to(k.dtype), _parts(from_state, k.dtype), k_end.mT
    S, starts, missing = call.state, [], []
    for c in range(k.shape[0]):
        starts.append(S)
        amounts = from_values[c]
        for part in from_state:
            amounts = torch.baddbmm(*_flat3(amounts, part[c], S), alpha=-1).view_as(amounts)
        missing.append(amounts)
        before = S if kept is None else kept[c] * S
        S = torch.baddbmm(*_flat3(before, written[c], amounts)).view_as(S)
        if again is not None and restart is not None:
            S = S + again[c, :, :, -1].unsqueeze(-1) * restart
    mask = torch.arange(n, device=k.device) <= torch.arange(M - 1, n, M, device=k.device).unsqueeze(1)
    out = torch.where(mask, outer, 0) @ torch.stack(missing) + q_0 @ torch.stack(starts)
    if again is not None and restart is not None:
        out = out + (q * again[:, :, :, reads]) @ restart
    rows = out.permute(0, 3, 1, 2, 4).flatten(0, 1)[: layout.length]  # (T, B, H, V)
    return States(rows if layout.batch_sizes is None else rows[layout.places()], S)


def _parts(wide: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return tensors of this dtype whose sum is `wide`: itself, or two that are its leading and its trailing digits."""
    if wide.dtype == dtype:
        return [wide]
    leading = wide.to(dtype)
    return [leading, (wide - leading).detach().to(dtype)]


def _flat3(*tensors: Tensor) -> list[Tensor]:
    """Return tensors (B, H, ., .) as (B H, ., .)."""
    return [t.flatten(0, 1) for t in tensors]


def _chunks(layout: SequenceLayout, tensor: Tensor, steps: int, fill: float = 0) -> Tensor:
    """Return (chunks, C, B, ...) of (T, B, ...) or of flat rows, with `fill` for steps that are not there."""
    padded = layout.padded(tensor, fill)
    missing = -layout.length % steps
    if missing:
        padded = torch.cat([padded, padded.new_full((missing, *padded.shape[1:]), fill)])
    return padded.unflatten(0, (-1, steps))


def _decay(call: DeltaCall, steps: int) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Return what is left of numbers after gates and resets, or None if there are neither; w is 1 or K.

    Shape:
        - of update j's at update i of the same chunk: (chunks, B, H, n, n, w), 0 for j > i;
        - of the chunk's first state at update i: (chunks, B, H, n, w);
        - of the restart's state at update i: likewise, or None without resets.
    """
    layout, (M, H, _, _) = call.layout, call.shape
    if call.gate is None and layout.resets is None:
        return None
    gate = call.k.new_ones(layout.shape(H)).unsqueeze(-1) if call.gate is None else call.gate
    gate = _chunks(layout, gate, steps, 1).permute(0, 2, 3, 1, 4)  # (chunks, B, H, C, w)
    fresh = None
    if layout.resets is not None:
        fresh = _chunks(layout, layout.unflatten(layout.resets), steps).permute(0, 2, 1)[:, :, None, :, None]
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
