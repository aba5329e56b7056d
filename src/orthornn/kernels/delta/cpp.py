"""The compiled kernel of the delta rule (csrc/delta.hpp) on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..backends.cpp import extension
from ..backends.cpp.memory import check, empty, empty_like_needed, memory, memory_or_none
from ..call import States
from .call import DeltaCall, Gradients

UPDATES = 64  # between two stored states
LONGEST_STEP = 16  # updates of a step that products can take together: delta_chunk of csrc/delta_products.hpp
# The size of states K = V from which products are faster, for each kind of gate.
LEAST_FORWARD = {None: 96, "head": 64, "key": 96}
LEAST_BACKWARD = {None: 64, "head": 48, "key": 64}


def forward(call: DeltaCall, save: bool) -> tuple[States, tuple[Tensor, ...]]:
    """Return the outputs and, if ``save``, the states before the chunks."""
    given = _arguments(call, by_products(call, backward=False))
    (_, H, _, V), state = call.shape, given["start"]
    out, last = empty(state, (*call.layout.shape(H), V)), torch.empty_like(state)
    marks = empty(state, (stored(call), *state.shape)) if save else None
    if marks is not None:
        marks[-1] = 0
    given.update(out=out, last=last, marks=marks)
    extension.native.delta_forward(**given, threads=torch.get_num_threads())
    return States(out, last), () if marks is None else (marks,)


def backward(call: DeltaCall, grad: States, marks: Tensor, needs: Sequence[bool]) -> Gradients:
    """Return the required gradients."""
    given = _arguments(call, by_products(call, backward=True))
    like = given["start"]
    found = empty_like_needed(like, call.tensors(), needs)
    grad_out, grad_last = (None if g is None else memory(g.to(like.dtype)) for g in grad)
    names = ("grad_q", "grad_k", "grad_v", "grad_beta", "grad_gate", "grad_start", "grad_restart")
    given.update(marks=memory(marks), grad_out=grad_out, grad_last=grad_last, **dict(zip(names, found)))
    extension.native.delta_backward(**given, threads=torch.get_num_threads())
    return tuple(found)


def stored(call: DeltaCall) -> int:
    """Return the number of stored states: one more than the chunks, since graphs treat a size of 1 as a constant."""
    return -(-call.layout.length // _steps(call)) + 1


def by_products(call: DeltaCall, backward: bool) -> bool:
    """Return whether products over chunks of updates take less time than one update after the other.

    An update takes K V multiply-adds for each read or write of the state: from the cache if updates run one by one, in
    registers for a chunk of updates. Products take additional time proportional to K + V. So K V / (K + V) decides.
    """
    M, _, K, V = call.shape
    if M > LONGEST_STEP or call.layout.length * M < LONGEST_STEP:
        return False
    gate = None if call.gate is None else "key" if call.gate.shape[-1] > 1 else "head"
    least = (LEAST_BACKWARD if backward else LEAST_FORWARD)[gate]
    return least * (K + V) <= 2 * K * V


def _steps(call: DeltaCall) -> int:
    return max(1, UPDATES // call.k.shape[-3])


def _arguments(call: DeltaCall, products: bool) -> dict[str, Any]:
    """Return sizes and tensors for the kernel, contiguous, after checks that keep its addresses inside them."""
    layout, (M, H, K, V), state = call.layout, call.shape, memory(call.state)
    gates = 1 if call.gate is None or call.gate.shape[-1] != K else K
    step, update, whole = layout.shape(H), (*layout.shape(M), H), (layout.batch, H, K, V)
    shapes = ((*step, K), (*update, K), (*update, V), update, (*step, gates), whole, whole)
    rows = {name: memory_or_none(t) for name, t in zip(("q", "k", "v", "beta", "gate"), call.tensors())}
    restart = None if layout.resets is None else memory_or_none(call.restart)
    for (name, tensor), shape in zip({**rows, "state": state, "restart": restart}.items(), shapes):
        check(name, tensor, shape, state.dtype)
    return {
        "element_size": state.element_size(),
        "T": layout.length,
        "B": layout.batch,
        "R": layout.rows,
        "batch_sizes": memory_or_none(layout.batch_sizes),
        "resets": memory_or_none(layout.resets),
        "M": M,
        "heads": H,
        "keys": K,
        "values": V,
        "chunk": _steps(call),
        "products": products,
        **rows,
        "gates": gates,
        "start": state,
        "restart": restart,
    }
