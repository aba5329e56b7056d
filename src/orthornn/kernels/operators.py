"""A call as a pair of custom operators, forward and backward, for graphs and for code that intercepts calls.

An operator takes and returns tensors: those of the call, in the order of its `tensors` and `layout_tensors`, with an empty
tensor for each missing one, and the options as a string. It must not return None, the same tensor twice, or an input.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ..layout import SequenceLayout
from .call import States
from .frame import AnyCall, Kernel, Tensors
from .validation import check_batch_sizes


class Like(NamedTuple):
    """The shape and the dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Shapes(NamedTuple):
    """The tensors that a forward pass returns.

    Attributes:
        all: All states; None if they are not returned.
        last: The last states.
        saved: Residuals for the backward pass.
        shares: Whether the first of `saved` is `all`.
    """

    all: Like | None
    last: Like
    saved: tuple[Like | None, ...]
    shares: bool


class AnyOperatorCall(AnyCall, Protocol):
    """A call that can be passed to an operator."""

    @property
    def returns_all(self) -> bool:
        """Whether all states are returned, instead of only the last ones."""

    def spec(self) -> str:
        """Return its options as a string."""


C = TypeVar("C", bound=AnyOperatorCall)


class OperatorKernel(Kernel[C]):
    """A kernel with operators `orthornn::name` and `orthornn::name_backward`; creating it registers them.

    The first two outputs, all states and the last ones, have gradients. The other outputs are saved for the backward
    pass.

    Attributes:
        name: Name of the operators.
        differentiable: Number of differentiable tensors of a call.
    """

    name: str
    differentiable: int

    @abstractmethod
    def read(self, tensors: Tensors, others: Tensors, layout: SequenceLayout, spec: str) -> C:
        """Return the call with these `tensors`, this layout and `spec`. others: `layout_tensors` after its own."""

    @abstractmethod
    def shapes(self, call: C) -> Shapes:
        """Return the result of `forward` for a call."""

    def traced(self, call: C) -> States:
        """Return the states of a call, computed by the operator."""
        tensors = (*call.tensors(), *call.layout_tensors())
        like = self._like(tensors)
        spec = "".join("0" if t is None else "1" for t in tensors) + call.spec()
        operator = getattr(torch.ops.orthornn, self.name)
        found = operator([like.new_empty(0) if t is None else t for t in tensors], spec)
        return States(found[0] if call.returns_all else None, found[1])

    def _like(self, tensors: Tensors) -> Tensor:
        """Return the tensor whose dtype and device empty tensors have."""
        like = tensors[self.state]
        assert like is not None
        return like

    def _call(self, tensors: list[Tensor], spec: str) -> C:
        count, own = len(tensors), self.differentiable
        given = [t if there == "1" else None for t, there in zip(tensors, spec[:count])]
        found, (batch_sizes, resets, *others) = given[:own], given[own:]
        rows = next(
            t for t in (*others, found[0]) if t is not None
        )  # an index has a row for each step, if there is one
        layout = SequenceLayout.of(rows, batch_sizes, self._like(found).shape[0], resets)
        return self.read(found, others, layout, spec[count:])

    def __init__(self) -> None:
        def filled(found: Tensors, like: Tensor) -> list[Tensor]:
            return [like.new_empty(0) if t is None else t.contiguous() for t in found]

        def forward(tensors: list[Tensor], spec: str) -> list[Tensor]:
            call = self._call(tensors, spec)
            layout = call.layout
            if layout.batch_sizes is not None:
                check_batch_sizes(layout.batch_sizes, layout.rows, layout.batch)
            states, saved = self.forward(call, True)
            if self.shapes(call).shares:
                saved = (None, *saved[1:])
            return filled((*states, *saved), self._like(tensors))

        def shapes(tensors: list[Tensor], spec: str) -> list[Tensor]:
            made, like = self.shapes(self._call(tensors, spec)), self._like(tensors)
            saved = (None, *made.saved[1:]) if made.shares else made.saved
            return [
                like.new_empty(0) if entry is None else like.new_empty(entry.shape, dtype=entry.dtype)
                for entry in (made.all, made.last, *saved)
            ]

        # needs: "1" or "0" for each tensor of the call, then whether each gradient arrives.
        def backward(
            grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
        ) -> list[Tensor]:
            call, wanted = self._call(tensors, spec), [flag == "1" for flag in needs]
            arriving = States(*(g if there else None for g, there in zip(grads, wanted[self.differentiable :])))
            made = self.shapes(call).saved
            present = [None if entry is None else t for t, entry in zip(saved, made)]
            return filled(self.gradients(call, arriving, present, wanted[: self.differentiable]), self._like(tensors))

        def backward_shapes(
            grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
        ) -> list[Tensor]:
            return [
                torch.empty_like(t, memory_format=torch.contiguous_format)
                if t is not None and flag == "1"
                else self._like(tensors).new_empty(0)
                for t, flag in zip(self._call(tensors, spec).tensors(), needs)
            ]

        def register(name: str, function: Any, fake: Any, arguments: str) -> Any:
            schema = f"({arguments}, str spec) -> Tensor[]"
            registered = torch.library.custom_op(f"orthornn::{name}", function, mutates_args=(), schema=schema)
            registered.register_fake(fake)
            return registered

        both = "Tensor[] grads, Tensor[] tensors, Tensor[] saved, str needs"
        self._backward = register(f"{self.name}_backward", backward, backward_shapes, both)
        registered = register(self.name, forward, shapes, "Tensor[] tensors")
        registered.register_autograd(self._differentiate, setup_context=self._save)

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
        tensors, ctx.spec = inputs
        call = self._call(tensors, ctx.spec)
        made, ctx.returns_all = self.shapes(call), call.returns_all
        saved = [output[0], *output[3:]] if made.shares else output[2:]
        ctx.save_for_backward(*tensors, *saved)
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)

    def _differentiate(self, ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None], None]:
        requires = ctx.needs_input_grad[0]
        count = len(requires)
        every = list(ctx.saved_tensors)  # once: activation checkpointing unpacks them once
        tensors, saved = every[:count], every[count:]
        arriving = [grads[0] if ctx.returns_all else None, grads[1]]
        if all(g is None for g in arriving):
            return [None] * count, None
        own = requires[: self.differentiable]
        needs = "".join("1" if flag else "0" for flag in (*own, *(g is not None for g in arriving)))
        given = [self._like(tensors).new_empty(0) if g is None else g for g in arriving]
        found = self._backward(given, tensors, saved, needs, ctx.spec)
        return [*(g if flag else None for g, flag in zip(found, own)), *[None] * (count - len(own))], None
