"""The specification of the delta rule: plain torch, a loop over steps, differentiable any number of times."""

from __future__ import annotations

import torch
from torch import Tensor

from ..call import States
from ..reflections.call import SHORTEST
from ..reflections.reference import scale_down
from .call import DeltaCall


def forward(call: DeltaCall) -> States:
    """Return the outputs of the steps, and the state after each sequence's last step."""
    layout, (M, H, _, V) = call.layout, call.shape
    q, k, v, beta = (layout.split(call.flat(t)) for t in (call.q, normalized(call.k), call.v, call.beta))
    gate = None if call.gate is None else layout.split(call.flat(call.gate))
    S, outs, ended = call.state, [], []
    for t, fresh in enumerate(layout.split_resets()):
        size = q[t].shape[0]
        if size < S.shape[0]:
            ended.append(S[size:])
            S = S[:size]
        if fresh is not None:
            again = torch.zeros_like(S) if call.restart is None else call.restart[:size]
            S = torch.where(fresh[:, :, None, None], again, S)
        if gate is not None:
            S = gate[t].unsqueeze(-1) * S
        for i in range(M):
            key = k[t][:, i]
            missing = v[t][:, i] - torch.einsum("bhk,bhkv->bhv", key, S)
            S = S + torch.einsum("bh,bhk,bhv->bhkv", beta[t][:, i], key, missing)
        outs.append(torch.einsum("bhk,bhkv->bhv", q[t], S))
    out = layout.join(outs) if outs else call.state.new_zeros(*layout.shape(H), V)
    return States(out, torch.cat([S, *reversed(ended)]) if ended else S if outs else S.clone())


def normalized(k: Tensor) -> Tensor:
    """Return k / max(|k|, SHORTEST) along the last dimension; lengths are summed in double precision."""
    k, _ = scale_down(k, 1)
    squares = k.double().square().sum(-1, keepdim=True)
    return (k.double() / squares.clamp_min(SHORTEST**2).sqrt()).to(k.dtype)
