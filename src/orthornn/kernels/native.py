"""Calls into orthornn._native, the compiled kernels of csrc/: they take the addresses of contiguous CPU tensors.

Both recurrences go through here; what differs between them is which operands are given (W, or U, S and the base).
"""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..activations import Activation
from ..compact_wy import Base
from .sequence import Steps, is_tokens

try:
    _native: Any = importlib.import_module("orthornn._native")
except ImportError as error:  # a source tree or a wheel without the compiled extension
    _native = None
    _REASON: str | None = (
        f"the compiled extension orthornn._native is missing ({error}); install with a C++20 compiler to have it"
    )
else:
    _REASON = None

# Up to this input size V x_t is made inside the recurrence, where the chain does not wait for it; above, one matrix
# product for all rows is cheaper.
NARROW_INPUT = 4
PROJECTED, RAW, TOKENS = 0, 1, 2


def missing() -> str | None:
    """Why the compiled kernels cannot run here, or None if they can."""
    return _REASON


class Transition(NamedTuple):
    """W (N, N), or U (N, M) and S (M, M) with the base."""

    W: Tensor | None = None
    U: Tensor | None = None
    S: Tensor | None = None
    base: Base = None

    @property
    def reflections(self) -> int:
        """M, 0 for a dense W."""
        return 0 if self.U is None else self.U.shape[1]

    def contiguous(self) -> Transition:
        """The same with every tensor contiguous."""
        W, U, S = (None if t is None else t.contiguous() for t in (self.W, self.U, self.S))
        return Transition(
            W, U, S, None if self.base is None else (self.base[0].contiguous(), self.base[1].contiguous())
        )

    def addresses(self) -> tuple[int, int, int, int, int]:
        """Of W, U, S, c, s."""
        c, s = (None, None) if self.base is None else self.base
        return _at(self.W), _at(self.U), _at(self.S), _at(c), _at(s)


def _at(tensor: Tensor | None) -> int:
    """The address of a contiguous tensor, 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


class _Layout:
    """The sizes that every call starts with; holds the step sizes alive."""

    __slots__ = ("numbers", "sizes")

    def __init__(self, h0: Tensor, steps: Steps) -> None:
        self.sizes = None if steps.sizes is None else torch.tensor(steps.sizes, dtype=torch.int64)
        self.numbers = (h0.element_size(), steps.length, steps.batch, h0.shape[1], steps.rows, _at(self.sizes))


def _input(
    rows: Tensor, weight_ih: Tensor | None, bias: Tensor | None
) -> tuple[int, Tensor, Tensor | None, Tensor | None]:
    """Kind of the input, its rows, V and b as the kernels take them."""
    if weight_ih is None:
        return PROJECTED, (rows if bias is None else rows + bias).contiguous(), None, None
    if is_tokens(rows):
        return TOKENS, rows.long().contiguous(), weight_ih.contiguous(), None if bias is None else bias.contiguous()
    if weight_ih.shape[1] <= NARROW_INPUT:
        return RAW, rows.contiguous(), weight_ih.contiguous(), None if bias is None else bias.contiguous()
    return PROJECTED, F.linear(rows, weight_ih, bias).contiguous(), None, None


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    transition: Transition,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """States (R, N), pre-activations (R, N) if phi's derivative reads them, and h~ (R, M) in the compact form."""
    kind, x, weight_ih, bias = _input(rows, weight_ih, bias)
    h0, transition = h0.contiguous(), transition.contiguous()
    parameter = None if parameter is None else parameter.contiguous()
    layout, m = _Layout(h0, steps), transition.reflections
    states = h0.new_empty(steps.rows, h0.shape[1])
    kept = torch.empty_like(states) if activation.reads == "preactivation" else None
    h_tilde = None if transition.U is None else h0.new_empty(steps.rows, m)
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
        _at(states),
        _at(kept),
        0,
        _at(h_tilde),
        torch.get_num_threads(),
    )
    return states, kept, h_tilde


class Chain(NamedTuple):
    """What the sequential part of the backward pass gives: delta (R, N), dL/dh0, dL/dparameter, C~ (R, M), dL/d(c, s)."""

    delta: Tensor
    by_h0: Tensor
    by_parameter: Tensor | None
    C_tilde: Tensor | None
    by_base: Base


