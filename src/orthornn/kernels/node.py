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
from .plan import Size, choose
from .sequence import Steps, check_batch_sizes, flat, is_tokens
from .transforms import is_intercepted


class Operands(NamedTuple):
    """The transition: W (N, N), or reflectors with the base (c, s)."""

    weight: Tensor
    c: Tensor | None = None
    s: Tensor | None = None

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


class Recurrence(NamedTuple):
    """A recurrence's name and its two functions (kernels/*/recurrence.py)."""

    name: str
    forward: Callable[..., tuple[Tensor, Saved]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    plain: Callable[..., Tensor]  # states by plain torch, for torch.func and higher derivatives


class Call(NamedTuple):
    """Everything about a call that is not a tensor to differentiate."""

    recurrence: Recurrence
    batch_sizes: Tensor | None
    activation: Activation
    clip: float | None
    last: bool
    backend: str


def _forward(
    call: Call,
    x: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    parameter: Tensor | None,
) -> tuple[Tensor, Tensor, Saved]:
    """The output, the states (R, N), what else to keep."""
    steps = Steps.of(x, is_tokens(x), call.batch_sizes)
    states, saved = call.recurrence.forward(
        flat(x, call.batch_sizes), weight_ih, bias, h0, operands, call.activation, parameter, steps, call.backend
    )
    out = steps.last(states, h0) if call.last else states.view(*_leading(x), states.shape[1])
    return out, states, saved


def size_of(call: Call, x: Tensor, h0: Tensor, weight: Tensor) -> Size:
    """What the choice of a backend depends on; weight: W or the reflectors."""
    n, m = h0.shape[1], None
    if call.recurrence.name != "dense":
        m = weight.shape[1] if weight.dim() == 2 else packed_reflections(n, weight.shape[0])
    ragged = call.batch_sizes is not None
    steps = call.batch_sizes.shape[0] if call.batch_sizes is not None else x.shape[0]
    return Size(n, m, h0.shape[0], steps, ragged, call.activation.paired)


def _leading(x: Tensor) -> torch.Size:
    """(T, B) or (R,)."""
    return x.shape if is_tokens(x) else x.shape[:-1]


def _backward(
    call: Call,
    needs: Needs,
    grad: Tensor,
    x: Tensor,
    weight_ih: Tensor | None,
    h0: Tensor,
    operands: Operands,
    parameter: Tensor | None,
    states: Tensor | None,
    saved: Saved,
) -> tuple[Tensor | None, ...]:
    """Gradients in the order of Needs."""
    steps = Steps.of(x, is_tokens(x), call.batch_sizes)
    states = None if states is None else states.view(steps.rows, h0.shape[1])
    grad = grad.contiguous() if call.last else grad.reshape(steps.rows, h0.shape[1])
    grads = call.recurrence.backward(
        grad,
        call.last,
        flat(x, call.batch_sizes),
        weight_ih,
        h0,
        operands,
        call.activation,
        parameter,
        steps,
        call.clip,
        states,
        saved,
        needs,
        call.backend,
    )
    by_x = grads[0].view(x.shape) if grads[0] is not None else None
    return tuple(g if need else None for g, need in zip((by_x, *grads[1:]), needs))


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
        out, states, saved = _forward(call, x, weight_ih, bias, h0, Operands(weight, c, s), parameter)
        if any(ctx.needs_input_grad):
            ctx.call = call
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
                None if saved.kept is not None else (states if call.last else out),
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
        return None, *_backward(
            ctx.call, needs, grad, x, weight_ih, h0, Operands(weight, c, s), parameter, states, Saved(*saved)
        )


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
    steps = Steps.of(x, is_tokens(x), call.batch_sizes)
    states = call.recurrence.plain(
        flat(x, call.batch_sizes), weight_ih, bias, h0, operands, call.activation, parameter, steps
    )
    return steps.last(states, h0) if call.last else states.reshape(*_leading(x), h0.shape[1])


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
    plain: bool,
) -> Tensor:
    """The output of a call that has been checked; `plain` asks for plain torch operations."""
    if not h0.is_meta and torch.is_autocast_enabled(h0.device.type):  # there is no autocast for meta tensors
        with torch.autocast(h0.device.type, enabled=False):  # else products inside would be rounded to 16 bits
            return run(call, x, weight_ih, bias, h0, operands, parameter, plain)
    if plain:
        return _plain(call, x, weight_ih, bias, h0, operands, parameter)
    if torch.compiler.is_compiling() or is_intercepted(x, weight_ih, bias, h0, *operands, parameter):
        return torch.ops.orthornn.recurrence(
            x,
            weight_ih,
            bias,
            h0,
            *operands,
            parameter,
            call.batch_sizes,
            call.recurrence.name,
            call.activation.name,
            call.activation.slope,
            call.clip,
            call.last,
            call.backend,
        )[0]
    return _Node.apply(call, x, weight_ih, bias, h0, *operands, parameter)


