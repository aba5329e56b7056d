"""The linear recurrence with an orthogonal transition, in the basis where that is rotations.

    h_t = gain W h_{t-1} + V x_t + b,  W = Q R Q'   is   z_t = gain R z_{t-1} + (Q'V) x_t + Q'b,  h_t = Q z_t:

N/2 independent recurrences of two numbers, so that a step costs O(N) and not O(N^2); Q' is absorbed into V and b, and with
output="last" Q is applied to the last state alone. Exact: nothing is approximated, and gradients are those of dense_rnn.
Q is a constant: whatever it is, the network in its basis is the network, so that only Q'WQ carries W's gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._checks import check_same, check_shape
from ..errors import ArgumentTypeError, NotOnGroupError
from .functional import Output, _call, _check_dense, _checked_gain, _in_segments, dense_rnn
from .memory import Mode
from .node import Operands, run
from .rotations.basis import Rotations, allowed_defect, defect, rotations_of
from .rotations.recurrence import ROTATIONS
from .sequence import is_tokens, stored_dtype
from .transforms import is_intercepted, needs_plain_torch


def rotations_rnn(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    readout: tuple[Tensor, Tensor | None] | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
) -> Tensor:
    """What dense_rnn with the activation "identity" returns, for an orthogonal W or a multiple of one.

    The decomposition of W takes about 30 N^3 multiply-adds; it is kept for the latest matrices, compared by value. There
    is no `clip`: clipping single entries is not linear, so it has no form in another basis.

    readout: (Y (K, N), d (K,) or None): Y h_t + d is returned in place of h_t, (T, B, K), (R, K) or (B, K). Y is absorbed
    into Q, so that with K of a few numbers no N^2 is left but for dL/dW.

    The other arguments are those of dense_rnn. NotOnGroupError for a W that is not orthogonal to its dtype's precision,
    up to a factor. Under torch.func transforms and for higher derivatives dense_rnn's plain form is differentiated.
    """
    call = _call(
        ROTATIONS, _check_dense, x, h0, (W,), "identity", None, weight_ih, bias, batch_sizes, output, None, backend
    )
    n = W.shape[0]
    common: dict[str, Any] = {
        "bias": bias,
        "gain": gain,
        "batch_sizes": batch_sizes,
        "output": output,
        "readout": readout,
        "backend": backend,
        "memory": memory,
        "segment": segment,
    }
    stored = stored_dtype(x, weight_ih)
    if stored != h0.dtype:
        x = x if is_tokens(x) else x.to(h0.dtype)
        weight_ih = None if weight_ih is None else weight_ih.to(h0.dtype)
        return rotations_rnn(x, h0, W, weight_ih=weight_ih, **common).to(stored)
    call = _in_segments(call, memory, segment, x, h0, W)
    factor = _checked_gain(gain, h0)
    if readout is not None:
        if not isinstance(readout, (tuple, list)) or len(readout) != 2:
            kind = type(readout).__name__
            raise ArgumentTypeError(f"Expected readout to be a pair (matrix, vector or None), but got {kind}.")
        check_shape("readout's matrix", readout[0], ("K", n))
        if readout[1] is not None:
            check_shape("readout's vector", readout[1], (readout[0].shape[0],))
        check_same("h0", h0, readout=readout[0], readout_vector=readout[1])
    if not torch.compiler.is_compiling() and needs_plain_torch():
        plain = dense_rnn(
            x, h0, W, "identity", weight_ih=weight_ih, bias=bias, gain=gain, batch_sizes=batch_sizes, output=output
        )
        return _read(plain, readout)
    if not h0.is_meta and torch.is_autocast_enabled(h0.device.type):
        with torch.autocast(h0.device.type, enabled=False):  # else products here would be rounded to 16 bits
            return rotations_rnn(x, h0, W, weight_ih=weight_ih, **common)
    if torch.compiler.is_compiling() or is_intercepted(W) or W.is_meta:
        Q, R, turns = torch.ops.orthornn.rotations(W.detach())
    else:
        Q, R, turns, _ = _found(W)
    c, s = turns * (factor.detach().double() if isinstance(factor, Tensor) else factor)
    weight = factor * _InBasis.apply(W, Q, R)
    x, weight_ih = (x @ Q, None) if weight_ih is None else (x, Q.mT @ weight_ih)
    bias = None if bias is None else Q.mT @ bias
    operands = Operands(weight, c, s)
    z = run(call, x, weight_ih, bias, h0 @ Q, operands, None)
    return _read(z, (Q, None) if readout is None else (readout[0] @ Q, readout[1]))


def _read(states: Tensor, readout: tuple[Tensor, Tensor | None] | None) -> Tensor:
    return states if readout is None else F.linear(states, *readout)


class _InBasis(torch.autograd.Function):
    """R, as the value of Q'WQ with Q constant."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, Q: Tensor, R: Tensor) -> Tensor:
        ctx.save_for_backward(Q)
        return R.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (Q,) = ctx.saved_tensors
        return Q @ grad @ Q.mT, None, None


def _found(W: Tensor) -> Rotations:
    rotations = rotations_of(W)
    if rotations is None:
        off = defect(W)
        raise NotOnGroupError(
            f"W must be orthogonal, or a multiple of an orthogonal matrix, to be applied as rotations; "
            f"||W'W/g^2 - I||_F / sqrt(N) is {off:.2g}, and {allowed_defect(W.dtype, W.shape[0]):.2g} is allowed in "
            f"{W.dtype}. Use dense_rnn (form='dense') for other matrices."
        )
    return rotations


@torch.library.custom_op("orthornn::rotations", mutates_args=())
def _rotations(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, R and (c, s) of W, for graphs: see rotations/basis.py."""
    Q, R, turns, _ = _found(W)
    return Q.clone(), R.clone(), turns.clone()  # kept ones stay ours


@_rotations.register_fake
def _rotations_fake(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return W.new_empty(W.shape), W.new_empty(W.shape), W.new_empty(2, W.shape[0], dtype=torch.float64)
