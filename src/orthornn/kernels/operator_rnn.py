"""h_t = phi(gain W h_{t-1} + V x_t + b) with W given by its effect on rows, in plain torch.

This serves transitions that are cheaper to apply than to build: the FFT form of RestrictedUnitary, layers of Givens
rotations. `apply(h, *operands)` is W h and `apply_adjoint(g, *operands)` is W^T g for real rows (R, N) of a state; both
are differentiable torch functions.

Backward. Only the chain is sequential, without autograd:
    delta_t = clip(phi'(a_t) dL/dh_t),   dL/dh_{t-1} gains gain W^T delta_t.
The gradients of the operands are then one vector-Jacobian product over all steps at once: of apply(H, *operands) at H =
(h_0, ..., h_{T-1}) against the rows gain delta_t. So the memory of one call of `apply` on all rows is needed at the
end, instead of T separate calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._checks import (
    check_callable,
    check_choice,
    check_dtype,
    check_positive,
    check_same,
    check_shape,
    check_tensor,
)
from ..activations import Activation, Name
from ..errors import ArgumentTypeError
from ..layout import SequenceLayout
from .call import States
from .frame import Kernel, Tensors
from .interception import no_autocast, refuse_clip
from .loop import Loop
from .projection import is_tokens, project
from .validation import OUTPUTS, Resets, check_activation, check_gain, check_input, check_resets

Apply = Callable[..., Tensor]


class OperatorCall(NamedTuple):
    """One run of a recurrence whose transition is a pair of functions.

    Attributes:
        x, weight_ih, bias, h0, parameter, layout, restart: Same as in `Call`.
        apply, apply_adjoint: W h and W^T g for real rows (R, N), given the operands.
        operands: The tensors that they read.
        gain: A tensor of shape ().
        activation, clip, only_last: Same as in `Options`.
    """

    x: Tensor
    weight_ih: Tensor | None
    bias: Tensor | None
    h0: Tensor
    parameter: Tensor | None
    layout: SequenceLayout
    apply: Apply
    apply_adjoint: Apply
    operands: tuple[Tensor, ...]
    gain: Tensor
    activation: Activation
    clip: float | None
    only_last: bool
    restart: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors: rows (R, N), h0, gain, parameter, restart, then the operands."""
        return (self.x, self.h0, self.gain, self.parameter, self.restart, *self.operands)

    def loop(self) -> Loop:
        """Return the loop over its steps."""
        return Loop(self.layout, self.h0, self.restart, self.activation, self.parameter, self.clip)

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors of the layout."""
        return self.layout.batch_sizes, self.layout.resets

    def with_tensors(self, tensors: Sequence[Any]) -> OperatorCall:
        """Return the call with these tensors, in the order of `tensors`; its rows are projected.

        This avoids ``_replace``, which torch.compile cannot trace before torch 2.9.
        """
        rows, h0, gain, parameter, restart, *operands = tensors
        return OperatorCall(
            rows,
            None,
            None,
            h0,
            parameter,
            self.layout,
            self.apply,
            self.apply_adjoint,
            tuple(operands),
            gain,
            self.activation,
            self.clip,
            self.only_last,
            restart,
        )


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
    reset: Tensor | None = None,
    restart: Tensor | None = None,
) -> Tensor:
    """Run the recurrence of :func:`dense_rnn` with W given by its effect on the rows of a state.

    Args:
        apply: apply(rows, *operands) is W h for each row h, differentiable and linear in the rows.
        apply_adjoint: apply_adjoint(rows, *operands) is W^T g for each row g.
        operands: The tensors that both read, real or complex; gradients reach them through ``apply``.

    The other arguments, the result and the errors are the same as for :func:`dense_rnn`.

    Shape:
        - rows: (R, N), real, as are the results of both functions.
    """
    check_callable("apply", apply)
    check_callable("apply_adjoint", apply_adjoint)
    if not isinstance(operands, (tuple, list)):
        raise ArgumentTypeError(f"Expected operands to be a tuple of tensors, but got {type(operands).__name__}.")
    for index, operand in enumerate(operands):
        check_tensor(f"operands[{index}]", operand)
    check_dtype("h0", h0)
    check_shape("h0", h0, ("B", "N"))
    check_choice("output", output, OUTPUTS)
    n = h0.shape[1]
    check_input(x, h0, n, weight_ih, bias, batch_sizes)
    check_same("h0", h0, weight_ih=weight_ih, bias=bias, parameter=parameter, x=None if is_tokens(x) else x)
    scale = check_gain(gain, h0)
    reset, restart = check_resets(Resets(reset, restart), tuple(x.shape[: 2 if batch_sizes is None else 1]), h0)
    return run_operator(
        OperatorCall(
            x,
            weight_ih,
            bias,
            h0,
            parameter,
            SequenceLayout.of(x, batch_sizes, h0.shape[0], reset),
            apply,
            apply_adjoint,
            tuple(operands),
            number_like(scale, h0),
            check_activation(activation, parameter, n),
            check_positive("clip", clip),
            output == "last",
            restart,
        )
    ).wanted


def number_like(value: float | Tensor, like: Tensor) -> Tensor:
    """Return a number as a tensor of shape () with the dtype and the device of ``like``; return a tensor unchanged.

    Tensor.new_tensor would fail if ``like`` is a lazy negation, and a CUDA graph does not support the copy from the
    host that torch.tensor makes.
    """
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=like.dtype, device=like.device)


def run_operator(call: OperatorCall) -> States:
    """Return the states of a checked call."""
    with no_autocast(call.h0):
        rows = project(call.layout.flatten(call.x), call.weight_ih, call.bias)
    return _KERNEL.run(call.with_tensors((rows, *call.tensors()[1:])))


class _Operator(Kernel[OperatorCall]):
    state = 1

    def forward(self, call: OperatorCall, save: bool) -> tuple[States, Tensors]:
        states, preactivations = _states(call)
        return _result(call, states), (states, preactivations)

    def backward(self, call: OperatorCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        layout, (states, preactivations), (_, _, needs_gain, _, _, *operand_needs) = call.layout, saved, needs
        assert states is not None
        rows = None if grad.all is None else layout.flatten(grad.all)
        read = layout.flatten(states) if preactivations is None else preactivations
        delta, grad_h0, grad_parameter, grad_restart = call.loop().backward(
            States(rows, grad.last), read, lambda delta: call.gain * call.apply_adjoint(delta, *call.operands)
        )
        grad_gain = None
        grad_operands: tuple[Tensor | None, ...] = (None,) * len(operand_needs)
        if any(operand_needs) or needs_gain:
            previous = layout.previous(layout.flatten(states), call.h0, call.restart)
            grad_gain, grad_operands = _operand_gradients(call, previous, delta, operand_needs)
        return delta, grad_h0, grad_gain, grad_parameter, grad_restart, *grad_operands

    def plain(self, call: OperatorCall) -> States:
        refuse_clip(call.clip)
        return _result(call, _states(call)[0])


_KERNEL = _Operator()


def _states(call: OperatorCall) -> tuple[Tensor, Tensor | None]:
    """Return states, (T, B, N) or (R, N), and pre-activations (R, N) if phi' reads them."""
    return call.loop().forward(call.x, lambda h: call.gain * call.apply(h, *call.operands))


def _result(call: OperatorCall, states: Tensor) -> States:
    last = call.layout.last(call.layout.flatten(states), call.h0)
    return States(None if call.only_last else states, last)


def _operand_gradients(
    call: OperatorCall, previous: Tensor, delta: Tensor, needs: Sequence[bool]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Return dL/dgain, and the required gradients of the operands, from h_{t-1} and delta of all rows."""
    with torch.enable_grad():
        leaves = tuple(operand.detach().requires_grad_(need) for operand, need in zip(call.operands, needs))
        applied = call.apply(previous, *leaves)
    grad_gain = (applied.detach() * delta).sum()
    if not any(needs) or not applied.requires_grad:  # no operand is trained, or `apply` reads none that is
        return grad_gain, (None,) * len(needs)
    wanted = [leaf for leaf, need in zip(leaves, needs) if need]
    found = iter(torch.autograd.grad(applied, wanted, call.gain * delta, allow_unused=True))
    return grad_gain, tuple(next(found) if need else None for need in needs)
