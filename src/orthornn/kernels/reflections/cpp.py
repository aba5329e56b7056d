"""The compiled kernel of input-dependent reflections (csrc/reflections.hpp) on CPU tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ..backends.cpp import extension
from ..backends.cpp.memory import check, empty, empty_like_needed, memory, memory_or_none
from ..call import States
from ..frame import Tensors
from .call import Gradients, ReflectionCall, Saved


def forward(call: ReflectionCall, save: bool) -> tuple[States, Tensors]:
    """Return the states and, if ``save``, the residuals for the backward pass."""
    given = _arguments(call)
    layout, options, h0, (M, N, H) = call.layout, call.options, given["h0"], call.shape
    keeps = save and options.activation.reads == "preactivation"
    states = empty(h0, layout.shape(N)) if save or not options.only_last else None
    last = torch.empty_like(h0)
    saved_z = empty(h0, (layout.rows, N)) if keeps else None
    dots = empty(h0, (layout.rows, M, H)) if save else None
    inverse = h0.new_empty((given["S"], M, H), dtype=torch.float64)
    given.update(inverse=inverse, states=states, saved=saved_z, last=last, dots=dots)
    extension.native.reflections_forward(**given, threads=torch.get_num_threads())
    result = States(None if options.only_last else states, last)
    if states is None or dots is None:
        return result, ()
    return result, Saved(states, saved_z, dots, inverse)


def backward(call: ReflectionCall, grad: States, saved: Saved, needs: Sequence[bool]) -> Gradients:
    """Return the required gradients."""
    given = _arguments(call)
    h0, clip = given["h0"], call.options.clip
    states = memory(saved.states)
    found = empty_like_needed(h0, call.tensors(), needs)
    names = ("k", "beta", "gate", "angle", "add", "h0", "parameter", "restart")
    given.update(
        clip=math.inf if clip is None else clip,
        inverse=memory_or_none(saved.inverse),
        states=states,
        saved=states if saved.preactivations is None else memory(saved.preactivations),
        dots=memory_or_none(saved.dots),
        grad_states=None if grad.all is None else memory(grad.all.to(h0.dtype)),
        grad_last=None if grad.last is None else memory(grad.last.to(h0.dtype)),
        **{f"grad_{name}": tensor for name, tensor in zip(names, found)},
    )
    extension.native.reflections_backward(**given, threads=torch.get_num_threads())
    return tuple(found)


def _turn(call: ReflectionCall) -> Tensor | None:
    """Return the cosines of the angles and their rounding errors, and the same for the sines: (1 or S, 4, N // 2)."""
    if call.angles is None:
        return None
    wide = call.angles.detach().double()
    wide = wide.unsqueeze(0) if call.shares_angles else call.flat(wide)
    parts = []
    for exact in (torch.cos(wide), torch.sin(wide)):
        rounded = exact.to(call.h0.dtype)
        parts += [rounded, (exact - rounded.double()).to(call.h0.dtype)]
    return torch.stack(parts, dim=1)


def _arguments(call: ReflectionCall) -> dict[str, Any]:
    """Return sizes and tensors for the kernel, contiguous, after checks that keep its addresses inside them."""
    h0, restart, layout = memory(call.h0), memory_or_none(call.restart), call.layout
    (M, N, H), dtype = call.shape, call.h0.dtype
    k = memory(call.flat(call.k))
    S = k.shape[0]
    index = None if call.index is None else memory(layout.flatten(call.index).to(torch.int64))
    if index is not None and index.numel() == 0:
        index = index.new_zeros(1)  # an empty tensor has no address, and that would mean no index
    turn = _turn(call)
    turns = 1 if turn is None else turn.shape[0]
    check("angles", turn, (turns if turns == 1 else S, 4, N // 2), dtype)
    gate = None if call.gate is None else memory(call.flat(call.gate))
    add = None if call.add is None else memory(call.flat(call.add))
    beta = memory(call.flat(call.beta))
    check("k", k, (S, M, N), dtype)
    check("beta", beta, (S, M, H), dtype)
    check("h0", h0, (layout.batch, N), dtype)
    check("gate", gate, (S, N if gate is not None and gate.shape[-1] == N else H), dtype)
    check("add", add, (S, N), dtype)
    check("restart", restart, (layout.batch, N), dtype)
    if (index is None and layout.rows != S) or (index is not None and index.numel() != max(layout.rows, 1)):
        raise ArgumentError(f"Expected {layout.rows} rows, but got {S if index is None else index.numel()}.")
    phi, parameter = call.options.activation, memory_or_none(call.parameter)
    check("parameter", parameter, (phi.parameter_size(N),), dtype)
    return {
        "element_size": h0.element_size(),
        "T": layout.length,
        "B": layout.batch,
        "N": N,
        "R": layout.rows,
        "batch_sizes": memory_or_none(layout.batch_sizes),
        "resets": memory_or_none(layout.resets),
        "M": M,
        "heads": H,
        "activation": phi.code,
        "slope": phi.slope,
        "parameter": parameter,
        "index": index,
        "k": k,
        "beta": beta,
        "gate": gate,
        "turn": turn,
        "add": add,
        "S": S,
        "gates": 0 if gate is None else gate.shape[-1],
        "turns": turns,
        "h0": h0,
        "restart": restart,
    }
