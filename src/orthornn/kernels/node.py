"""One autograd node for a whole sequence: input projection, factors of the transition, and the recurrence over time.

The same two functions (a recurrence's `forward` and `backward`) run under two frames: torch.autograd.Function in eager
mode, which costs least, and a pair of custom operators while torch.compile, torch.export or a dispatch mode looks on.
What is kept for the backward pass is one number a unit and step (the state, or the pre-activation where phi' cannot
be read off the state; then states are recomputed) and, for compact WY, M numbers a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import activations
from ..activations import Activation
from ..compact_wy import Base, packed_reflections
from ..errors import TransformError
from . import segments
from .batched import for_each_gradient
from .memory import Memory
from .plan import Size, choose
from .sequence import Steps, check_batch_sizes, flat, is_tokens, shaped, stored_dtype
from .transforms import is_intercepted, needs_plain_torch


class Operands(NamedTuple):
    """The transition: W (N, N), or reflectors with the base (c, s), or W in its own basis with its rotations (c, s).

    factors: (U, S) of the reflectors if they are made already.
    """

    weight: Tensor
    c: Tensor | None = None
    s: Tensor | None = None
    factors: tuple[Tensor, Tensor] | None = None

    @property
    def base(self) -> Base:
        """(c, s), or None."""
        return None if self.c is None or self.s is None else (self.c, self.s)


class Saved(NamedTuple):
    """What a forward pass keeps besides its states: pre-activations (R, N), and for compact WY h~, scaled U, S."""

    kept: Tensor | None
    h_tilde: Tensor | None = None
    U: Tensor | None = None
    S: Tensor | None = None


class Needs(NamedTuple):
    """Whose gradient is asked for."""

    x: bool
    weight_ih: bool
    bias: bool
    h0: bool
    weight: bool
    c: bool
    s: bool
    parameter: bool


class Sequence(NamedTuple):
    """What a recurrence runs on: flat rows (R, ...) with what makes states of them."""

    rows: Tensor
    weight_ih: Tensor | None
    bias: Tensor | None
    h0: Tensor
    operands: Operands
    activation: Activation
    parameter: Tensor | None
    steps: Steps
    backend: str


class Recurrence(NamedTuple):
    """A recurrence's name and its functions (kernels/*/recurrence.py)."""

    name: str
    forward: Callable[[Sequence], tuple[Tensor, Saved]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    plain: Callable[[Sequence], Tensor]  # states by plain torch, for torch.func and higher derivatives
    reverse: Callable[[Sequence, Tensor | None], tuple[Tensor, Saved, Tensor]]
    prepare: Callable[[Sequence], Sequence]  # what all segments share is made once
    infer: Callable[[Sequence, bool], Tensor]  # by the compiled kernels, states or the last ones, nothing kept


class Call(NamedTuple):
    """Everything about a call that is not a tensor to differentiate. memory: None keeps everything ("store")."""

    recurrence: Recurrence
    batch_sizes: Tensor | None
    activation: Activation
    clip: float | None
    last: bool
    backend: str
    memory: Memory | None = None


def sequence_of(
    call: Call,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    parameter: Tensor | None,
    steps: Steps | None = None,
) -> Sequence:
    """What the recurrence of a call runs on. steps: where they are known already."""
    steps = Steps.of(x, call.batch_sizes) if steps is None else steps
    rows = flat(x, call.batch_sizes)
    return Sequence(rows, weight_ih, bias, h0, operands, call.activation, parameter, steps, call.backend)


def _forward(call: Call, sequence: Sequence, leading: torch.Size) -> tuple[Tensor, Tensor, Saved]:
    """The output, the states (R, N), what else to keep."""
    states, saved = call.recurrence.forward(sequence)
    if call.last:
        return sequence.steps.last(states, sequence.h0), states, saved
    return shaped(states, (*leading, states.shape[1])), states, saved


def _infer(call: Call, sequence: Sequence, leading: torch.Size) -> Tensor:
    """The output where no derivative will be asked for: beside it the compiled kernels keep nothing."""
    if call.memory is not None:
        out = segments.forward(call, sequence, leading, False)[1]
        return out if call.last else shaped(out, out.shape)
    if call.backend == "cpp":
        out = call.recurrence.infer(sequence, call.last)
        return out if call.last else shaped(out, (*leading, out.shape[1]))
    return _forward(call, sequence, leading)[0]


def size_of(call: Call, x: Tensor, h0: Tensor, weight: Tensor) -> Size:
    """What the choice of a backend depends on; weight: W or the reflectors."""
    n, m = h0.shape[1], None
    if call.recurrence.name == "compact_wy":
        m = weight.shape[1] if weight.dim() == 2 else packed_reflections(n, weight.shape[0])
    ragged = call.batch_sizes is not None
    steps = call.batch_sizes.shape[0] if call.batch_sizes is not None else x.shape[0]
    rotations = call.recurrence.name == "rotations"
    return Size(n, m, h0.shape[0], steps, ragged, call.activation.paired, rotations)


def _leading(x: Tensor) -> torch.Size:
    """(T, B) or (R,)."""
    return x.shape if is_tokens(x) else x.shape[:-1]


def _backward(
    call: Call,
    needs: Needs,
    grad: Tensor,
    x: Tensor,
    sequence: Sequence,
    states: Tensor | None,
    saved: Saved,
) -> tuple[Tensor | None, ...]:
    """Gradients in the order of Needs."""
    rows, n = sequence.steps.rows, sequence.h0.shape[1]
    states = None if states is None else states.view(rows, n)
    grad = grad.contiguous() if call.last else grad.reshape(rows, n)
    grads = call.recurrence.backward(sequence, grad, call.last, call.clip, states, saved, needs)
    by_x = grads[0].view(x.shape) if grads[0] is not None else None
    return tuple([g if need else None for g, need in zip((by_x, *grads[1:]), needs)])


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        x: Tensor,
        weight_ih: Tensor | None,
        bias: Tensor | None,
        h0: Tensor,
        weight: Tensor,
        c: Tensor | None,
        s: Tensor | None,
        parameter: Tensor | None,
    ) -> Tensor:
        sequence = sequence_of(call, x, weight_ih, bias, h0, Operands(weight, c, s), parameter)
        saved: Saved | segments.Kept
        if call.memory is None:
            out, states, saved = _forward(call, sequence, _leading(x))
            seen = None if saved.kept is not None else (states if call.last else out)
        else:
            call, out, saved = segments.forward(call, sequence, _leading(x), True)
            out = out if call.last else shaped(out, out.shape)
            seen = None
        ctx.call, ctx.steps = call, sequence.steps
        ctx.save_for_backward(
            x,
            weight_ih,
            bias,
            h0,
            weight,
            c,
            s,
            parameter,
            call.batch_sizes,  # for its version: a change in place is an error
            seen,
            *saved,
        )
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 9
        x, weight_ih, bias, h0, weight, c, s, parameter, _, states, *saved = ctx.saved_tensors
        needs = Needs(*ctx.needs_input_grad[1:])
        if torch.is_grad_enabled():  # a higher derivative will be asked for
            return None, *_plain_gradients(ctx.call, needs, grad, (x, weight_ih, bias, h0, weight, c, s, parameter))
        sequence = sequence_of(ctx.call, x, weight_ih, bias, h0, Operands(weight, c, s), parameter, ctx.steps)

        def gradients(grad: Tensor) -> tuple[Tensor | None, ...]:
            grad = grad.resolve_neg()  # kernels read addresses
            if ctx.call.memory is not None:
                return segments.backward(ctx.call, sequence, x, grad, needs, segments.Kept(*saved))
            return _backward(ctx.call, needs, grad, x, sequence, states, Saved(*saved))

        return None, *for_each_gradient(gradients, grad)


