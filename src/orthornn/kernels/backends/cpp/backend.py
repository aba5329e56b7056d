"""The backend of compiled kernels: turns a `Call` into contiguous memory and one call of the extension.

The extension asks tensors for their addresses, so everything it is given is checked here: dtype, device and number of
entries. It computes every parameter gradient but that of a wide input projection, which is a matrix product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....errors import ArgumentError
from ....layout import SequenceLayout
from ...call import Call, Gradients, Needs, Residuals, Size, States
from ...projection import cast, is_tokens, stored_dtype
from . import extension
from .memory import empty, memory, memory_or_none

# Up to this input size V x_t is computed inside the recurrence, where the chain does not wait for it; above, one matrix
# product for all rows is cheaper.
NARROW_INPUT = 4
PROJECTED, RAW, TOKENS = 0, 1, 2


class CppBackend:
    """The kernels of csrc/ on CPU tensors."""

    name = "cpp"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why it cannot run: it needs a CPU and the compiled extension."""
        return extension.missing() if device.type == "cpu" else "it runs only on the CPU"

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return None: it runs every call."""
        return None

    def prepare(self, call: Call) -> Call:
        """Return the call with a contiguous weight or, for compact WY, with its factors."""
        if call.options.kind != "compact_wy":
            return call._replace(weight=memory(call.weight))
        return call if call.factors is not None else call._replace(factors=factors(call))

    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        """Return the states and what the backward pass needs, from one call of the extension."""
        _check(call)
        layout, options, phi, h0 = call.layout, call.options, call.options.activation, memory(call.h0)
        n, rows = h0.shape[1], layout.rows
        compact = options.kind == "compact_wy"
        U, S = (call.factors or factors(call)) if compact else (None, None)
        W, c, s, rotations = _transition(call)
        stored = stored_dtype(call.x, call.weight_ih)
        kind, x, weight_ih, bias = _input(call)
        reads_state = phi.reads == "state"
        states = None if options.only_last and not (save and reads_state) else empty(h0, layout.shape(n))
        last = torch.empty_like(h0)
        preactivations = empty(h0, (rows, n)) if save and not reads_state else None
        h_tilde = empty(h0, (rows, U.shape[1])) if save and U is not None else None
        extension.native.forward(
            element_size=h0.element_size(),
            T=layout.length,
            B=layout.batch,
            N=n,
            R=rows,
            batch_sizes=_batch_sizes(layout),
            M=0 if U is None else U.shape[1],
            W=W,
            U=U,
            S=S,
            c=c,
            s=s,
            rotations=rotations,
            activation=phi.code,
            slope=phi.slope,
            parameter=memory_or_none(call.parameter),
            input_kind=kind,
            x=x,
            weight_ih=weight_ih,
            bias=bias,
            I=0 if weight_ih is None else weight_ih.shape[1],
            h0=h0,
            resets=memory_or_none(layout.resets),
            restart=memory_or_none(call.restart),
            states=states,
            kept=preactivations,
            last=last,
            h_tilde=h_tilde,
            threads=torch.get_num_threads(),
        )
        if stored != h0.dtype:
            last = last.to(stored)
            states, preactivations, h_tilde = (
                None if t is None else t.to(stored) for t in (states, preactivations, h_tilde)
            )
        result = States(None if options.only_last else states, last)
        if not save:
            return result, Residuals()
        kept_U = U if call.weight.dim() == 1 else None
        return result, Residuals(states if reads_state else None, preactivations, h_tilde, kept_U, S)

    def backward(self, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
        """Return the gradients that are needed, from one call of the extension."""
        layout, options, phi, h0, weight = (
            call.layout,
            call.options,
            call.options.activation,
            memory(call.h0),
            call.weight,
        )
        n, compact, weight_ih = h0.shape[1], options.kind == "compact_wy", call.weight_ih
        states, preactivations, h_tilde, U, S, _ = residuals
        W, c, s, rotations = _transition(call)
        if compact:
            weight = memory(weight)
            U = weight if U is None else U
        else:
            U = S = None
        if states is None and (needs.c or needs.s):
            assert preactivations is not None
            states = phi(preactivations.to(h0.dtype), call.parameter)
        tokens, stored = is_tokens(call.x), stored_dtype(call.x, weight_ih)
        x = memory(cast(call.x, torch.int64 if tokens else h0.dtype))
        if stored != h0.dtype:
            weight_ih, states, preactivations, h_tilde = (
                None if t is None else t.to(h0.dtype) for t in (weight_ih, states, preactivations, h_tilde)
            )
        inside = weight_ih is not None and (tokens or weight_ih.shape[1] <= NARROW_INPUT)

        needs_x = needs.x and not tokens
        needs_delta = needs_x or (needs.weight_ih and weight_ih is not None and not inside)
        delta = empty(h0, (layout.rows, n)) if needs_delta else None
        grad_h0 = torch.empty_like(h0) if needs.h0 else None
        grad_restart = torch.empty_like(h0) if needs.restart else None
        parameter = memory_or_none(call.parameter)
        grad_parameter = torch.empty_like(parameter) if parameter is not None and needs.parameter else None
        grad_c, grad_s = (h0.new_empty(n), h0.new_empty(n)) if compact and (needs.c or needs.s) else (None, None)
        grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs.weight else None
        grad_V = None
        if inside and needs.weight_ih and weight_ih is not None:
            grad_V = h0.new_empty(n, weight_ih.shape[1])
        grad_bias = h0.new_empty(n) if needs.bias else None
        grad_all = None if grad.all is None else memory(cast(grad.all, h0.dtype))
        grad_last = None if grad.last is None else memory(cast(grad.last, h0.dtype))
        extension.native.backward(
            element_size=h0.element_size(),
            T=layout.length,
            B=layout.batch,
            N=n,
            R=layout.rows,
            batch_sizes=_batch_sizes(layout),
            M=0 if U is None else U.shape[1],
            W=W,
            U=U,
            S=S,
            c=c,
            s=s,
            rotations=rotations,
            activation=phi.code,
            slope=phi.slope,
            parameter=parameter,
            clip=math.inf if options.clip is None else options.clip,
            kept=states if preactivations is None else preactivations,
            states=states,
            h0=h0,
            resets=memory_or_none(layout.resets),
            restart=memory_or_none(call.restart),
            grad_states=grad_all,
            grad_last=grad_last,
            delta=delta,
            grad_h0=grad_h0,
            grad_restart=grad_restart,
            grad_parameter=grad_parameter,
            grad_c=grad_c,
            grad_s=grad_s,
            grad_W=None if compact else grad_weight,
            packed=weight if compact and weight.dim() == 1 else None,
            free=weight if compact and weight.dim() == 2 else None,
            h_tilde=h_tilde,
            grad_reflectors=grad_weight if compact else None,
            input_kind=PROJECTED if not inside else TOKENS if tokens else RAW,
            x=x,
            I=0 if weight_ih is None else weight_ih.shape[1],
            grad_weight_ih=grad_V,
            grad_bias=grad_bias,
            threads=torch.get_num_threads(),
        )
        grad_x = delta if needs_x else None
        if delta is not None and weight_ih is not None:
            if needs_x:
                grad_x = torch.mm(delta, weight_ih, out=empty(delta, (layout.rows, weight_ih.shape[1])))
            if needs.weight_ih and not inside:
                grad_V = delta.mT @ layout.flatten(x)
        if stored != h0.dtype:
            grad_x, grad_V = (None if t is None else t.to(stored) for t in (grad_x, grad_V))
        return Gradients(grad_x, grad_V, grad_bias, grad_h0, grad_weight, grad_c, grad_s, grad_parameter, grad_restart)


CPP = CppBackend()


def factors(call: Call) -> tuple[Tensor, Tensor]:
    """Return U (N, M) and S (M, M) of a call's reflectors, computed in float64."""
    return reflector_factors(call.weight, call.h0.shape[1], call.num_reflections or 0)


