"""The specification of input-dependent reflections: plain torch, a loop over steps.

docs/derivations/reflections.md has the derivation.
`forward` is differentiable any number of times. `backward` is explicit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...layout import cut, restarted
from ..call import States
from ..interception import can_be_read
from .call import LONGEST, SHORTEST, Gradients, ReflectionCall, Saved


def forward(call: ReflectionCall) -> tuple[States, Saved]:
    """Return the states and the residuals for the backward pass."""
    layout, (M, N, H), phi = call.layout, call.shape, call.options.activation
    _refuse_negative(call)
    rows = [None if t is None else layout.split(_rows(call, t)) for t in (call.k, call.beta, call.gate, call.add)]
    k, beta, gate, add = rows
    assert k is not None
    assert beta is not None
    angles = None if call.angles is None else _angles(call)
    h, states, preactivations, dots = call.h0, [], [], []
    restart = _restart(call)
    ended: list[Tensor] = []
    for t, fresh in enumerate(layout.split_resets()):
        size = k[t].shape[0]
        if size < h.shape[0]:
            ended.append(h[size:])
        x = restarted(h[:size], fresh, restart)
        if angles is not None:
            x = rotate(x, angles[t])
        found = []
        for i in range(M):
            x, p = reflect(x, k[t][:, i], beta[t][:, i])
            found.append(p)
        if gate is not None:
            x = _by_head(gate[t], N) * x
        a = x if add is None else x + add[t]
        h = phi(a, call.parameter)
        states.append(h)
        preactivations.append(a)
        dots.append(torch.stack(found, dim=1))
    every = layout.join(states) if states else call.h0.new_zeros(layout.shape(N))
    last = torch.cat([h, *reversed(ended)]) if ended else (h if states else h.clone())
    saved = Saved(
        every,
        None if phi.reads == "state" else torch.cat(preactivations) if preactivations else call.h0.new_zeros(0, N),
        torch.cat(dots) if dots else call.h0.new_zeros(0, M, H),
        inverse_squares(call.flat(call.k), H),
    )
    return States(None if call.options.only_last else every, last), saved


def backward(call: ReflectionCall, grad: States, saved: Saved) -> Gradients:
    """Return the gradients of `call.tensors()`."""
    layout, (M, N, H), phi, clip = call.layout, call.shape, call.options.activation, call.options.clip
    states = layout.flatten(saved.states)
    read = states if saved.preactivations is None else saved.preactivations
    assert saved.dots is not None
    assert saved.inverse is not None
    restart, fresh = _restart(call), layout.split_resets()
    before = layout.split(layout.previous(states, call.h0, restart))
    grad_restart = None if restart is None else torch.zeros_like(restart)
    scaled, scale_of_k = scale_down(call.k, H)
    k, beta = (layout.split(_rows(call, t)) for t in (scaled, call.beta))
    inverse, dots = layout.split(_rows(call, saved.inverse, is_flat=True)), layout.split(saved.dots)
    gate = None if call.gate is None else layout.split(_rows(call, call.gate))
    angles = None if call.angles is None else _angles(call)
    reads, d = layout.split(read), N // H
    grads = None if grad.all is None else layout.split(grad.all.reshape(layout.rows, N))
    carry = torch.zeros_like(call.h0) if grad.last is None else grad.last.clone()
    grad_parameter = None if call.parameter is None else torch.zeros_like(call.parameter)
    by: dict[str, list[Tensor]] = {name: [] for name in ("k", "beta", "gate", "angles", "add")}
    for t in reversed(range(layout.length)):
        size = k[t].shape[0]
        arriving = carry[:size] if grads is None else carry[:size] + grads[t]
        g, rows = phi.backward(arriving, reads[t], call.parameter)
        if grad_parameter is not None and rows is not None:
            grad_parameter += rows.sum(dim=0)
        if clip is not None:
            g = g.clamp(-clip, clip)
        by["add"].append(g)
        # The vectors between the reflections, from the state before and the stored k_i'x.
        xs = [before[t] if angles is None else rotate(before[t], angles[t])]
        scale = (beta[t] * inverse[t]).to(g.dtype)
        for i in range(M):
            xs.append(xs[-1] - _by_head(scale[:, i] * dots[t][:, i], N) * k[t][:, i])
        if gate is not None:
            by_gate = g * xs[-1]
            by["gate"].append(by_gate if gate[t].shape[1] == N else by_gate.unflatten(-1, (-1, d)).sum(-1))
            g = _by_head(gate[t], N) * g
        by_k, by_beta = [], []
        for i in reversed(range(M)):
            u, tau, p = k[t][:, i], scale[:, i], dots[t][:, i]
            q = (u * g).unflatten(-1, (H, d)).sum(-1)
            is_long = inverse[t][:, i] < 1 / SHORTEST**2
            along = torch.where(is_long, 2 * tau * p * q * inverse[t][:, i], 0.0).to(g.dtype)
            by_k.append(_by_head(along, N) * u - _by_head(tau * q, N) * xs[i] - _by_head(tau * p, N) * g)
            by_beta.append((-p * q * inverse[t][:, i]).to(g.dtype))
            g = g - _by_head(tau * q, N) * u
        by["k"].append(torch.stack(by_k[::-1], dim=1))
        by["beta"].append(torch.stack(by_beta[::-1], dim=1))
        if angles is not None:
            half = N // 2
            by["angles"].append(g[:, N - half :] * xs[0][:, :half] - g[:, :half] * xs[0][:, N - half :])
            g = rotate(g, -angles[t])
        carry = torch.cat([cut(g, fresh[t], grad_restart), carry[size:]])
    found = [_gathered(call, name, by[name][::-1]) for name in ("k", "beta", "gate", "angles", "add")]
    assert found[0] is not None
    found[0] = found[0] * scale_of_k
    return (*found, carry, grad_parameter, grad_restart if call.restart is not None else None)


def inverse_squares(k: Tensor, heads: int) -> Tensor:
    """Return 1 / max(k'k, SHORTEST^2) per head, float64 (S, M, H), for reflectors (S, M, N)."""
    scaled, _ = scale_down(k.detach(), heads)
    squares = scaled.double().unflatten(-1, (heads, -1)).square().sum(-1)
    return 1 / squares.clamp_min(SHORTEST**2)


def scale_down(k: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return c k and c for vectors k (..., N). c is 1, except for heads with a number beyond LONGEST: there it is the
    power of two that scales the largest magnitude to [2, 4).

    Only the direction of such a vector matters, and the square of c k stays in range. c is a constant for autograd: the
    gradient of a function of the direction at k equals its gradient at c k times c.
    """
    largest = k.detach().unflatten(-1, (heads, -1)).abs().amax(-1)
    # Not by ldexp: see compact_wy.normalize.
    c = torch.where(largest > LONGEST, 4 * torch.frexp(largest).mantissa / largest, torch.ones_like(largest))
    c = c.repeat_interleave(k.shape[-1] // heads, dim=-1)
    return c * k, c


def reflect(x: Tensor, k: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return (I - beta k k' / max(k'k, SHORTEST^2)) x and k'x for the k that `scale_down` returns, per head.

    Shape: x, k (B, N); beta (B, H).
    """
    n, heads = x.shape[-1], beta.shape[-1]
    k, _ = scale_down(k, heads)
    p = (k * x).unflatten(-1, (heads, -1)).sum(-1)
    squares = k.double().unflatten(-1, (heads, -1)).square().sum(-1)
    scale = (beta / squares.clamp_min(SHORTEST**2) * p).to(x.dtype)
    return x - _by_head(scale, n) * k, p


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Return R x: each pair (i, N - N // 2 + i) of x (B, N) rotated by angles (B, N // 2) or (N // 2,)."""
    half, n = x.shape[-1] // 2, x.shape[-1]
    wide = angles.double()
    c, s = torch.cos(wide), torch.sin(wide)
    a, alone, b = x.split([half, n - 2 * half, half], dim=-1)
    return torch.cat([(c * a - s * b).to(x.dtype), alone, (c * b + s * a).to(x.dtype)], dim=-1)


def _by_head(values: Tensor, n: int) -> Tensor:
    """Return values (B, H) expanded to the units of each head (B, N); (B, N) is returned unchanged."""
    return values if values.shape[-1] == n else values.repeat_interleave(n // values.shape[-1], dim=-1)


def _rows(call: ReflectionCall, tensor: Tensor, is_flat: bool = False) -> Tensor:
    """Return one row per row of the batch: (R, ...)."""
    if call.index is None:
        return tensor if is_flat else call.layout.flatten(tensor)
    return tensor[call.layout.flatten(call.index)]


def _refuse_negative(call: ReflectionCall) -> None:
    """Raise IndexError for a token below 0, since torch would count from the end of the table."""
    if call.index is not None and can_be_read(call.index) and (least := int(call.index.min())) < 0:
        raise IndexError(f"Expected tokens in [0, {call.k.shape[0]}), but got {least}.")


def _restart(call: ReflectionCall) -> Tensor | None:
    """Return the state from which sequences restart, or None without resets."""
    if call.layout.resets is None:
        return None
    return torch.zeros_like(call.h0) if call.restart is None else call.restart


def _angles(call: ReflectionCall) -> tuple[Tensor, ...]:
    assert call.angles is not None
    if call.shares_angles:
        return (call.angles,) * call.layout.length
    return call.layout.split(_rows(call, call.angles))


def _gathered(call: ReflectionCall, name: str, steps: list[Tensor]) -> Tensor | None:
    """Return the gradient of one tensor from its rows at each step."""
    tensor = getattr(call, name)
    if tensor is None:
        return None
    if not steps:
        return torch.zeros_like(tensor)
    rows = torch.cat(steps)
    if name == "angles" and call.shares_angles:
        return rows.sum(dim=0)
    if call.index is None:
        return rows.view(tensor.shape)
    return torch.zeros_like(tensor).index_add_(0, call.layout.flatten(call.index), rows)