def _plain(
    call: Call,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    parameter: Tensor | None,
) -> Tensor:
    """The output by plain torch operations, each of them differentiable."""
    if call.clip is not None:
        raise TransformError(
            "clip changes what is propagated backwards, so torch.func transforms, forward mode and "
            "higher derivatives have no meaning with it. Pass clip=None (clip_backward=None)."
        )
    sequence = sequence_of(call, x, weight_ih, bias, h0, operands, parameter)
    states = call.recurrence.plain(sequence)
    return sequence.steps.last(states, h0) if call.last else states.reshape(*_leading(x), h0.shape[1])


def _plain_gradients(
    call: Call, needs: Needs, grad: Tensor, tensors: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    x, weight_ih, bias, h0, weight, c, s, parameter = tensors
    assert x is not None
    assert h0 is not None
    assert weight is not None
    out = _plain(call, x, weight_ih, bias, h0, Operands(weight, c, s), parameter)
    wanted = [tensor for tensor, need in zip(tensors, needs) if need and tensor is not None]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True))
    return tuple(next(found) if need else None for need in needs)


def _resolved(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.resolve_neg()


RECURRENCES: dict[str, Recurrence] = {}


def register(recurrence: Recurrence) -> Recurrence:
    """Make a recurrence known to the custom operators by its name."""
    RECURRENCES[recurrence.name] = recurrence
    return recurrence


def run(
    call: Call,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    parameter: Tensor | None,
) -> Tensor:
    """The output of a call that has been checked."""
    if not h0.is_meta and torch.is_autocast_enabled(h0.device.type):  # there is no autocast for meta tensors
        with torch.autocast(h0.device.type, enabled=False):  # else products inside would be rounded to 16 bits
            return run(call, x, weight_ih, bias, h0, operands, parameter)
    if call.memory is not None and (stored := stored_dtype(x, weight_ih)) != h0.dtype:
        # what is made again is not stored: the output alone is rounded
        x = x if is_tokens(x) else x.to(h0.dtype)
        weight_ih = None if weight_ih is None else weight_ih.to(h0.dtype)
        return run(call, x, weight_ih, bias, h0, operands, parameter).to(stored)
    compiling = torch.compiler.is_compiling()
    if not compiling and (needs_plain_torch() or torch.jit.is_tracing()):  # a trace would replay unwritten memory
        return _plain(call, x, weight_ih, bias, h0, operands, parameter)
    tensors = (x, weight_ih, bias, h0, *operands[:3], parameter)
    if compiling or is_intercepted(*tensors):
        return torch.ops.orthornn.recurrence(
            *tensors,
            call.batch_sizes,
            call.recurrence.name,
            call.activation.name,
            call.activation.slope,
            call.clip,
            call.last,
            call.backend,
            0 if call.memory is None else call.memory.segment,
        )[0]
    if any(t is not None and t.is_neg() for t in tensors):  # kernels read addresses, where the numbers are not negated
        plain = Operands(operands.weight.resolve_neg(), _resolved(operands.c), _resolved(operands.s))
        x, h0, weight_ih = x.resolve_neg(), h0.resolve_neg(), _resolved(weight_ih)
        return run(call, x, weight_ih, _resolved(bias), h0, plain, _resolved(parameter))
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _Node.apply(call, *tensors)
    return _infer(call, sequence_of(call, x, weight_ih, bias, h0, operands, parameter), _leading(x))


# The custom operators. An operator may not return None, nor one tensor twice, nor an input: `_given`
# stands an empty tensor for None.


def _given(tensor: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if tensor is None else tensor.contiguous()


def _call(
    name: str,
    batch_sizes: Tensor | None,
    activation: str,
    slope: float,
    clip: float | None,
    last: bool,
    backend: str,
    segment: int,
) -> Call:
    found = activations.get(activation, slope if activation == "leaky_relu" else None)
    # What an operator returns has a shape that is known before it runs: where reversal cannot be, only the weights tell.
    memory = Memory("checkpoint", segment) if segment else None
    return Call(RECURRENCES[name], batch_sizes, found, clip, last, backend, memory)


def _chosen(call: Call, x: Tensor, h0: Tensor, operands: Operands) -> Call:
    return call._replace(backend=choose(call.backend, h0.device, h0.dtype, size_of(call, x, h0, operands.weight)))


@torch.library.custom_op("orthornn::recurrence", mutates_args=())
def _recurrence(
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    weight: Tensor,
    c: Tensor | None,
    s: Tensor | None,
    parameter: Tensor | None,
    batch_sizes: Tensor | None,
    name: str,
    activation: str,
    slope: float,
    clip: float | None,
    last: bool,
    backend: str,
    segment: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Out, then kept (states if `last`, or pre-activations), h~, U and S, empty where there is none.

    segment: 0 to keep these; else kept is the states before every so many steps (S, B, N), and the rest empty.
    """
    if batch_sizes is not None:
        check_batch_sizes(batch_sizes, x.shape[0], h0.shape[0])
    operands = Operands(weight, c, s)
    call = _chosen(_call(name, batch_sizes, activation, slope, clip, last, backend, segment), x, h0, operands)
    sequence = sequence_of(call, x, weight_ih, bias, h0, operands, parameter)
    if call.memory is not None:
        _, out, (starts, *_) = segments.forward(call, sequence, _leading(x), True)
        return out, starts, *(h0.new_empty(0) for _ in range(3))  # type: ignore[return-value]
    out, states, saved = _forward(call, sequence, _leading(x))
    kept = saved.kept if saved.kept is not None else (states if last else None)
    return (out, *(_given(tensor, h0) for tensor in (kept, *saved[1:])))  # type: ignore[return-value]


@_recurrence.register_fake
def _recurrence_fake(
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    weight: Tensor,
    c: Tensor | None,
    s: Tensor | None,
    parameter: Tensor | None,
    batch_sizes: Tensor | None,
    name: str,
    activation: str,
    slope: float,
    clip: float | None,
    last: bool,
    backend: str,
    segment: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    leading, n, stored = list(_leading(x)), h0.shape[1], h0.new_empty(0, dtype=stored_dtype(x, weight_ih))
    rows = leading[0] if batch_sizes is not None else leading[0] * leading[1]
    out = stored.new_empty(h0.shape) if last else stored.new_empty(*leading, n)
    if segment:
        T = leading[0] if batch_sizes is None else batch_sizes.shape[0]
        starts = h0.new_empty((T + segment - 1) // segment, *h0.shape)
        return out, starts, h0.new_empty(0), h0.new_empty(0), h0.new_empty(0)
    reads_state = activations.get(activation).reads == "state"
    kept = h0.new_empty(0) if reads_state and not last else stored.new_empty(rows, n)
    if name != "compact_wy":
        return out, kept, h0.new_empty(0), h0.new_empty(0), h0.new_empty(0)
    m = weight.shape[1] if weight.dim() == 2 else packed_reflections(n, weight.shape[0])
    U = h0.new_empty(n, m) if weight.dim() == 1 else h0.new_empty(0)
    return out, kept, stored.new_empty(rows, m), U, h0.new_empty(m, m)


@torch.library.custom_op("orthornn::recurrence_backward", mutates_args=())
def _recurrence_backward(
    grad: Tensor,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    weight: Tensor,
    c: Tensor | None,
    s: Tensor | None,
    parameter: Tensor | None,
    batch_sizes: Tensor | None,
    out: Tensor,
    kept: Tensor,
    h_tilde: Tensor,
    U: Tensor,
    S: Tensor,
    needs: list[bool],
    name: str,
    activation: str,
    slope: float,
    clip: float | None,
    last: bool,
    backend: str,
    segment: int = 0,
) -> list[Tensor]:
    operands = Operands(weight, c, s)
    call = _chosen(_call(name, batch_sizes, activation, slope, clip, last, backend, segment), x, h0, operands)
    sequence = sequence_of(call, x, weight_ih, bias, h0, operands, parameter)
    if call.memory is not None:
        grads = segments.backward(call, sequence, x, grad, Needs(*needs), segments.Kept(kept))
        return [_given(g, h0) for g in grads]
    reads_state = call.activation.reads == "state"
    states = (kept if last else out) if reads_state else None
    is_compact = name == "compact_wy"
    saved = Saved(
        None if reads_state else kept,
        h_tilde if is_compact else None,
        U if is_compact and weight.dim() == 1 else None,
        S if is_compact else None,
    )
    grads = _backward(call, Needs(*needs), grad, x, sequence, states, saved)
    return [_given(g, h0) for g in grads]


@_recurrence_backward.register_fake
def _recurrence_backward_fake(
    grad: Tensor,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    weight: Tensor,
    c: Tensor | None,
    s: Tensor | None,
    parameter: Tensor | None,
    batch_sizes: Tensor | None,
    out: Tensor,
    kept: Tensor,
    h_tilde: Tensor,
    U: Tensor,
    S: Tensor,
    needs: list[bool],
    name: str,
    activation: str,
    slope: float,
    clip: float | None,
    last: bool,
    backend: str,
    segment: int = 0,
) -> list[Tensor]:
    shapes = (x, weight_ih, bias, h0, weight, c, s, parameter)
    return [
        h0.new_empty(0) if not need or like is None else torch.empty_like(like, memory_format=torch.contiguous_format)
        for like, need in zip(shapes, needs)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:9], *output)
    ctx.rest = inputs[9:]
    ctx.needs = [bool(need) for need in ctx.needs_input_grad[:8]]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad: Tensor | None, *kept_for_backward: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 16
    tensors = ctx.saved_tensors
    grads = torch.ops.orthornn.recurrence_backward(grad, *tensors, ctx.needs, *ctx.rest)
    return (*(g if need else None for g, need in zip(grads, ctx.needs)), *(None,) * 8)


_recurrence.register_autograd(_autograd, setup_context=_setup_context)
