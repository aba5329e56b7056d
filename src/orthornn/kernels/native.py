"""Calls into orthornn._native, the compiled kernels of csrc/: they take the addresses of contiguous CPU tensors.

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
from .sequence import Steps, is_tokens, stored_dtype

if TYPE_CHECKING:
    from .node import Needs

# What bindings.cpp calls `interface`: an extension from other sources than these must not be called.
_INTERFACE = 2
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
    """What is built and chosen, or None where nothing is."""
    if _native is None:
        return None
    return Build(_native.isa(), tuple(_native.supported_isas()), _native.threading_runtime())


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

    def contiguous(self) -> Transition:
        """The same with every tensor contiguous."""
        W, U, S = (None if t is None else t.contiguous() for t in (self.W, self.U, self.S))
        base = None if self.base is None else (self.base[0].contiguous(), self.base[1].contiguous())
        return Transition(W, U, S, base, None if self.rotations is None else self.rotations.contiguous())

    def addresses(self) -> tuple[int, int, int, int, int]:
        """Of W, U, S, c, s."""
        c, s = (None, None) if self.base is None else self.base
        return _at(self.W), _at(self.U), _at(self.S), _at(c), _at(s)

    def last_addresses(self) -> tuple[int, ...]:
        """Of the rotations, which come last in a call, if there are any."""
        return () if self.rotations is None else (_at(self.rotations),)


def _at(tensor: Tensor | None) -> int:
    """The address of a contiguous tensor, 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def _rows(like: Tensor, rows: int, columns: int) -> Tensor:
    """Memory (rows, columns) to be written as a whole, on large pages where it is large; see `ask_for_large_pages`."""
    out = like.new_empty(rows, columns)
    if out.nbytes >= _LARGE:
        _native.ask_for_large_pages(out.data_ptr(), out.nbytes)
    return out


class _Layout:
    """The sizes that every call starts with; holds the step sizes alive."""

    __slots__ = ("numbers", "sizes")

    def __init__(self, h0: Tensor, steps: Steps) -> None:
        self.sizes = None if steps.sizes is None else torch.tensor(steps.sizes, dtype=torch.int64)
        self.numbers = (h0.element_size(), steps.length, steps.batch, h0.shape[1], steps.rows, _at(self.sizes))


def _input(
    rows: Tensor, weight_ih: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> tuple[int, Tensor, Tensor | None, Tensor | None]:
    """Kind of the input, its rows, V and b as the kernels take them."""
    rows = rows if is_tokens(rows) else rows.to(dtype)
    weight_ih = None if weight_ih is None else weight_ih.to(dtype)
    if weight_ih is None:
        return PROJECTED, (rows if bias is None else rows + bias).contiguous(), None, None
    if is_tokens(rows):
        return TOKENS, rows.long().contiguous(), weight_ih.contiguous(), None if bias is None else bias.contiguous()
    if weight_ih.shape[1] <= NARROW_INPUT:
        return RAW, rows.contiguous(), weight_ih.contiguous(), None if bias is None else bias.contiguous()
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
    h0, transition = h0.contiguous(), transition.contiguous()
    parameter = None if parameter is None else parameter.contiguous()
    layout, m = _Layout(h0, steps), transition.reflections
    states = _rows(h0, steps.batch if last else steps.rows, h0.shape[1])
    kept = _rows(h0, steps.rows, h0.shape[1]) if keep and activation.reads == "preactivation" else None
    h_tilde = None if not keep or transition.U is None else _rows(h0, steps.rows, m)
    _native.forward(
        *layout.numbers,
        m,
        *transition.addresses(),
        activation.code,
        activation.slope,
        _at(parameter),
        kind,
        _at(x),
        _at(weight_ih),
        _at(bias),
        0 if weight_ih is None else weight_ih.shape[1],
        _at(h0),
        0 if last else _at(states),
        _at(kept),
        _at(states) if last else 0,
        _at(h_tilde),
        torch.get_num_threads(),
        *transition.last_addresses(),
    )
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
    h_last, transition = h_last.contiguous(), transition.contiguous()
    parameter = None if parameter is None else parameter.contiguous()
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
        *transition.addresses(),
        activation.code,
        _at(parameter),
        kind,
        _at(x),
        _at(weight_ih),
        _at(bias),
        0 if weight_ih is None else weight_ih.shape[1],
        _at(h_last),
        _at(states),
        _at(kept),
        _at(h_tilde),
        _at(before),
        torch.get_num_threads(),
        *transition.last_addresses(),
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
    rows = rows if tokens else rows.to(h0.dtype)
    grad = grad.to(h0.dtype)
    weight_ih, states, kept, h_tilde = (
        None if t is None else t.to(h0.dtype) for t in (weight_ih, states, kept, h_tilde)
    )
    inside = weight_ih is not None and (tokens or weight_ih.shape[1] <= NARROW_INPUT)
    x = rows.long().contiguous() if tokens else rows.contiguous()
    kind = PROJECTED if not inside else TOKENS if tokens else RAW
    grad, h0, weight, transition = grad.contiguous(), h0.contiguous(), weight.contiguous(), transition.contiguous()
    states = None if states is None else states.contiguous()
    parameter = None if parameter is None else parameter.contiguous()
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
    _native.backward(
        *layout.numbers,
        m,
        *transition.addresses(),
        activation.code,
        activation.slope,
        _at(parameter),
        math.inf if clip is None else clip,
        _at(states if kept is None else kept),
        _at(states),
        _at(h0),
        0 if last else _at(grad),
        _at(grad) if last else 0,
        _at(delta),
        _at(by_h0),
        _at(by_parameter),
        _at(by_c),
        _at(by_s),
        0 if compact else _at(by_weight),
        _at(weight) if compact and weight.dim() == 1 else 0,
        _at(weight) if compact and weight.dim() == 2 else 0,
        _at(h_tilde),
        _at(by_weight) if compact else 0,
        kind,
        _at(x),
        0 if weight_ih is None else weight_ih.shape[1],
        _at(by_V),
        _at(by_b),
        torch.get_num_threads(),
        *transition.last_addresses(),
    )
    by_x = delta if needs_x else None
    if delta is not None and weight_ih is not None:
        by_x = torch.mm(delta, weight_ih, out=_rows(delta, steps.rows, weight_ih.shape[1])) if needs_x else None
        if needs.weight_ih and not inside:
            by_V = delta.mT @ x
    by_x, by_V = (None if t is None else t.to(stored) for t in (by_x, by_V))
    return Gradients(by_x, by_V, by_b, by_h0, by_weight, by_c, by_s, by_parameter)


def factors(reflectors: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
    """U (N, M) and S (M, M) from packed reflectors (P,) or U itself (N, M), computed in float64."""
    reflectors = reflectors.contiguous()
    U, S = reflectors.new_empty(n, m), reflectors.new_empty(m, m)
    packed, free = (reflectors, None) if reflectors.dim() == 1 else (None, reflectors)
    _native.factors(reflectors.element_size(), n, m, _at(packed), _at(free), _at(U), _at(S), torch.get_num_threads())
    return U, S