def reflector_factors(reflectors: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
    """Return U (N, M) and S (M, M) from packed reflectors (P,) or U itself (N, M), computed in float64."""
    reflectors = memory(reflectors)
    U, S = reflectors.new_empty(n, m), reflectors.new_empty(m, m)
    packed, free = (reflectors, None) if reflectors.dim() == 1 else (None, reflectors)
    extension.native.factors(
        element_size=reflectors.element_size(),
        N=n,
        M=m,
        packed=packed,
        free=free,
        U=U,
        S=S,
        threads=torch.get_num_threads(),
    )
    return U, S


def _batch_sizes(layout: SequenceLayout) -> Tensor | None:
    """Return the number of rows of each step as memory."""
    sizes = layout.batch_sizes
    if sizes is None:
        return None
    if sizes.dtype != torch.int64 or not sizes.is_cpu or tuple(sizes.shape) != (layout.length,):
        raise ArgumentError(
            f"Expected batch_sizes to be {layout.length} int64 numbers on the CPU, but got {tuple(sizes.shape)} in "
            f"{sizes.dtype} on {sizes.device}. Pack with torch.nn.utils.rnn.pack_padded_sequence."
        )
    return memory(sizes)


def _check(call: Call) -> None:
    """Raise ArgumentError unless every tensor is what the extension takes it for: it reads addresses, not tensors."""
    x, weight_ih, bias, h0, weight, c, s, parameter, layout, options, restart, _ = call
    n, dtype, kind, resets = h0.shape[1], h0.dtype, options.kind, layout.resets
    if not x.is_cpu:
        _refuse(call, 0)
    if weight_ih is not None and not (weight_ih.is_cpu and weight_ih.shape[0] == n):
        _refuse(call, 1)
    if bias is not None and not (bias.is_cpu and bias.dtype is dtype and bias.numel() == n):
        _refuse(call, 2)
    if not h0.is_cpu:
        _refuse(call, 3)
    if not (weight.is_cpu and weight.dtype is dtype and (kind == "compact_wy" or weight.numel() == n * n)):
        _refuse(call, 4)
    for index, half in ((5, c), (6, s)) if c is not None else ():  # rotations may be in another dtype
        assert half is not None
        if not (half.is_cpu and (half.dtype is dtype or kind == "rotations") and half.numel() == n):
            _refuse(call, index)
    if parameter is not None:
        size = options.activation.parameter_size(n)
        if not (parameter.is_cpu and parameter.dtype is dtype and parameter.numel() == size):
            _refuse(call, 7)
    if restart is not None and not (restart.is_cpu and restart.dtype is dtype and restart.numel() == h0.numel()):
        _refuse(call, 8)
    if resets is not None and not (resets.is_cpu and resets.dtype == torch.bool and resets.numel() == layout.rows):
        raise ArgumentError(
            f"Expected reset to be {layout.rows} booleans on the CPU, but got {tuple(resets.shape)} in {resets.dtype} "
            f"on {resets.device}. Move it to the device of the input."
        )


def _refuse(call: Call, index: int) -> None:
    name, tensor = Needs._fields[index], call.tensors()[index]
    assert tensor is not None
    raise ArgumentError(
        f"Expected {name} to fit a state of size {call.h0.shape[1]} in {call.h0.dtype} on the CPU, but got shape "
        f"{tuple(tensor.shape)} in {tensor.dtype} on {tensor.device}. Do not replace a network's parameters by others of "
        f"another shape, dtype or device."
    )


def _transition(call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return W, the base (c, s) and the rotations as the extension takes them; None for what the call has not."""
    c, s, kind = call.c, call.s, call.options.kind
    if kind == "rotations":
        assert c is not None
        assert s is not None
        return None, None, None, torch.stack((c, s))
    W = memory(call.weight) if kind == "dense" else None
    return W, memory_or_none(c), memory_or_none(s), None


def _input(call: Call) -> tuple[int, Tensor, Tensor | None, Tensor | None]:
    """Return the kind of the input, its rows, V and b as the kernels take them.

    Rows (T, B, I) are those of (R, I) in memory; making a view of them is not for nothing.
    """
    x, weight_ih, bias, dtype = call.x, call.weight_ih, call.bias, call.h0.dtype
    if weight_ih is None:
        x = cast(x, dtype)
        return PROJECTED, memory(x if bias is None else x + bias), None, None
    tokens, weight_ih = is_tokens(x), cast(weight_ih, dtype)
    x = cast(x, torch.int64 if tokens else dtype)
    if tokens or weight_ih.shape[1] <= NARROW_INPUT:
        bias = memory_or_none(bias)
        return TOKENS if tokens else RAW, memory(x), memory(weight_ih), bias
    rows = call.layout.flatten(x)
    projected = empty(rows, (rows.shape[0], weight_ih.shape[0]))
    if bias is None:
        torch.mm(rows, weight_ih.mT, out=projected)
    else:
        torch.addmm(bias, rows, weight_ih.mT, out=projected)
    return PROJECTED, projected, None, None
