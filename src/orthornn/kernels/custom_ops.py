"""A call as a pair of custom operators, for graphs and for what intercepts calls.

An operator takes and returns tensors: those of the call in the order of `Call.tensors`, then the batch sizes and the
resets, an empty one for each that there is not, and the options as a string. It may not return None, nor one tensor twice,
nor an input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..layout import SequenceLayout
from . import execute
from .call import Call, Needs, Options, Residuals, States
from .projection import stored_dtype
from .validation import check_batch_sizes

# Positions in what the operator returns: all states, the last ones, then the residuals.
_ALL, _LAST, _RESIDUALS = 0, 1, 2
_TENSORS = len(Needs._fields)  # the call's tensors
_INPUTS = _TENSORS + 2  # and the batch sizes and resets


def run(call: Call) -> States:
    """Return the states of a call, by the operator."""
    like = call.h0
    given = [*call.tensors(), call.layout.batch_sizes, call.layout.resets]
    tensors = [like.new_empty(0) if t is None else t for t in given]
    options = call.options
    present = "".join("0" if t is None else "1" for t in given)
    out = torch.ops.orthornn.recurrence(tensors, f"{present}{options.to_spec()}")
    return States(None if options.only_last else out[_ALL], out[_LAST])


def _read(tensors: list[Tensor], spec: str) -> Call:
    """Return the call that these inputs of the operator stand for."""
    present, options = spec[:_INPUTS], Options.from_spec(spec[_INPUTS:])
    *own, batch_sizes, resets = (t if there == "1" else None for t, there in zip(tensors, present))
    x, h0 = tensors[0], tensors[3]
    layout = SequenceLayout.of(x, batch_sizes, h0.shape[0], resets)
    return Call.of(own, layout, options)


def _given(tensor: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if tensor is None else tensor.contiguous()


@torch.library.custom_op("orthornn::recurrence", mutates_args=(), schema="(Tensor[] tensors, str spec) -> Tensor[]")
def _recurrence(tensors: list[Tensor], spec: str) -> list[Tensor]:
    """Return all states, the last ones, and the residuals."""
    call = _read(tensors, spec)
    if call.layout.batch_sizes is not None:
        check_batch_sizes(call.layout.batch_sizes, call.layout.rows, call.layout.batch)
    states, residuals = execute.forward(call, True)
    if not call.options.only_last:  # they are returned already
        residuals = residuals._replace(states=None)
    return [_given(t, call.h0) for t in (*states, *residuals)]


@_recurrence.register_fake
def _recurrence_fake(tensors: list[Tensor], spec: str) -> list[Tensor]:
    call = _read(tensors, spec)
    h0, layout, options, m = call.h0, call.layout, call.options, call.num_reflections
    n, none = h0.shape[1], lambda: h0.new_empty(0)
    stored = h0.new_empty(0, dtype=stored_dtype(call.x, call.weight_ih))
    every = none() if options.only_last else stored.new_empty(layout.shape(n))
    last = stored.new_empty(h0.shape)
    residuals = [none() for _ in Residuals._fields]
    if options.segment_length is not None:
        count = (layout.length + options.segment_length - 1) // options.segment_length
        residuals[Residuals._fields.index("starts")] = h0.new_empty(count, *h0.shape)
        return [every, last, *residuals]
    if options.activation.reads == "preactivation":
        residuals[1] = stored.new_empty(layout.rows, n)
    elif options.only_last:
        residuals[0] = stored.new_empty(layout.shape(n))
    if m is not None:
        residuals[2], residuals[4] = stored.new_empty(layout.rows, m), h0.new_empty(m, m)
        residuals[3] = h0.new_empty(n, m) if call.weight.dim() == 1 else none()
    return [every, last, *residuals]


@torch.library.custom_op(
    "orthornn::recurrence_backward",
    mutates_args=(),
    schema="(Tensor[] grads, Tensor[] tensors, Tensor[] saved, str needs, str spec) -> Tensor[]",
)
def _recurrence_backward(
    grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
) -> list[Tensor]:
    """Return the gradients of the call's tensors.

    Args:
        grads: Those that arrive at all states and at the last ones, empty where none does.
        tensors: The operator's inputs. saved: Its outputs.
        needs: "1" or "0" for each tensor of the call, then whether each gradient arrives. spec: As in the forward operator.
    """
    call, wanted = _read(tensors, spec), Needs(*(flag == "1" for flag in needs[:_TENSORS]))
    grad = States(*(g if flag == "1" else None for g, flag in zip(grads, needs[_TENSORS:])))
    stored = [*saved[_RESIDUALS:]]
    reads_state = call.options.activation.reads == "state"
    if not call.options.only_last and reads_state:
        stored[0] = saved[_ALL]
    there = _present(call)
    residuals = Residuals(*(t if is_there else None for t, is_there in zip(stored, there)))
    gradients = execute.backward(call, grad, residuals, wanted)
    return [_given(g, call.h0) for g in gradients]


def _present(call: Call) -> tuple[bool, ...]:
    """Return which residuals a call has."""
    if call.options.segment_length is not None:
        return (*(False,) * 5, True)
    reads_state, m = call.options.activation.reads == "state", call.num_reflections
    return reads_state, not reads_state, m is not None, m is not None and call.weight.dim() == 1, m is not None, False


@_recurrence_backward.register_fake
def _recurrence_backward_fake(
    grads: list[Tensor], tensors: list[Tensor], saved: list[Tensor], needs: str, spec: str
) -> list[Tensor]:
    call = _read(tensors, spec)
    return [
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and flag == "1"
        else call.h0.new_empty(0)
        for t, flag in zip(call.tensors(), needs)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, spec = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.spec = spec
    ctx.mark_non_differentiable(*output[_RESIDUALS:])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, grads: list[Tensor | None]) -> tuple[list[Tensor | None] | None, None]:
    tensors, saved = list(ctx.saved_tensors[:_INPUTS]), list(ctx.saved_tensors[_INPUTS:])
    only_last = Options.from_spec(
        ctx.spec[_INPUTS:]
    ).only_last  # then the first output is empty, and so is its gradient
    arriving = [None if only_last else grads[_ALL], grads[_LAST]]
    if all(g is None for g in arriving):
        return [None] * _INPUTS, None
    like, requires = tensors[3], ctx.needs_input_grad[0][:_TENSORS]
    needs = "".join("1" if flag else "0" for flag in (*requires, *(g is not None for g in arriving)))
    given = [like.new_empty(0) if g is None else g for g in arriving]
    found = torch.ops.orthornn.recurrence_backward(given, tensors, saved, needs, ctx.spec)
    return [*(g if flag else None for g, flag in zip(found, requires)), None, None], None


_recurrence.register_autograd(_autograd, setup_context=_setup_context)
