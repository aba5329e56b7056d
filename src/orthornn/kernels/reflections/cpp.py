"""The compiled kernel of input-dependent reflections (csrc/reflections.hpp) on CPU tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ..backends.cpp import extension
from ..call import States
from .call import Gradients, ReflectionCall, Saved

_LARGE = 1 << 23  # bytes from which large pages are asked for


def forward(call: ReflectionCall, save: bool) -> tuple[States, Saved | None]:
    """Return the states and, if ``save``, what the backward pass needs."""
    tables = _tables(call)
    layout, options, h0, (M, N, H) = call.layout, call.options, _memory(call.h0), call.shape
    keeps = save and options.activation.reads == "preactivation"
    restart = None if call.restart is None else _memory(call.restart)
    states = _empty(h0, layout.shape(N)) if save or not options.only_last else None
    last = torch.empty_like(h0)
    saved_z = _empty(h0, (layout.rows, N)) if keeps else None
    dots = _empty(h0, (layout.rows, M, H)) if save else None
    inverse = h0.new_empty((tables["S"], M, H), dtype=torch.float64)
    extension.native.reflections_forward(
        **_numbers(tables),
        inverse=inverse.data_ptr(),
        h0=h0.data_ptr(),
        restart=_address(restart),
        states=_address(states),
        kept=_address(saved_z),
        last=last.data_ptr(),
        dots=_address(dots),
        threads=torch.get_num_threads(),
    )
    result = States(None if options.only_last else states, last)
    if states is None or dots is None:
        return result, None
    return result, Saved(states, saved_z, dots, inverse)


def backward(call: ReflectionCall, grad: States, saved: Saved, needs: Sequence[bool]) -> Gradients:
    """Return the gradients that are needed."""
    tables = _tables(call)
    h0, N = _memory(call.h0), call.shape[1]
    states = _memory(saved.states)
    read = states if saved.preactivations is None else _memory(saved.preactivations)
    shapes = [None if t is None else t.shape for t in call.tensors()]
    found = [_empty(h0, shape) if need and shape is not None else None for shape, need in zip(shapes, needs)]
    grad_all = None if grad.all is None else _memory(grad.all.to(h0.dtype)).view(call.layout.rows, N)
    grad_last = None if grad.last is None else _memory(grad.last.to(h0.dtype))
    restart = None if call.restart is None else _memory(call.restart)
    if call.layout.resets is None and found[-1] is not None:
        found[-1].zero_()
    names = ("k", "beta", "gate", "angle", "add", "h0", "parameter", "restart")
    assert saved.dots is not None
    assert saved.inverse is not None
    dots, inverse = _memory(saved.dots), _memory(saved.inverse)
    extension.native.reflections_backward(
        **_numbers(tables),
        clip=math.inf if call.options.clip is None else call.options.clip,
        inverse=inverse.data_ptr(),
        h0=h0.data_ptr(),
        restart=_address(restart),
        states=states.data_ptr(),
        kept=read.data_ptr(),
        dots=dots.data_ptr(),
        grad_states=_address(grad_all),
        grad_last=_address(grad_last),
        threads=torch.get_num_threads(),
        **{f"grad_{name}": _address(tensor) for name, tensor in zip(names, found)},
    )
    return tuple(found)


def _tables(call: ReflectionCall) -> dict[str, Any]:
    """Return sizes and tensors for the kernel, contiguous, after checks that keep its addresses inside them."""
    h0, layout = call.h0, call.layout
    M, N, H = call.shape
    k = _memory(call.flat(call.k))
    S = k.shape[0]
    index = None if call.index is None else _memory(layout.flatten(call.index).to(torch.int64))
    if index is not None and index.numel() == 0:
        index = index.new_zeros(1)  # an empty tensor has no address, and that would mean no index
    turn, turns = None, 1
    if call.angles is not None:
        wide = call.angles.detach().double()
        wide = wide.unsqueeze(0) if call.shares_angles else call.flat(wide)
        turns = wide.shape[0]
        parts = []
        for exact in (torch.cos(wide), torch.sin(wide)):
            rounded = exact.to(h0.dtype)
            parts += [rounded, (exact - rounded.double()).to(h0.dtype)]
        turn = torch.stack(parts, dim=1)
        _check("angles", turn, (turns if turns == 1 else S, 4, N // 2), h0)
    gate = None if call.gate is None else _memory(call.flat(call.gate))
    add = None if call.add is None else _memory(call.flat(call.add))
    beta = _memory(call.flat(call.beta))
    _check("k", k, (S, M, N), h0)
    _check("beta", beta, (S, M, H), h0)
    _check("h0", h0, (layout.batch, N), h0)
    if gate is not None:
        _check("gate", gate, (S, N if gate.shape[-1] == N else H), h0)
    if add is not None:
        _check("add", add, (S, N), h0)
    if call.restart is not None:
        _check("restart", call.restart, (layout.batch, N), h0)
    if (index is None and layout.rows != S) or (index is not None and index.numel() != max(layout.rows, 1)):
        raise ArgumentError(f"Expected {layout.rows} rows, but got {S if index is None else index.numel()}.")
    phi, parameter, sizes = call.options.activation, call.parameter, layout.batch_sizes
    if parameter is not None:
        parameter = _memory(parameter)
        _check("parameter", parameter, (phi.parameter_size(N),), h0)
    return {
        "element_size": h0.element_size(),
        "T": layout.length,
        "B": layout.batch,
        "N": N,
        "R": layout.rows,
        "batch_sizes": None if sizes is None else _memory(sizes),
        "resets": None if layout.resets is None else _memory(layout.resets),
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
    }


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], h0: Tensor) -> None:
    """Raise ArgumentError unless a tensor is what the extension takes it for: it reads addresses, not tensors."""
    if tuple(tensor.shape) != shape or tensor.dtype != h0.dtype or not tensor.is_cpu:
        raise ArgumentError(
            f"Expected {name} of shape {shape} in {h0.dtype} on the CPU, but got {tuple(tensor.shape)} in {tensor.dtype} "
            f"on {tensor.device}. Do not replace a network's parameters by others of another shape, dtype or device."
        )


def _numbers(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with addresses for tensors, whose owner keeps them alive during the call."""
    return {key: value if isinstance(value, (int, float)) else _address(value) for key, value in arguments.items()}


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _memory(tensor: Tensor) -> Tensor:
    """Return the tensor as the memory that its address stands for: contiguous, negated where it is so lazily."""
    tensor = tensor.contiguous()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return memory to be written as a whole, on large pages where it is large."""
    out = like.new_empty(shape)
    if out.nbytes >= _LARGE:
        extension.native.ask_for_large_pages(out, out.nbytes)
    return out
