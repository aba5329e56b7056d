"""The two recurrences as functions: what is checked, what is absorbed, then one autograd node.

    a_t = gain * W h_{t-1} + V x_t + b,    h_t = phi(a_t),    W a matrix, or (I - U T^-1 U') B.

The gain is absorbed into W or into B's (c, s) before the recurrence, which therefore need not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from .. import activations
from .._checks import (
    REAL_DTYPES,
    check_choice,
    check_dtype,
    check_number,
    check_positive,
    check_same,
    check_shape,
    check_tensor,
)
from ..activations import Activation, Name
from ..compact_wy import Base, packed_reflections
from ..errors import ArgumentError, ArgumentTypeError, ShapeError
from .compact_wy.recurrence import COMPACT_WY
from .dense.recurrence import DENSE
from .memory import Mode, check_memory, make
from .node import Call, Operands, Recurrence, run, size_of
from .plan import BACKENDS, choose
from .sequence import check_input, is_tokens, stored_dtype

Output = Literal["all", "last"]


def dense_rnn(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    activation: Name | Activation,
    parameter: Tensor | None = None,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    clip: float | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
) -> Tensor:
    """The states of h_t = phi(gain W h_{t-1} + V x_t + b) over a whole sequence.

    Parameters
    ----------
    x: projected inputs (T, B, N); or raw inputs (T, B, I), or tokens (T, B) of an integer dtype, with `weight_ih`.
        With `batch_sizes` flat rows (R, N), (R, I) or (R,), as in a PackedSequence.
    h0: (B, N), float32 or float64; every other real tensor has its dtype and device. Only x and weight_ih may both be
        bfloat16 instead: then states are stored and returned in bfloat16, and so is what is kept for the backward pass;
        the state that goes from step to step, the transition and all sums keep the dtype of h0.
    W: (N, N), any matrix.
    activation: a name of orthornn.activations.ACTIVATIONS, or an Activation.
    parameter: the activation's trainable vector, if it has one: (N,), or (N//2,) for pairs.
    weight_ih: V (N, I). bias: b (N,).
    gain: a number, or a tensor with one element to train.
    batch_sizes: rows of each step, int64 (T,) on the CPU, never growing; None means B rows in each step.
    output: "all" for every state (T, B, N), or (R, N); "last" for each sequence's last state (B, N), whose gradient
        then takes no T*B*N memory.
    clip: in back-propagation each entry of dL/da_t is clipped to [-clip, clip] (Vorontsov et al., 2017, released code).
    backend: "auto" or the name of a backend.
    memory: "store" keeps what the backward pass needs, T*B*N numbers or more. "checkpoint" keeps the states before every
        so many steps and recomputes the others from them: the compiled kernels return the same bits that the forward
        pass had, other backends agree to rounding. "reverse" keeps fewer and makes them again from the last
        one backwards, by W^-1 = W'; each arrival at a kept state is compared with it, and what is further off than
        rounding explains is made forwards. That needs an orthogonal W and an activation that keeps the norm (identity,
        oplu, modrelu and complex_modrelu with no negative b); else, and in compiled graphs, it works as "checkpoint".
    segment: steps that are made again at once; None for the number of the smallest peak.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ArgumentError for arguments that do not fit; BackendError if the backend asked
    for cannot run; TransformError for torch.func transforms together with `clip`.
    """
    call = _call(
        DENSE, _check_dense, x, h0, (W,), activation, parameter, weight_ih, bias, batch_sizes, output, clip, backend
    )
    call = _in_segments(call, memory, segment, x, h0, W)
    factor = _checked_gain(gain, h0)
    if isinstance(factor, Tensor) or factor != 1:
        W = factor * W
    return run(call, x, weight_ih, bias, h0, Operands(W), parameter)


def compact_wy_rnn(
    x: Tensor,
    h0: Tensor,
    U: Tensor,
    B: Base,
    activation: Name | Activation,
    parameter: Tensor | None = None,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    clip: float | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
) -> Tensor:
    """The states of h_t = phi(gain W h_{t-1} + V x_t + b) with W = (I - U T^-1 U') B (Mhammedi et al., 2017).

    Parameters
    ----------
    U: reflectors as the columns of a matrix (N, M), M <= N; or packed (NM - M(M-1)/2,), see orthornn.compact_wy.
    B: None for the identity, or (c, s), each (N,).

    Everything else is as in `dense_rnn`.
    """
    if B is not None and not (isinstance(B, (tuple, list)) and len(B) == 2):
        raise ArgumentTypeError(f"Expected B to be None or a pair of tensors (c, s), but got {type(B).__name__}.")
    c, s = (None, None) if B is None else B
    call = _call(
        COMPACT_WY,
        _check_compact_wy,
        x,
        h0,
        (U, c, s),
        activation,
        parameter,
        weight_ih,
        bias,
        batch_sizes,
        output,
        clip,
        backend,
    )
    call = _in_segments(call, memory, segment, x, h0, U)
    scale = _checked_gain(gain, h0)
    if isinstance(scale, Tensor) or scale != 1:
        n = h0.shape[1]
        c = (h0.new_ones(n) if c is None else c) * scale
        s = h0.new_zeros(n) if s is None else s * scale
    return run(call, x, weight_ih, bias, h0, Operands(U, c, s), parameter)


def _check_dense(h0: Tensor, W: Tensor) -> int:
    """N, if the transition fits the state."""
    check_dtype("h0", h0, REAL_DTYPES)
    check_shape("W", W, ("N", "N"))
    n = W.shape[0]
    if W.shape[1] != n:
        raise ShapeError(f"W must be square; got {tuple(W.shape)}.")
    check_same("h0", h0, W=W)
    return n


def _check_compact_wy(h0: Tensor, U: Tensor, c: Tensor | None, s: Tensor | None) -> int:
    """N, if the reflectors and the base fit the state."""
    check_dtype("h0", h0, REAL_DTYPES)
    if h0.dim() != 2:
        raise ShapeError(f"h0 must have shape (B, N); got {tuple(h0.shape)}.")
    n = h0.shape[1]
    check_tensor("U", U)
    if U.dim() == 2:
        check_shape("U", U, (n, "M"))
        if U.shape[1] > n:
            raise ShapeError(f"U must have at most N={n} columns; got {tuple(U.shape)}.")
    elif U.dim() == 1:
        packed_reflections(n, U.shape[0])
    else:
        raise ShapeError(f"U must be a matrix (N, M) or packed reflectors (P,); got {tuple(U.shape)}.")
    for name, vector in (("c", c), ("s", s)):
        if vector is not None:
            check_shape(f"B's {name}", vector, (n,))
    check_same("h0", h0, U=U, c=c, s=s)
    return n


def _in_segments(call: Call, memory: Mode, segment: int | None, x: Tensor, h0: Tensor, weight: Tensor) -> Call:
    """The call with what it keeps, and the length of its segments; weight: W or the reflectors."""
    check_memory(memory, segment)
    if memory == "store":
        return call
    size = size_of(call, x, h0, weight)
    return call._replace(memory=make(memory, segment, size.steps, size.n, size.m or 0))


def _checked_gain(gain: float | Tensor, h0: Tensor) -> float | Tensor:
    if isinstance(gain, Tensor):
        check_same("h0", h0, gain=gain)
        if gain.numel() != 1:
            raise ShapeError(f"gain must have one element; got {tuple(gain.shape)}.")
        return gain.reshape(())
    return check_number("gain", gain)


def _check_stored(x: Tensor, weight_ih: Tensor | None, h0: Tensor) -> None:
    """Raise unless x and V have the dtype and device of h0, or both are bfloat16."""
    rows = None if is_tokens(x) else x
    if stored_dtype(x, weight_ih) != torch.bfloat16:
        check_same("h0", h0, x=rows, weight_ih=weight_ih)
        return
    name, stored = ("x", x) if weight_ih is None else ("weight_ih", weight_ih)
    check_same(name, stored, x=rows)
    check_same("h0", h0, **{name: h0.new_empty(0, device=stored.device)})


# What has passed the checks passes them again: at B=1 they would cost as much as a short sequence.
_PASSED: dict[tuple[Any, ...], Call] = {}
_MOST_PASSED = 256


def _call(
    recurrence: Recurrence,
    check_transition: Callable[..., int],
    x: Tensor,
    h0: Tensor,
    transition: tuple[Tensor | None, ...],
    activation: Name | Activation,
    parameter: Tensor | None,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    batch_sizes: Tensor | None,
    output: str,
    clip: float | None,
    backend: str,
) -> Call:
    """The call, with all that does not depend on values checked and its backend chosen."""
    key: tuple[Any, ...] | None = None
    if batch_sizes is None and not torch.compiler.is_compiling():
        tensors = (x, h0, *transition, parameter, weight_ih, bias)
        try:
            signatures = [None if t is None else (t.shape, t.dtype, t.device, t.layout) for t in tensors]
            key = (recurrence.name, activation, output, clip, backend, *signatures)
            passed = _PASSED.get(key)
        except (TypeError, AttributeError):  # an argument of a wrong type, or sizes that are symbols
            key = None
        else:
            if passed is not None:
                return passed
    n = check_transition(h0, *transition)
    phi = activations.get(activation)
    check_choice("output", output, ("all", "last"))
    check_input(x, h0, n, weight_ih, bias, batch_sizes)
    check_same("h0", h0, bias=bias, parameter=parameter)
    _check_stored(x, weight_ih, h0)
    count = phi.parameter_size(n)
    if parameter is None and count:
        raise ArgumentError(f"{phi.name} has a trainable vector of {count} numbers; pass it as `parameter`.")
    if parameter is not None:
        if not count:
            raise ArgumentError(f"{phi.name} has no parameter; got one of shape {tuple(parameter.shape)}.")
        check_shape("parameter", parameter, (count,))
    clip = check_positive("clip", clip)
    call = Call(
        recurrence,
        batch_sizes,
        phi,
        clip,
        output == "last",
        backend,
    )
    check_choice("backend", backend, BACKENDS)
    weight = transition[0]
    assert weight is not None
    if not torch.compiler.is_compiling():  # in a graph the operator chooses, when sizes are known
        call = call._replace(backend=choose(backend, h0.device, h0.dtype, size_of(call, x, h0, weight)))
    if key is not None:
        if len(_PASSED) >= _MOST_PASSED:
            _PASSED.clear()
        _PASSED[key] = call
    return call
