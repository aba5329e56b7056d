"""All layers through one segment of a sequence after the other, for memory="checkpoint".

Layer by layer, each would hand all its states to the next. In lockstep only the states of all layers before each segment
are kept; the backward pass goes through one segment of all layers again at a time, with autograd, and adds up what comes
out. Transitions are built once, before the first segment, so that every segment's gradient goes to the same W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..compact_wy import Base
from ..kernels.batched import for_each_gradient
from ..parametrizations.base import BoundParametrization
from .packing import last_of_each
from .transition import Operator, Transition

if TYPE_CHECKING:
    from .layer import Layer


class BuiltTransition(NamedTuple):
    """A transition whose tensors are there already; what a Layer asks of one."""

    method: BoundParametrization
    W: Tensor
    factors: tuple[Tensor, Base] | None

    @classmethod
    def of(cls, transition: Transition | BuiltTransition) -> BuiltTransition:
        """W (N, N) and the compact form, if there is one, as they are now."""
        return cls(transition.method, transition.cached_matrix(), transition.compact())

    def matrix(self) -> Tensor:
        """Return W (N, N); the caller may write into it."""
        return self.W.clone()

    def cached_matrix(self) -> Tensor:
        """Return W (N, N) itself: only to be read."""
        return self.W

    def compact(self) -> tuple[Tensor, Base] | None:
        """(U, B), or None."""
        return self.factors

    def operator(self) -> Operator | None:
        """Not in segments."""
        return None


class Stack(NamedTuple):
    """The layers, first first, with how they are run, and the length of a segment."""

    layers: list[Layer]
    clip: float | None
    form: str
    segment: int

    def tensors(self) -> list[Tensor | None]:
        """What is differentiated, eight a layer."""
        found: list[Tensor | None] = []
        for layer in self.layers:
            W, factors = layer.transition.cached_matrix(), layer.transition.compact()
            U, base = (None, None) if factors is None else factors
            c, s = (None, None) if base is None else base
            gain = layer.gain if isinstance(layer.gain, Tensor) else None
            found += [W, U, c, s, layer.weight_ih, layer.bias_ih, layer.activation_parameter, gain]
        return found

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> Stack:
        """The same layers with these tensors."""
        layers = []
        for layer, start in zip(self.layers, range(0, len(tensors), 8)):
            W, U, c, s, weight_ih, bias_ih, parameter, gain = tensors[start : start + 8]
            assert W is not None
            assert weight_ih is not None
            base = None if c is None or s is None else (c, s)
            built = BuiltTransition(layer.transition.method, W, None if U is None else (U, base))
            layers.append(
                replace(
                    layer,
                    transition=built,
                    weight_ih=weight_ih,
                    bias_ih=bias_ih,
                    activation_parameter=parameter,
                    gain=layer.gain if gain is None else gain,
                )
            )
        return self._replace(layers=layers)

    def through(self, x: Tensor, h: Tensor, batch_sizes: Tensor | None) -> Tensor:
        """The last states of all layers (L, B, N), from inputs (T, B, ...) or flat rows and the states before them."""
        finals = []
        for k, (layer, first) in enumerate(zip(self.layers, h)):
            if k == len(self.layers) - 1:
                finals.append(layer.sequence(x, first, batch_sizes, "last", self.clip, self.form))
                continue
            x = layer.sequence(x, first, batch_sizes, "all", self.clip, self.form)
            finals.append(last_of_each(x, first, batch_sizes))
        return torch.stack(finals)

    def parts(self, x: Tensor, batch_sizes: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
        """Inputs and batch_sizes of every segment."""
        if batch_sizes is None:
            return [(rows, None) for rows in x.split(self.segment)]
        sizes = batch_sizes.split(self.segment)
        return list(zip(x.split([int(some.sum()) for some in sizes]), sizes))


def last_states(stack: Stack, x: Tensor, h: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """The last states of all layers (L, B, N) from those before the first step, h (L, B, N).

    x: (T, B, ...), or flat rows (R, ...) with batch_sizes. Sequences that have ended keep their last state.
    """
    return _Lockstep.apply(stack, batch_sizes, x, h, *stack.tensors())


def _carried(h: Tensor, first: Tensor) -> Tensor:
    """h (L, B, N) with its first rows replaced by (L, b, N)."""
    return first if first.shape[1] == h.shape[1] else torch.cat([first, h[:, first.shape[1] :]], dim=1)


def _running(h: Tensor, batch_sizes: Tensor | None) -> Tensor:
    return h if batch_sizes is None else h[:, : int(batch_sizes[0])]


class _Lockstep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stack: Stack, batch_sizes: Tensor | None, x: Tensor, h: Tensor, *tensors: Tensor | None
    ) -> Tensor:
        plain = stack.with_tensors(tensors)
        parts, first = plain.parts(x, batch_sizes), h
        needed = any(ctx.needs_input_grad)
        starts = h.new_empty(len(parts) if needed else 0, *h.shape)
        for index, (rows, sizes) in enumerate(parts):
            if needed:
                starts[index] = h
            h = _carried(h, plain.through(rows, _running(h, sizes), sizes))
        if needed:
            ctx.stack = stack._replace(layers=[replace(layer, transition=_empty(layer)) for layer in stack.layers])
            ctx.save_for_backward(batch_sizes, x, first, starts, *tensors)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        batch_sizes, x, first, _, *tensors = ctx.saved_tensors
        inputs, needs = [x, first, *tensors], ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # a higher derivative will be asked for: as if all states were kept
            out = ctx.stack.with_tensors(tensors).through(x, first, batch_sizes)
            wanted = [tensor for tensor, need in zip(inputs, needs) if need]
            higher = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True))
            return None, None, *(next(higher) if need else None for need in needs)
        return None, None, *for_each_gradient(partial(_gradients, ctx.stack, ctx.saved_tensors, needs), grad)


def _gradients(
    stack: Stack, saved: tuple[Tensor, ...], needs: tuple[bool, ...], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """dL/dx, dL/dh and those of the stack's tensors, a segment at a time."""
    batch_sizes, x, _, starts, *tensors = saved
    leaves = [None if t is None else t.detach().requires_grad_(need) for t, need in zip(tensors, needs[2:])]
    stack, wanted = stack.with_tensors(leaves), [t for t in leaves if t is not None and t.requires_grad]
    sums: list[Tensor | None] = [None] * len(wanted)
    by_x = torch.zeros_like(x) if needs[0] else None
    parts = stack.parts(x, batch_sizes)
    into = None if by_x is None else stack.parts(by_x, batch_sizes)
    for index in reversed(range(len(parts))):
        rows, sizes = parts[index]
        rows, h = rows.detach().requires_grad_(needs[0]), _running(starts[index], sizes).detach().requires_grad_()
        with torch.enable_grad():
            out = stack.through(rows, h, sizes)
        asked = [h, *wanted, *([rows] if needs[0] else [])]
        by_h, *found = torch.autograd.grad(out, asked, _running(grad, sizes), allow_unused=True)
        for k, part in enumerate(found[: len(wanted)]):
            total = sums[k]
            if part is not None:
                sums[k] = part.clone() if total is None else total.add_(part)
        if into is not None:
            into[index][0].copy_(found[-1])
        grad = _carried(grad, by_h)
    rest = iter(sums)
    return by_x, grad, *(next(rest) if t is not None and t.requires_grad else None for t in leaves)


def _empty(layer: Layer) -> BuiltTransition:
    """A transition that holds no graph: its tensors come from what autograd saved."""
    return BuiltTransition(layer.transition.method, torch.empty(0), None)
