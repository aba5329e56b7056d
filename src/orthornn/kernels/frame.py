"""The autograd frame of a call, chosen per call.

frame                          used for
torch.autograd.Function        eager mode: it costs least
custom operators               torch.compile, torch.export, dispatch modes, tensor subclasses (operators.py)
plain torch operations         torch.func transforms, forward mode, higher derivatives
none                           no gradient is needed: nothing is saved

Every kernel returns all states (or other outputs of its steps) and the last ones. A missing gradient costs nothing:
reading the last state as h_n, as the last output, or as the only output (`only_last`) is the same work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from .._checks import is_transformed
from ..layout import SequenceLayout
from .batched import for_each_gradient
from .call import States
from .interception import is_autocast, is_intercepted, no_autocast

Tensors = Sequence[Tensor | None]
Self = TypeVar("Self")


class AnyCall(Protocol):
    """A call of a kernel: its tensors, the division of their rows into steps, and its options."""

    @property
    def layout(self) -> SequenceLayout:
        """The division of the rows into steps."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of the gradients."""

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the other tensors: batch sizes, resets, and others if there are any."""

    def with_tensors(self: Self, tensors: Any) -> Self:
        """Return the call with these tensors, in the order of `tensors`."""


C = TypeVar("C", bound=AnyCall)


class Kernel(ABC, Generic[C]):
    """One kind of recurrence: how to compute its calls. `run` puts them into a frame.

    Attributes:
        state: The position of the initial state among a call's tensors.
    """

    state: int

    @abstractmethod
    def forward(self, call: C, save: bool) -> tuple[States, Tensors]:
        """Return the states and, if ``save``, the residuals for the backward pass."""

    @abstractmethod
    def backward(self, call: C, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        """Return the required gradients of the call's tensors, and None for the others."""

    @abstractmethod
    def plain(self, call: C) -> States:
        """Return the states computed by plain, differentiable torch operations."""

    def traced(self, call: C) -> States:
        """Return the states if a graph, a dispatch mode or a tensor subclass observes the operations. This default
        serves kernels made of torch operations, which it can observe.
        """
        return self.plain(call) if torch.compiler.is_compiling() else States(*_Node.apply(self, call, *call.tensors()))

    def is_plain(self, call: C) -> bool:
        """Return whether the call's backend consists of plain torch operations, which need no frame."""
        return False

    def run(self, call: C) -> States:
        """Return the states of a checked call: all of them, unless ``only_last``, and the last ones."""
        tensors = call.tensors()
        state = tensors[self.state]
        assert state is not None
        if is_autocast(state):
            with no_autocast(state):  # else products inside would be rounded to 16 bits
                return self.run(call)
        compiling = torch.compiler.is_compiling()
        # torch.jit.trace would replay unwritten memory.
        if self.is_plain(call) or (not compiling and (is_transformed() or torch.jit.is_tracing())):
            return self.plain(call)
        if compiling or is_intercepted(*tensors, *call.layout_tensors()):
            return self.traced(call)
        if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors]):
            return States(*_Node.apply(self, call, *tensors))
        return self.forward(call, False)[0]

    def gradients(self, call: C, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        """Do the same as `backward`, independent of the autocast state of the caller."""
        state = call.tensors()[self.state]
        assert state is not None
        if is_autocast(state):
            with no_autocast(state):
                return self.backward(call, grad, saved, needs)
        return self.backward(call, grad, saved, needs)


class _Node(torch.autograd.Function):
    """A call as one autograd node: its tensors in, all states and the last ones out."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel[Any], call: AnyCall, *tensors: Any) -> tuple[Tensor | None, Tensor | None]:
        states, saved = kernel.forward(call, True)
        ctx.kernel, ctx.bare = kernel, call.with_tensors((None,) * len(tensors))
        # The tensors of the layout for their version: a change in place is an error.
        ctx.save_for_backward(*tensors, *saved, *call.layout_tensors())
        ctx.set_materialize_grads(False)
        return states

    @staticmethod
    def backward(ctx: Any, grad_all: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        kernel, bare, needs = ctx.kernel, ctx.bare, ctx.needs_input_grad[2:]
        if grad_all is None and grad_last is None:
            return (None,) * (2 + len(needs))
        found = ctx.saved_tensors
        call, saved = bare.with_tensors(found[: len(needs)]), found[len(needs) : -len(bare.layout_tensors())]
        if torch.is_grad_enabled():  # a higher derivative will be asked for

            def replay(*tensors: Any) -> States:
                return kernel.plain(bare.with_tensors(tensors))

            return None, None, *plain_gradients(replay, call.tensors(), States(grad_all, grad_last), needs)

        def gradients(grad_all: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
            return tuple(kernel.gradients(call, States(grad_all, grad_last), saved, needs))

        return None, None, *for_each_gradient(gradients, grad_all, grad_last)


def plain_gradients(
    function: Callable[..., States], tensors: tuple[Tensor | None, ...], grad: States, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return gradients of a function of plain torch operations that can be differentiated again; zero for inputs that
    do not affect the result.
    """
    like = next(tensor for tensor in tensors if tensor is not None)
    if is_autocast(like):  # of a backward pass in its context
        with no_autocast(like):
            return plain_gradients(function, tensors, grad, needs)
    # Aliases: one of the tensors may be another one, or made of it, and none is to get the gradient of another.
    tensors = tuple(None if tensor is None else tensor.view_as(tensor) for tensor in tensors)
    states = function(*tensors)
    # Without steps there are states that nothing has made.
    pairs = [(out, g) for out, g in zip(states, grad) if out is not None and g is not None and out.requires_grad]
    wanted = [tensor for tensor, need in zip(tensors, needs) if need and tensor is not None]
    if not pairs:
        found = iter([torch.zeros_like(tensor) for tensor in wanted])
    else:
        outputs, grads = [out for out, _ in pairs], [g for _, g in pairs]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, materialize_grads=True))
    return tuple(next(found) if need else None for need in needs)