def backward(
    grad: Tensor,
    last: bool,
    kept: Tensor,
    states: Tensor,
    h0: Tensor,
    transition: Transition,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    needs_base: bool,
) -> Chain:
    """The chain; grad is (R, N), or (B, N) with `last`."""
    grad, kept, states, h0 = grad.contiguous(), kept.contiguous(), states.contiguous(), h0.contiguous()
    transition = transition.contiguous()
    parameter = None if parameter is None else parameter.contiguous()
    layout, m = _Layout(h0, steps), transition.reflections
    delta, by_h0 = h0.new_empty(steps.rows, h0.shape[1]), torch.empty_like(h0)
    by_parameter = None if parameter is None else torch.empty_like(parameter)
    C_tilde = None if transition.U is None else h0.new_empty(steps.rows, m)
    by_base = (h0.new_empty(h0.shape[1]), h0.new_empty(h0.shape[1])) if needs_base else None
    by_c, by_s = (None, None) if by_base is None else by_base
    _native.backward(
        *layout.numbers,
        m,
        *transition.addresses(),
        activation.code,
        activation.slope,
        _at(parameter),
        math.inf if clip is None else clip,
        _at(kept),
        _at(states),
        _at(h0),
        0 if last else _at(grad),
        _at(grad) if last else 0,
        _at(delta),
        _at(by_h0),
        _at(by_parameter),
        _at(by_c),
        _at(by_s),
        _at(C_tilde),
        torch.get_num_threads(),
    )
    return Chain(delta, by_h0, by_parameter, C_tilde, by_base)


def outer(
    delta: Tensor,
    states: Tensor,
    h0: Tensor,
    activation: Activation,
    steps: Steps,
) -> Tensor:
    """sum over rows of delta h_{t-1}': (N, N)."""
    h0, states = h0.contiguous(), states.contiguous()
    layout = _Layout(h0, steps)
    by_W = h0.new_empty(h0.shape[1], h0.shape[1])
    # The states are given, so phi is not evaluated: any code without a parameter serves.
    _native.gradient(
        *layout.numbers,
        0,
        0,
        0,
        0,
        0.0,
        0,
        _at(states),
        0,
        _at(h0),
        _at(delta),
        0,
        0,
        _at(by_W),
        0,
        0,
        0,
        torch.get_num_threads(),
    )
    return by_W


def reflector_gradient(
    delta: Tensor,
    h_tilde: Tensor,
    C_tilde: Tensor,
    states: Tensor,
    h0: Tensor,
    reflectors: Tensor,
    base: Base,
    steps: Steps,
) -> Tensor:
    """dL/dU by Theorem 2, in the shape of `reflectors`: packed (P,), through their scaling, or (N, M)."""
    h0, states, reflectors = h0.contiguous(), states.contiguous(), reflectors.contiguous()
    layout, n, m = _Layout(h0, steps), h0.shape[1], h_tilde.shape[1]
    c, s = (None, None) if base is None else (base[0].contiguous(), base[1].contiguous())
    inner, d_h_tilde, h_C_tilde = h0.new_empty(m, m), h0.new_empty(n, m), h0.new_empty(n, m)
    threads = torch.get_num_threads()
    _native.gradient(
        *layout.numbers,
        m,
        _at(c),
        _at(s),
        0,
        0.0,
        0,
        _at(states),
        0,
        _at(h0),
        _at(delta),
        _at(h_tilde),
        _at(C_tilde),
        0,
        _at(inner),
        _at(d_h_tilde),
        _at(h_C_tilde),
        threads,
    )
    grad = torch.empty_like(reflectors)
    packed, free = (reflectors, None) if reflectors.dim() == 1 else (None, reflectors)
    _native.reflector_gradient(
        h0.element_size(), n, m, _at(packed), _at(free), _at(inner), _at(d_h_tilde), _at(h_C_tilde), _at(grad), threads
    )
    return grad


def factors(reflectors: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
    """U (N, M) and S (M, M) from packed reflectors (P,) or U itself (N, M), computed in float64."""
    reflectors = reflectors.contiguous()
    U, S = reflectors.new_empty(n, m), reflectors.new_empty(m, m)
    packed, free = (reflectors, None) if reflectors.dim() == 1 else (None, reflectors)
    _native.factors(reflectors.element_size(), n, m, _at(packed), _at(free), _at(U), _at(S), torch.get_num_threads())
    return U, S


def input_gradients(
    delta: Tensor,
    rows: Tensor,
    weight_ih: Tensor | None,
    needs_x: bool,
    needs_weight: bool,
    needs_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dL/dx, dL/dV (N, I) and dL/db (N,) from delta (R, N)."""
    by_weight = by_bias = None
    size, n = delta.shape
    tokens = is_tokens(rows)
    inside = weight_ih is not None and (tokens or weight_ih.shape[1] <= NARROW_INPUT)
    if weight_ih is None:
        by_x = delta if needs_x else None
    else:
        by_x = delta @ weight_ih if needs_x and not tokens else None
    if needs_bias:
        by_bias = delta.new_empty(n)
    if weight_ih is not None and needs_weight:
        by_weight = torch.empty_like(weight_ih, memory_format=torch.contiguous_format) if inside else delta.mT @ rows
    if by_bias is not None or (inside and needs_weight):
        kind = PROJECTED if not inside else TOKENS if tokens else RAW
        x = rows.long().contiguous() if tokens else rows.contiguous()
        width = weight_ih.shape[1] if inside and weight_ih is not None else 0
        _native.input_gradient(
            delta.element_size(),
            size,
            n,
            kind,
            _at(x),
            width,
            _at(delta),
            _at(by_weight) if inside else 0,
            _at(by_bias),
            torch.get_num_threads(),
        )
    return by_x, by_weight, by_bias
