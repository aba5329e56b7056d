"""The backend of compiled kernels: convert a `Call` to contiguous memory and one call of the extension.

The extension reads the addresses of tensors, so this module checks the dtype, device and number of entries of
everything it passes. The extension computes all parameter gradients except for a wide input projection, which is a
matrix product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....errors import ArgumentError
from ....layout import SequenceLayout
from ...call import Call, Gradients, Needs, Residuals, Size, States
from ...projection import cast, is_tokens, stored_dtype
from ..protocol import Backend
from . import extension
from .memory import empty, memory, memory_or_none

# Up to this input size V x_t is computed inside the recurrence, where the chain does not wait for it; above, one matrix
# product for all rows is cheaper.
NARROW_INPUT = 4
PROJECTED, RAW, TOKENS = 0, 1, 2


class CppBackend(Backend):
    """The kernels of csrc/ on CPU tensors."""

    name = "cpp"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why the backend cannot run: it needs a CPU and the compiled extension."""
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
        """Return the states and the residuals for the backward pass, from one call of the extension."""
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
            resets=memory_or_none(layout.resets),
            W=W,
            U=U,
            S=S,
            c=c,
            s=s,
            M=0 if U is None else U.shape[1],
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
            restart=memory_or_none(call.restart),
            states=states,
            saved=preactivations,
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
        own_U = U if call.weight.dim() == 1 else None
        return result, Residuals(states if reads_state else None, preactivations, h_tilde, own_U, S)

    def backward(self, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
        """Return the required gradients, from one call of the extension."""
        layout, options, phi, h0 = call.layout, call.options, call.options.activation, memory(call.h0)
        compact = options.kind == "compact_wy"
        weight = memory(call.weight) if compact else call.weight
        W, c, s, rotations = _transition(call)
        saved, kind = _saved(call, residuals, needs), _kind_of_input(call)
        x = None  # not read where it is projected already
        if call.weight_ih is not None:
            x = memory(cast(call.x, torch.int64 if kind == TOKENS else h0.dtype))
        to = _memory_of_gradients(call, kind, needs)
        extension.native.backward(
            element_size=h0.element_size(),
            T=layout.length,
            B=layout.batch,
            N=h0.shape[1],
            R=layout.rows,
            batch_sizes=_batch_sizes(layout),
            resets=memory_or_none(layout.resets),
            W=W,
            U=saved.U,
            S=saved.S,
            c=c,
            s=s,
            M=0 if saved.U is None else saved.U.shape[1],
            rotations=rotations,
            activation=phi.code,
            slope=phi.slope,
            parameter=memory_or_none(call.parameter),
            clip=math.inf if options.clip is None else options.clip,
            saved=saved.states if saved.preactivations is None else saved.preactivations,
            states=saved.states,
            h0=h0,
            restart=memory_or_none(call.restart),
            grad_states=None if grad.all is None else memory(cast(grad.all, h0.dtype)),
            grad_last=None if grad.last is None else memory(cast(grad.last, h0.dtype)),
            delta=to.x,
            grad_h0=to.h0,
            grad_restart=to.restart,
            grad_parameter=to.parameter,
            grad_c=to.c,
            grad_s=to.s,
            grad_W=None if compact else to.weight,
            packed=weight if compact and weight.dim() == 1 else None,
            free=weight if compact and weight.dim() == 2 else None,
            h_tilde=saved.h_tilde,
            grad_reflectors=to.weight if compact else None,
            input_kind=kind,
            x=x,
            I=0 if call.weight_ih is None else call.weight_ih.shape[1],
            grad_weight_ih=to.weight_ih,
            grad_bias=to.bias,
            threads=torch.get_num_threads(),
        )
        return Gradients(*_through_projection(call, kind, x, to, needs), *to[2:])


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
    """Raise ArgumentError unless every tensor has the layout that the extension assumes: it reads addresses, not
    tensors.
    """
    x, weight_ih, bias, h0, weight, c, s, parameter, restart, layout, options, _ = call
    n, dtype, kind, resets = h0.shape[1], h0.dtype, options.kind, layout.resets
    if not (x.is_cpu and (weight_ih is not None or x.shape[-1] == n)):
        _refuse(call, "x")
    if weight_ih is not None:
        fits = is_tokens(x) or x.shape[-1] == weight_ih.shape[1]
        if not (weight_ih.is_cpu and weight_ih.shape[0] == n and fits):
            _refuse(call, "weight_ih")
    if bias is not None and not (bias.is_cpu and bias.dtype is dtype and bias.numel() == n):
        _refuse(call, "bias")
    if not h0.is_cpu:
        _refuse(call, "h0")
    whole = weight.dim() == 1 or weight.shape[0] == n if kind == "compact_wy" else weight.numel() == n * n
    if not (weight.is_cpu and weight.dtype is dtype and whole):
        _refuse(call, "weight")
    for name, half in (("c", c), ("s", s)) if c is not None else ():  # rotations may be in another dtype
        assert half is not None
        if not (half.is_cpu and (half.dtype is dtype or kind == "rotations") and half.numel() == n):
            _refuse(call, name)
    if parameter is not None:
        size = options.activation.parameter_size(n)
        if not (parameter.is_cpu and parameter.dtype is dtype and parameter.numel() == size):
            _refuse(call, "parameter")
    if restart is not None and not (restart.is_cpu and restart.dtype is dtype and restart.numel() == h0.numel()):
        _refuse(call, "restart")
    if resets is not None and not (resets.is_cpu and resets.dtype == torch.bool and resets.numel() == layout.rows):
        raise ArgumentError(
            f"Expected reset to be {layout.rows} booleans on the CPU, but got {tuple(resets.shape)} in {resets.dtype} "
            f"on {resets.device}. Move it to the device of the input."
        )


def _refuse(call: Call, name: str) -> None:
    tensor = getattr(call, name)
    raise ArgumentError(
        f"Expected {name} to fit a state of size {call.h0.shape[1]} in {call.h0.dtype} on the CPU, but got shape "
        f"{tuple(tensor.shape)} in {tensor.dtype} on {tensor.device}. Do not replace a network's parameters by tensors of "
        f"another shape, dtype or device."
    )


def _transition(call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return W, the base (c, s) and the rotations in the form that the extension takes; None for those that the call
    lacks.
    """
    c, s, kind = call.c, call.s, call.options.kind
    if kind == "rotations":
        assert c is not None
        assert s is not None
        return None, None, None, torch.stack((c, s))
    W = memory(call.weight) if kind == "dense" else None
    return W, memory_or_none(c), memory_or_none(s), None


def _kind_of_input(call: Call) -> int:
    """Return PROJECTED, RAW or TOKENS: the form in which kernels receive the input."""
    if call.weight_ih is None:
        return PROJECTED
    if is_tokens(call.x):
        return TOKENS
    return RAW if call.weight_ih.shape[1] <= NARROW_INPUT else PROJECTED


def _saved(call: Call, residuals: Residuals, needs: Needs) -> Residuals:
    """Return the residuals of the forward pass as memory in the dtype of h_0, with U, and with the states if dL/d(c, s)
    reads them. A hook for saved tensors may have returned them with other strides.
    """
    states, preactivations, h_tilde, U, S, _ = residuals
    dtype = call.h0.dtype
    if call.options.kind != "compact_wy":
        U = S = None
    elif U is None:
        U = call.weight
    if states is None and (needs.c or needs.s):
        assert preactivations is not None
        states = call.options.activation(cast(preactivations, dtype), call.parameter)
    saved = (states, preactivations, h_tilde, U, S)
    return Residuals(*[None if t is None else memory(cast(t, dtype)) for t in saved])


def _memory_of_gradients(call: Call, kind: int, needs: Needs) -> Gradients:
    """Return memory for the gradients that the kernels write. The memory of x also serves delta if one is read; for V
    it is None if the projection is a separate product.
    """
    h0, weight, parameter, weight_ih = call.h0, call.weight, call.parameter, call.weight_ih
    n, projected = h0.shape[1], kind == PROJECTED
    needs_delta = (needs.x and kind != TOKENS) or (needs.weight_ih and weight_ih is not None and projected)
    has_base = call.options.kind == "compact_wy" and (needs.c or needs.s)
    return Gradients(
        empty(h0, (call.layout.rows, n)) if needs_delta else None,
        h0.new_empty(n, weight_ih.shape[1]) if needs.weight_ih and weight_ih is not None and not projected else None,
        h0.new_empty(n) if needs.bias else None,
        h0.new_empty(h0.shape) if needs.h0 else None,
        torch.empty_like(weight, memory_format=torch.contiguous_format) if needs.weight else None,
        h0.new_empty(n) if has_base else None,
        h0.new_empty(n) if has_base else None,
        parameter.new_empty(parameter.shape) if parameter is not None and needs.parameter else None,
        h0.new_empty(h0.shape) if needs.restart else None,
    )


def _through_projection(
    call: Call, kind: int, x: Tensor | None, to: Gradients, needs: Needs
) -> tuple[Tensor | None, Tensor | None]:
    """Return dL/dx and dL/dV from the kernels' output: delta, and dL/dV if the kernels compute it."""
    delta, grad_V, weight_ih, dtype = to.x, to.weight_ih, call.weight_ih, call.h0.dtype
    needs_x = needs.x and kind != TOKENS
    grad_x = delta if needs_x else None
    if delta is not None and weight_ih is not None:
        if needs_x:
            out = empty(delta, (call.layout.rows, weight_ih.shape[1]))
            grad_x = torch.mm(delta, cast(weight_ih, dtype), out=out)
        if needs.weight_ih and kind == PROJECTED:
            assert x is not None
            grad_V = delta.mT @ call.layout.flatten(x)
    stored = stored_dtype(call.x, weight_ih)
    if stored != dtype:
        grad_x, grad_V = (None if t is None else t.to(stored) for t in (grad_x, grad_V))
    return grad_x, grad_V


def _input(call: Call) -> tuple[int, Tensor, Tensor | None, Tensor | None]:
    """Return the kind of the input, its rows, V and b in the form that the kernels take.

    Rows (T, B, I) have the same memory as (R, I); creating a view of them would cost time.
    """
    x, weight_ih, bias, dtype, kind = call.x, call.weight_ih, call.bias, call.h0.dtype, _kind_of_input(call)
    if weight_ih is None:
        x = cast(x, dtype)
        return PROJECTED, memory(x if bias is None else x + bias), None, None
    weight_ih, x = cast(weight_ih, dtype), cast(x, torch.int64 if kind == TOKENS else dtype)
    if kind != PROJECTED:
        return kind, memory(x), memory(weight_ih), memory_or_none(bias)
    rows = call.layout.flatten(x)
    projected = empty(rows, (rows.shape[0], weight_ih.shape[0]))
    if bias is None:
        torch.mm(rows, weight_ih.mT, out=projected)
    else:
        torch.addmm(bias, rows, weight_ih.mT, out=projected)
    return PROJECTED, projected, None, None
