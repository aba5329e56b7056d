"""h_t = phi(gain W h_{t-1} + V x_t + b) with W given by what it does to rows, in plain torch.

For transitions that are cheaper to apply than to write down: the FFT form of RestrictedUnitary, layers of Givens
rotations. `apply(h, *operands)` is W h and `apply_adjoint(g, *operands)` W^T g for real rows (R, N) of a state; both
are differentiable torch functions.

Backward. The sequential part is the chain alone, without autograd:
    delta_t = clip(phi'(a_t) dL/dh_t),   dL/dh_{t-1} gains gain W^T delta_t.
The gradients of the operands are then one vector-Jacobian product over all steps at once: of apply(H, *operands) at
H = (h_0, ..., h_{T-1}) against the rows gain delta_t. So the memory of one call of `apply` on all rows is needed at
the end, and not that of T calls kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import activations
from .._checks import (
    REAL_DTYPES,
    check_callable,
    check_choice,
    check_dtype,
    check_number,
    check_positive,
    check_same,
    check_shape,
    check_tensor,
)
from ..activations import Activation, Name
from ..errors import ArgumentError, ArgumentTypeError, ShapeError, TransformError
from .sequence import Steps, check_input, flat, is_tokens, project
from .transforms import needs_plain_torch

Apply = Callable[..., Tensor]


class _Call(NamedTuple):
    """Everything that is not a tensor to differentiate."""

    apply: Apply
    apply_adjoint: Apply
    activation: Activation
    steps: Steps
    clip: float | None
    last: bool


def operator_rnn(
    x: Tensor,
    h0: Tensor,
    apply: Apply,
    apply_adjoint: Apply,
    operands: tuple[Tensor, ...],
    activation: Name | Activation,
    parameter: Tensor | None = None,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: str = "all",
    clip: float | None = None,
) -> Tensor:
    """The states over a whole sequence.

    Parameters
    ----------
    apply, apply_adjoint: (rows (R, N), *operands) -> rows (R, N), linear in the rows, each other's transposes.
    operands: the tensors that they read, real or complex; gradients reach them through `apply`.

    Everything else is as in `dense_rnn`, which see for what is raised.
    """
    check_callable("apply", apply)
    check_callable("apply_adjoint", apply_adjoint)
    if not isinstance(operands, (tuple, list)):
        raise ArgumentTypeError(f"Expected operands to be a tuple of tensors, but got {type(operands).__name__}.")
    for index, operand in enumerate(operands):
        check_tensor(f"operands[{index}]", operand)
    check_dtype("h0", h0, REAL_DTYPES)
    check_shape("h0", h0, ("B", "N"))
    check_choice("output", output, ("all", "last"))
    n = h0.shape[1]
    phi = activations.get(activation)
    check_input(x, h0, n, weight_ih, bias, batch_sizes)
    check_same("h0", h0, weight_ih=weight_ih, bias=bias, parameter=parameter, x=None if is_tokens(x) else x)
    if isinstance(gain, Tensor):
        check_same("h0", h0, gain=gain)
        if gain.numel() != 1:
            raise ShapeError(f"Expected gain to have one element, but got a shape of {tuple(gain.shape)}.")
    size = phi.parameter_size(n)
    if (parameter is None) != (size == 0):
        raise ArgumentError(f"{phi.name} has {size} numbers in its trainable vector; got parameter={parameter!r}.")
    if parameter is not None:
        check_shape("parameter", parameter, (size,))
    clip = check_positive("clip", clip)
    scale = gain.reshape(()) if isinstance(gain, Tensor) else h0.new_tensor(check_number("gain", gain))

    rows_in = flat(x, batch_sizes)
    with nullcontext() if h0.is_meta else torch.autocast(h0.device.type, enabled=False):
        rows = project(rows_in, weight_ih, bias)
        call = _Call(apply, apply_adjoint, phi, Steps.of(x, batch_sizes), clip, output == "last")
        if torch.compiler.is_compiling() or needs_plain_torch():
            out = _plain(call, rows, h0, scale, parameter, operands)
        else:
            out = _Node.apply(call, rows, h0, scale, parameter, *operands)
    if call.last:
        return out
    return out.view(*(x.shape if is_tokens(x) else x.shape[:-1]), n)


def _states(
    call: _Call, rows: Tensor, h0: Tensor, gain: Tensor, parameter: Tensor | None, operands: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """States and pre-activations (R, N)."""
    h, states, preactivations = h0, [], []
    for x_t in call.steps.split(rows):
        a = gain * call.apply(h[: x_t.shape[0]], *operands) + x_t
        h = call.activation(a, parameter)
        states.append(h)
        preactivations.append(a)
    if not states:
        return torch.zeros_like(rows), torch.zeros_like(rows)
    return torch.cat(states), torch.cat(preactivations)


def _plain(
    call: _Call, rows: Tensor, h0: Tensor, gain: Tensor, parameter: Tensor | None, operands: tuple[Tensor, ...]
) -> Tensor:
    """The output by differentiable torch operations."""
    if call.clip is not None:
        raise TransformError(
            "clip changes what is propagated backwards, so torch.func transforms, forward mode and "
            "higher derivatives have no meaning with it. Pass clip=None (clip_backward=None)."
        )
    states, _ = _states(call, rows, h0, gain, parameter, operands)
    return call.steps.last(states, h0) if call.last else states


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: _Call, rows: Tensor, h0: Tensor, gain: Tensor, parameter: Tensor | None, *operands: Tensor
    ) -> Tensor:
        states, preactivations = _states(call, rows, h0, gain, parameter, operands)
        ctx.call = call
        kept = None if call.activation.reads == "state" else preactivations
        ctx.save_for_backward(rows, h0, gain, parameter, states, kept, *operands)
        return call.steps.last(states, h0) if call.last else states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        rows, h0, gain, parameter, states, preactivations, *operands = ctx.saved_tensors
        if torch.is_grad_enabled():  # a higher derivative will be asked for
            inputs = (rows, h0, gain, parameter, *operands)
            out = _plain(call, rows, h0, gain, parameter, tuple(operands))
            wanted = [t for t, need in zip(inputs, ctx.needs_input_grad[1:]) if need]
            found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True))
            return None, *(next(found) if need else None for need in ctx.needs_input_grad[1:])
        kept = states if preactivations is None else preactivations
        delta, by_h0, by_parameter = _chain(call, grad, kept, gain, parameter, operands)
        by_gain = None
        by_operands: tuple[Tensor | None, ...] = (None,) * len(operands)
        if any(ctx.needs_input_grad[5:]) or ctx.needs_input_grad[3]:
            by_gain, by_operands = _operand_gradients(
                call, call.steps.previous(states, h0), delta, gain, operands, ctx.needs_input_grad[5:]
            )
        return None, delta, by_h0, by_gain, by_parameter, *by_operands


def _chain(
    call: _Call, grad: Tensor, kept: Tensor, gain: Tensor, parameter: Tensor | None, operands: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """delta (R, N), dL/dh0 (B, N) and dL/dparameter."""
    steps = call.steps
    carry = grad.clone() if call.last else grad.new_zeros(steps.batch, kept.shape[1])
    grads = [None] * steps.length if call.last else steps.split(grad)
    deltas: list[Tensor] = []
    by_parameter = None if parameter is None else torch.zeros_like(parameter)
    for kept_t, grad_t in zip(reversed(steps.split(kept)), reversed(grads)):
        active = carry[: kept_t.shape[0]]
        delta, rows = call.activation.backward(active if grad_t is None else active + grad_t, kept_t, parameter)
        if by_parameter is not None and rows is not None:
            by_parameter += rows.sum(dim=0)
        if call.clip is not None:
            delta = delta.clamp(-call.clip, call.clip)
        deltas.append(delta)
        carry = torch.cat([gain * call.apply_adjoint(delta, *operands), carry[kept_t.shape[0] :]])
    return torch.cat(deltas[::-1]) if deltas else torch.zeros_like(kept), carry, by_parameter


def _operand_gradients(
    call: _Call, previous: Tensor, delta: Tensor, gain: Tensor, operands: list[Tensor], needs: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    with torch.enable_grad():
        leaves = tuple(o.detach().requires_grad_(need) for o, need in zip(operands, needs))
        applied = call.apply(previous, *leaves)
    by_gain = (applied.detach() * delta).sum()
    if not applied.requires_grad:  # no operand is trained, or `apply` reads none that is
        return by_gain, (None,) * len(needs)
    wanted = [leaf for leaf, need in zip(leaves, needs) if need]
    found = iter(torch.autograd.grad(applied, wanted, gain * delta, allow_unused=True))
    return by_gain, tuple(next(found) if need else None for need in needs)
