"""Calls into orthornn._native, the compiled kernels of csrc/: they take contiguous CPU tensors and ask where these lie.

Both recurrences go through here; what differs between them is which operands are given (W, or U, S and the base).
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..activations import Activation
from ..compact_wy import Base
from ..errors import BackendError
from .sequence import Steps, cast, is_tokens, stored_dtype

if TYPE_CHECKING:
    from .node import Needs

# What bindings.cpp calls `interface`: an extension from other sources than these must not be called.
_INTERFACE = 3
_REASON: str | None = None
try:
    _native: Any = importlib.import_module("orthornn._native")
except ImportError as error:  # a source tree or a wheel without the compiled extension
    _native = None
    _REASON = f"the compiled extension orthornn._native is missing ({error}); install with a C++20 compiler to have it"
else:
    if getattr(_native, "interface", None) != _INTERFACE:
        _native = None
        _REASON = "the compiled extension is not from the sources beside it; install again to build it anew"

# Up to this input size V x_t is made inside the recurrence, where the chain does not wait for it; above, one matrix
# product for all rows is cheaper.
NARROW_INPUT = 4
PROJECTED, RAW, TOKENS = 0, 1, 2
# Bytes from which large pages are asked for. The C library takes smaller arrays from memory that is in use already.
_LARGE = 1 << 23


def missing() -> str | None:
    """Why the compiled kernels cannot run here, or None if they can."""
    return _REASON


class Build(NamedTuple):
    """The compiled kernels here: the instruction set in use, those usable, the OpenMP runtime that lends its threads."""

    isa: str
    usable: tuple[str, ...]
    threading_runtime: str | None


def build() -> Build | None:
    """What is built and chosen, or None where nothing is. BackendError if ORTHORNN_ISA asks for what is not there."""
    if _native is None:
        return None
    try:
        return Build(_native.isa(), tuple(_native.supported_isas()), _native.threading_runtime())
    except RuntimeError as error:
        raise BackendError(str(error)) from error


class Transition(NamedTuple):
    """W (N, N), or U (N, M) and S (M, M) with the base, or rotations (2, N) in float64."""

    W: Tensor | None = None
    U: Tensor | None = None
    S: Tensor | None = None
    base: Base = None
    rotations: Tensor | None = None

    @property
    def reflections(self) -> int:
        """M, 0 for a dense W."""
        return 0 if self.U is None else self.U.shape[1]

    def contiguous(self) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """W, U, S, c and s, contiguous; and the rotations, which come last in a call, if there are any."""
        matrices = _contiguous(self.W, self.U, self.S, *(self.base or _NO_BASE))
        return matrices, [] if self.rotations is None else [self.rotations.contiguous()]


_NO_BASE = (None, None)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _rows(like: Tensor, rows: int, columns: int) -> Tensor:
    """Memory (rows, columns) to be written as a whole, on large pages where it is large; see `ask_for_large_pages`."""
    out = like.new_empty(rows, columns)
    if out.nbytes >= _LARGE:
        _native.ask_for_large_pages(out, out.nbytes)
    return out


class _Layout:
    """The sizes that every call starts with; holds the step sizes alive."""

    __slots__ = ("numbers", "sizes")

    def __init__(self, h0: Tensor, steps: Steps) -> None:
        self.sizes = None if steps.sizes is None else torch.tensor(steps.sizes, dtype=torch.int64)
        self.numbers = (h0.element_size(), steps.length, steps.batch, h0.shape[1], steps.rows, self.sizes)


def _input(
    rows: Tensor, weight_ih: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> tuple[int, Tensor, Tensor | None, Tensor | None]:
    """Kind of the input, its rows, V and b as the kernels take them."""
    if weight_ih is None:
        rows = cast(rows, dtype)
        return PROJECTED, (rows if bias is None else rows + bias).contiguous(), None, None
    tokens, weight_ih = is_tokens(rows), cast(weight_ih, dtype)
    rows = cast(rows, torch.int64 if tokens else dtype)
    if tokens or weight_ih.shape[1] <= NARROW_INPUT:
        bias = None if bias is None else bias.contiguous()
        return TOKENS if tokens else RAW, rows.contiguous(), weight_ih.contiguous(), bias
    projected = _rows(rows, rows.shape[0], weight_ih.shape[0])
    if bias is None:
        torch.mm(rows, weight_ih.mT, out=projected)
    else:
        torch.addmm(bias, rows, weight_ih.mT, out=projected)
    return PROJECTED, projected, None, None


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    transition: Transition,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    last: bool = False,
    keep: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """States (R, N), pre-activations (R, N) if phi's derivative reads them, and h~ (R, M) in the compact form.

    last: instead of all states the last one of each sequence (B, N), without memory for the others.
    keep: whether there is what only a backward pass reads, pre-activations and h~.
    """
    stored = stored_dtype(rows, weight_ih)
    kind, x, weight_ih, bias = _input(rows, weight_ih, bias, h0.dtype)
    (matrices, rotations), (parameter,) = transition.contiguous(), _contiguous(parameter)
    h0 = h0.contiguous()
    layout, m = _Layout(h0, steps), transition.reflections
    states = _rows(h0, steps.batch if last else steps.rows, h0.shape[1])
    kept = _rows(h0, steps.rows, h0.shape[1]) if keep and activation.reads == "preactivation" else None
    h_tilde = None if not keep or transition.U is None else _rows(h0, steps.rows, m)
    _native.forward(
        *layout.numbers,
        m,
        *matrices,
        activation.code,
        activation.slope,
        parameter,
        kind,
        x,
        weight_ih,
        bias,
        0 if weight_ih is None else weight_ih.shape[1],
        h0,
        None if last else states,
        kept,
        states if last else None,
        h_tilde,
        torch.get_num_threads(),
        *rotations,
    )
    if stored == h0.dtype:
        return states, kept, h_tilde
    kept, h_tilde = (None if t is None else t.to(stored) for t in (kept, h_tilde))
    return states.to(stored), kept, h_tilde


def reverse(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h_last: Tensor,
    transition: Transition,
    activation: Activation,
    parameter: Tensor | None,
    order: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """What `forward` gave, from the last states (B, N) backwards, and the state (B, N) before the first step.

    order: bool (R, N//2), for oplu; see Activation.inverse.
    """
    kind, x, weight_ih, bias = _input(rows, weight_ih, bias, h_last.dtype)
    (matrices, rotations), (parameter,) = transition.contiguous(), _contiguous(parameter)
    h_last = h_last.contiguous()
    layout, m, n = _Layout(h_last, steps), transition.reflections, h_last.shape[1]
    states = _rows(h_last, steps.rows, n)
    kept = _rows(h_last, steps.rows, n) if activation.reads == "preactivation" else None
    if kept is not None and order is not None:
        kept[:, : n // 2] = order.to(kept.dtype) - 0.5  # the kernel reads the sign
        kept[:, n // 2 :] = 0
    h_tilde = None if transition.U is None else _rows(h_last, steps.rows, m)
    before = torch.empty_like(h_last)
    _native.reverse(
        *layout.numbers,
        m,
        *matrices,
        activation.code,
        parameter,
        kind,
        x,
        weight_ih,
        bias,
        0 if weight_ih is None else weight_ih.shape[1],
        h_last,
        states,
        kept,
        h_tilde,
        before,
        torch.get_num_threads(),
        *rotations,
    )
    return states, kept, h_tilde, before


class Gradients(NamedTuple):
    """Of x, V (N, I), b (N,), h0, W (N, N) or the reflectors, c, s and phi's parameter; None where not needed."""

    x: Tensor | None
    weight_ih: Tensor | None
    bias: Tensor | None
    h0: Tensor | None
    weight: Tensor | None
    c: Tensor | None
    s: Tensor | None
    parameter: Tensor | None


def backward(
    grad: Tensor,
    last: bool,
    rows: Tensor,
    weight_ih: Tensor | None,
    h0: Tensor,
    transition: Transition,
    weight: Tensor,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    states: Tensor | None,
    kept: Tensor | None,
    h_tilde: Tensor | None,
    needs: Needs,
) -> Gradients:
    """The whole backward pass in one call.

    grad: (R, N), or (B, N) with `last`. weight: W, or the reflectors as the caller has them, packed or not. states may be
    None where `kept` holds pre-activations, unless the gradient of the base is needed.
    """
    n, m = h0.shape[1], transition.reflections
    tokens, stored = is_tokens(rows), stored_dtype(rows, weight_ih)
    x = cast(rows, torch.int64 if tokens else h0.dtype).contiguous()
    grad = cast(grad, h0.dtype)
    if stored != h0.dtype:
        weight_ih, states, kept, h_tilde = (
            None if t is None else t.to(h0.dtype) for t in (weight_ih, states, kept, h_tilde)
        )
    inside = weight_ih is not None and (tokens or weight_ih.shape[1] <= NARROW_INPUT)
    kind = PROJECTED if not inside else TOKENS if tokens else RAW
    (matrices, rotations), (states, parameter) = transition.contiguous(), _contiguous(states, parameter)
    grad, h0, weight = grad.contiguous(), h0.contiguous(), weight.contiguous()
    layout, compact = _Layout(h0, steps), transition.U is not None

    needs_x = needs.x and not tokens
    needs_delta = needs_x or (needs.weight_ih and weight_ih is not None and not inside)
    delta = _rows(h0, steps.rows, n) if needs_delta else None
    by_h0 = torch.empty_like(h0) if needs.h0 else None
    by_parameter = torch.empty_like(parameter) if parameter is not None and needs.parameter else None
    by_c, by_s = (h0.new_empty(n), h0.new_empty(n)) if needs.c or needs.s else (None, None)
    by_weight = torch.empty_like(weight) if needs.weight else None
    by_V = h0.new_empty(n, weight_ih.shape[1]) if inside and needs.weight_ih and weight_ih is not None else None
    by_b = h0.new_empty(n) if needs.bias else None
    packed, free = (None, None) if not compact else (weight, None) if weight.dim() == 1 else (None, weight)
    _native.backward(
        *layout.numbers,
        m,
        *matrices,
        activation.code,
        activation.slope,
        parameter,
        math.inf if clip is None else clip,
        states if kept is None else kept,
        states,
        h0,
        None if last else grad,
        grad if last else None,
        delta,
        by_h0,
        by_parameter,
        by_c,
        by_s,
        None if compact else by_weight,
        packed,
        free,
        h_tilde,
        by_weight if compact else None,
        kind,
        x,
        0 if weight_ih is None else weight_ih.shape[1],
        by_V,
        by_b,
        torch.get_num_threads(),
        *rotations,
    )
    by_x = delta if needs_x else None
    if delta is not None and weight_ih is not None:
        by_x = torch.mm(delta, weight_ih, out=_rows(delta, steps.rows, weight_ih.shape[1])) if needs_x else None
        if needs.weight_ih and not inside:
            by_V = delta.mT @ x
    if stored != h0.dtype:
        by_x, by_V = (None if t is None else t.to(stored) for t in (by_x, by_V))
    return Gradients(by_x, by_V, by_b, by_h0, by_weight, by_c, by_s, by_parameter)


def factors(reflectors: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
    """U (N, M) and S (M, M) from packed reflectors (P,) or U itself (N, M), computed in float64."""
    reflectors = reflectors.contiguous()
    U, S = reflectors.new_empty(n, m), reflectors.new_empty(m, m)
    packed, free = (reflectors, None) if reflectors.dim() == 1 else (None, reflectors)
    _native.factors(reflectors.element_size(), n, m, packed, free, U, S, torch.get_num_threads())
    return U, S
