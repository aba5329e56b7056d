"""A call as a pair of custom operators, forward and backward, for graphs and for what intercepts calls.

An operator takes and returns tensors: those of the call in the order of its `tensors`, then those that describe its
rows, an empty one for each that there is not, and the options as a string. It may not return None, nor one tensor twice,
nor an input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ..layout import SequenceLayout
from .validation import check_batch_sizes


class AnyCall(Protocol):
    """A call of some kernel."""

    @property
    def layout(self) -> SequenceLayout:
        """How rows are divided into steps."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return what can be differentiated, in the order of the gradients."""


C = TypeVar("C", bound=AnyCall)
Given = Sequence[Tensor | None]


class CallOperator(ABC, Generic[C]):
    """The operators `orthornn::name` and `orthornn::name_backward` of one kind of call; making one registers them.

    The first two outputs have gradients: all states (or whatever a step returns) and the last ones. What else is
    returned is saved for the backward pass.

    Attributes:
        name: What the operators are called.
        differentiable: The number of tensors of a call that can be differentiated.
        like: The position of one that every call has: empty tensors have its dtype and device.
        first_saved: The backward pass gets the outputs from this one on.
    """

    name: str
    differentiable: int
    like: int
    first_saved = 0

    @abstractmethod
    def read(self, given: list[Tensor | None], options: str) -> C:
        """Return the call that `run` was given."""

    @abstractmethod
    def forward(self, call: C) -> Given:
        """Return the outputs, and what the backward pass needs."""

    @abstractmethod
    def shapes(self, call: C) -> Given:
        """Return tensors, of any content, like those that `forward` returns."""

    @abstractmethod
    def backward(self, call: C, grads: list[Tensor | None], saved: list[Tensor], needs: list[bool]) -> Given:
        """Return the gradients of the call's tensors.

        Args:
            call: The call.
            grads: Those that arrive at the first two outputs, None where none does.
            saved: The outputs, from `first_saved` on.
            needs: Which gradients are needed.
        """

    def returns_all(self, options: str) -> bool:
        """Return whether the first output is one of the call's, and not an empty tensor."""
        return True

    def run(self, given: Given, options: str) -> list[Tensor]:
        """Return the outputs, by the operator. given: The call's tensors, then those that describe its rows."""
        present = "".join("0" if t is None else "1" for t in given)
        like = given[self.like]
        assert like is not None
        operator = getattr(torch.ops.orthornn, self.name)
        return operator([like.new_empty(0) if t is None else t for t in given], f"{present}{options}")

    def _call(self, tensors: list[Tensor], spec: str) -> C:
        count = len(tensors)
        return self.read([t if there == "1" else None for t, there in zip(tensors, spec[:count])], spec[count:])

    def __init__(self) -> None:
        def given(found: Given, like: Tensor) -> list[Tensor]:
            return [like.new_empty(0) if t is None else t.contiguous() for t in found]

        def forward(tensors: list[Tensor], spec: str) -> list[Tensor]:
            call = self._call(tensors, spec)
            layout = call.layout
            if layout.batch_sizes is not None:
                check_batch_sizes(layout.batch_sizes, layout.rows, layout.batch)
            return given(self.forward(call), tensors[self.like])

        def shapes(tensors: list[Tensor], spec: str) -> list[Tensor]:
            return given(self.shapes(self._call(tensors, spec)), tensors[self.like])

        # needs: "1" or "0" for each tensor of the call, then whether each gradient arrives.
        def backward(
            grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
        ) -> list[Tensor]:
            wanted = [flag == "1" for flag in needs]
            arriving = [g if there else None for g, there in zip(grads, wanted[self.differentiable :])]
            found = self.backward(self._call(tensors, spec), arriving, saved, wanted[: self.differentiable])
            return given(found, tensors[self.like])

        def backward_shapes(
            grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
        ) -> list[Tensor]:
            return [
                torch.empty_like(t, memory_format=torch.contiguous_format)
                if t is not None and flag == "1"
                else tensors[self.like].new_empty(0)
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
        ctx.save_for_backward(*tensors, *output[self.first_saved :])
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)

    def _differentiate(self, ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None], None]:
        requires = ctx.needs_input_grad[0]
        count = len(requires)
        tensors, saved = list(ctx.saved_tensors[:count]), list(ctx.saved_tensors[count:])
        arriving = [grads[0] if self.returns_all(ctx.spec[count:]) else None, grads[1]]
        if all(g is None for g in arriving):
            return [None] * count, None
        own = requires[: self.differentiable]
        needs = "".join("1" if flag else "0" for flag in (*own, *(g is not None for g in arriving)))
        given = [tensors[self.like].new_empty(0) if g is None else g for g in arriving]
        found = self._backward(given, tensors, saved, needs, ctx.spec)
        return [*(g if flag else None for g, flag in zip(found, own)), *[None] * (count - len(own))], None
