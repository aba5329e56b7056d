"""The linear recurrence with an orthogonal transition, in the basis in which W consists of rotations.

    h_t = gain W h_{t-1} + V x_t + b,  W = Q R Q'   is   z_t = gain R z_{t-1} + (Q'V) x_t + Q'b,  h_t = Q z_t:

N/2 independent recurrences of two numbers, so a step costs O(N) instead of O(N^2). Q' is absorbed into V and b, and Q
is applied only to the states that are read. This is exact: nothing is approximated, and gradients equal those of the
dense recurrence. Q is treated as a constant: any Q represents the same network in its basis, so only Q'WQ passes on W's
gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._checks import is_captured, is_transformed
from ..errors import BackendError, NotOnGroupError
from ..layout import SequenceLayout
from ..rotation_basis import Rotations, allowed_defect, defect, rotations_of
from . import recurrence
from .call import Call, States
from .interception import is_autocast, is_intercepted, no_autocast
from .product import Product
from .projection import stored_dtype

Readout = tuple[Tensor, Tensor | None]


def run(call: Call, gain: float | Tensor = 1.0, readout: Readout | None = None) -> States:
    """Return the states of a dense call with the identity as phi and an orthogonal W, or their readout.

    Args:
        call: Checked call with the identity as phi and W (N, N) as its weight.
        gain: A number, or a tensor of shape ().
        readout: (Y (K, N), d (K,) or None), to return Y h_t + d instead of h_t.

    Raises:
        NotOnGroupError: If W is neither orthogonal nor a multiple of an orthogonal matrix, to its dtype's precision.
    """
    h0, W = call.h0, call.weight
    stored = stored_dtype(call.x, call.weight_ih)
    if stored != h0.dtype:
        states = run(recurrence.widened(call), gain, readout)
        return States(*(None if t is None else t.to(stored) for t in states))
    if is_autocast(h0):
        with no_autocast(h0):  # else products here would be rounded to 16 bits
            return run(call, gain, readout)
    if not torch.compiler.is_compiling() and is_transformed():
        states = recurrence.plain(call.changed(weight=gain * W))
        return states if readout is None else States(*(None if t is None else F.linear(t, *readout) for t in states))
    if torch.compiler.is_compiling() or is_intercepted(W) or W.is_meta:
        Q, R, turns = torch.ops.orthornn.rotations(W.detach())
    else:
        Q, R, turns, _ = _found(W)
    c, s = turns * (gain.detach().double() if isinstance(gain, Tensor) else gain)
    into = Product.apply
    x, weight_ih = (into(call.x, Q), None) if call.weight_ih is None else (call.x, into(Q.mT, call.weight_ih))
    bias = None if call.bias is None else into(call.bias, Q)
    restart = None if call.restart is None else into(call.restart, Q)
    weight = gain * _InBasis.apply(W, Q, R)
    options = call.options.changed(kind="rotations")
    z = recurrence.run(
        call.changed(
            x=x,
            weight_ih=weight_ih,
            bias=bias,
            h0=into(h0, Q),
            weight=weight,
            c=c,
            s=s,
            options=options,
            restart=restart,
        )
    )
    return _read(z, (Q, None) if readout is None else (into(readout[0], Q), readout[1]), call)


def _read(z: States, readout: Readout, call: Call) -> States:
    """Return the readout of all states and of the last ones, as one computation."""
    if z.all is None:
        assert z.last is not None
        Y, d = readout
        last = Product.apply(z.last, Y.mT)
        return States(None, last if d is None else last + d)
    return States(*_Read.apply(call.layout, z.all, z.last, *readout))


class _Read(torch.autograd.Function):
    """Y z_t + d for every step and for the last ones, as one product; a missing gradient costs nothing."""

    @staticmethod
    def forward(
        ctx: Any, layout: SequenceLayout, every: Tensor, last: Tensor, Y: Tensor, d: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(every, last, Y)
        ctx.set_materialize_grads(False)
        out = F.linear(every, Y, d)
        return out, layout.last(layout.flatten(out), F.linear(last, Y, d) if layout.length == 0 else out.new_empty(0))

    @staticmethod
    def backward(ctx: Any, grad_every: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        every, last, Y = ctx.saved_tensors
        pairs = [(g, z) for g, z in ((grad_every, every), (grad_last, last)) if g is not None]
        if not pairs:
            return (None,) * 5
        rows = [(g.reshape(-1, g.shape[-1]), z.reshape(-1, z.shape[-1])) for g, z in pairs]
        with no_autocast(Y):
            grads_z = [None if g is None else g @ Y for g in (grad_every, grad_last)]
            grad_Y = torch.stack([g.mT @ z for g, z in rows]).sum(0) if ctx.needs_input_grad[3] else None
        grad_d = torch.stack([g.sum(0) for g, _ in rows]).sum(0) if ctx.needs_input_grad[4] else None
        return None, *grads_z, grad_Y, grad_d


class _InBasis(torch.autograd.Function):
    """R, as the value of Q'WQ with constant Q."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, Q: Tensor, R: Tensor) -> Tensor:
        ctx.save_for_backward(Q)
        return R.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (Q,) = ctx.saved_tensors
        with no_autocast(Q):
            return Q @ grad @ Q.mT, None, None


def _found(W: Tensor) -> Rotations:
    if is_captured(W):
        raise BackendError(
            "Expected W before the capture of a CUDA graph, but got a new W inside a capture, where its "
            "values cannot be read. Use dense_rnn (form='dense')."
        )
    rotations = rotations_of(W)
    if rotations is None:
        off = defect(W)
        raise NotOnGroupError(
            f"Expected W to be orthogonal, or a multiple of an orthogonal matrix, to be applied as rotations, but got "
            f"||W'W/g^2 - I||_F / sqrt(N) = {off:.2g} ({W.dtype} allows "
            f"{allowed_defect(W.dtype, W.shape[0]):.2g}). Use dense_rnn (form='dense') for other matrices."
        )
    return rotations


@torch.library.custom_op("orthornn::rotations", mutates_args=())
def _rotations(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, R and (c, s) of W, for graphs: see rotation_basis.py."""
    Q, R, turns, _ = _found(W)
    return Q.clone(), R.clone(), turns.clone()  # cached ones stay ours


@_rotations.register_fake
def _rotations_fake(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return W.new_empty(W.shape), W.new_empty(W.shape), W.new_empty(2, W.shape[0], dtype=torch.float64)