# The custom operators. An operator may not return None, nor one tensor twice, nor an input: `_given`
# stands an empty tensor for None.


def _given(tensor: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if tensor is None else tensor.contiguous()


def _call(
    name: str, batch_sizes: Tensor | None, activation: str, slope: float, clip: float | None, last: bool, backend: str
) -> Call:
    found = activations.get(activation, slope if activation == "leaky_relu" else None)
    return Call(RECURRENCES[name], batch_sizes, found, clip, last, backend)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Out, then kept (states if `last`, or pre-activations), h~, U and S, empty where there is none."""
    if batch_sizes is not None:
        check_batch_sizes(batch_sizes, x.shape[0], h0.shape[0])
    operands = Operands(weight, c, s)
    call = _chosen(_call(name, batch_sizes, activation, slope, clip, last, backend), x, h0, operands)
    out, states, saved = _forward(call, x, weight_ih, bias, h0, operands, parameter)
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    leading, n = list(_leading(x)), h0.shape[1]
    rows = leading[0] if batch_sizes is not None else leading[0] * leading[1]
    out = h0.new_empty(h0.shape) if last else h0.new_empty(*leading, n)
    reads_state = activations.get(activation).reads == "state"
    kept = h0.new_empty(0) if reads_state and not last else h0.new_empty(rows, n)
    if name == "dense":
        return out, kept, h0.new_empty(0), h0.new_empty(0), h0.new_empty(0)
    m = weight.shape[1] if weight.dim() == 2 else packed_reflections(n, weight.shape[0])
    U = h0.new_empty(n, m) if weight.dim() == 1 else h0.new_empty(0)
    return out, kept, h0.new_empty(rows, m), U, h0.new_empty(m, m)


@torch.library.custom_op("orthornn::recurrence_backward", mutates_args=())
def _recurrence_backward(
    grad: Tensor,
    x: Tensor,
    weight_ih: Tensor | None,
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
) -> list[Tensor]:
    operands = Operands(weight, c, s)
    call = _chosen(_call(name, batch_sizes, activation, slope, clip, last, backend), x, h0, operands)
    reads_state = call.activation.reads == "state"
    states = (kept if last else out) if reads_state else None
    is_dense = name == "dense"
    saved = Saved(
        None if reads_state else kept,
        None if is_dense else h_tilde,
        None if is_dense or weight.dim() == 2 else U,
        None if is_dense else S,
    )
    grads = _backward(call, Needs(*needs), grad, x, weight_ih, h0, operands, parameter, states, saved)
    return [_given(g, h0) for g in grads]


@_recurrence_backward.register_fake
def _recurrence_backward_fake(
    grad: Tensor,
    x: Tensor,
    weight_ih: Tensor | None,
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
) -> list[Tensor]:
    shapes = (x, weight_ih, h0.new_empty(h0.shape[1]), h0, weight, c, s, parameter)
    return [
        h0.new_empty(0) if not need or like is None else torch.empty_like(like, memory_format=torch.contiguous_format)
        for like, need in zip(shapes, needs)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight_ih, _, h0, weight, c, s, parameter, batch_sizes, *rest = inputs
    ctx.save_for_backward(x, weight_ih, h0, weight, c, s, parameter, batch_sizes, *output)
    ctx.rest = rest
    ctx.needs = [bool(need) for need in ctx.needs_input_grad[:8]]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grad: Tensor | None, *kept_for_backward: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 15
    tensors = ctx.saved_tensors
    grads = torch.ops.orthornn.recurrence_backward(grad, *tensors, ctx.needs, *ctx.rest)
    return (*(g if need else None for g, need in zip(grads, ctx.needs)), *(None,) * 7)


_recurrence.register_autograd(_autograd, setup_context=_setup_context)
