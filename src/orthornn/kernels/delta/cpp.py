"""The compiled kernel of the delta rule (csrc/delta.hpp) on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ..backends.cpp import extension
from .call import DeltaCall, Gradients, Outputs

UPDATES = 64  # between two stored states
_LARGE = 1 << 23  # bytes from which large pages are asked for


def forward(call: DeltaCall, save: bool, spare: int = 0) -> tuple[Outputs, Tensor | None]:
    """Return the outputs and, if ``save``, the state before every chunk and ``spare`` more: (chunks + spare, B, H, K, V)."""
    given = _arguments(call)
    (_, H, _, V), state = call.shape, given["start"]
    out, last = _empty(state, (*call.layout.shape(H), V)), torch.empty_like(state)
    marks = _empty(state, (chunks(call) + spare, *state.shape)) if save else None
    if marks is not None:
        marks[chunks(call) :] = 0
    extension.native.delta_forward(
        **_numbers(given),
        out=out.data_ptr(),
        last=last.data_ptr(),
        marks=_address(marks),
        threads=torch.get_num_threads(),
    )
    return Outputs(out, last), marks


def backward(call: DeltaCall, grad: Outputs, marks: Tensor, needs: Sequence[bool]) -> Gradients:
    """Return the gradients that are needed."""
    given, marks = _arguments(call), _memory(marks)
    like = given["start"]
    shapes = [None if t is None else t.shape for t in call.tensors()]
    found = [_empty(like, shape) if need and shape is not None else None for shape, need in zip(shapes, needs)]
    if call.layout.resets is None and found[-1] is not None:
        found[-1].zero_()
    grads = [None if g is None else _memory(g.to(like.dtype)) for g in grad]
    names = ("grad_q", "grad_k", "grad_v", "grad_beta", "grad_gate", "grad_start", "grad_restart")
    extension.native.delta_backward(
        **_numbers(given),
        marks=marks.data_ptr(),
        grad_out=_address(grads[0]),
        grad_last=_address(grads[1]),
        threads=torch.get_num_threads(),
        **{name: _address(tensor) for name, tensor in zip(names, found)},
    )
    return tuple(found)


def chunks(call: DeltaCall) -> int:
    """Return the number of chunks: of stored states."""
    return -(-call.layout.length // _steps(call))


def _steps(call: DeltaCall) -> int:
    return max(1, UPDATES // call.shape[0])


def _arguments(call: DeltaCall) -> dict[str, Any]:
    """Return sizes and tensors for the kernel, contiguous, after checks that keep its addresses inside them."""
    layout, (M, H, K, V), state = call.layout, call.shape, _memory(call.state)
    names = ("q", "k", "v", "beta", "gate")
    gates = 1 if call.gate is None or call.gate.shape[-1] != K else K
    shapes = {"q": (H, K), "k": (M, H, K), "v": (M, H, V), "beta": (M, H), "gate": (H, gates)}
    rows = {name: None if t is None else _memory(call.flat(t)) for name, t in zip(names, call.tensors())}
    restart = None if layout.resets is None or call.restart is None else _memory(call.restart)
    wanted = {name: (rows[name], (layout.rows, *shapes[name])) for name in names}
    whole = (layout.batch, H, K, V)
    for name, (tensor, shape) in {**wanted, "state": (state, whole), "restart": (restart, whole)}.items():
        if tensor is not None and (tuple(tensor.shape) != shape or tensor.dtype != state.dtype or not tensor.is_cpu):
            raise ArgumentError(
                f"Expected {name} of shape {shape} in {state.dtype} on the CPU, but got {tuple(tensor.shape)} in "
                f"{tensor.dtype} on {tensor.device}. Do not replace a network's parameters by others of another shape, "
                "dtype or device."
            )
    return {
        "element_size": state.element_size(),
        "T": layout.length,
        "B": layout.batch,
        "R": layout.rows,
        "batch_sizes": None if layout.batch_sizes is None else _memory(layout.batch_sizes),
        "resets": None if layout.resets is None else _memory(layout.resets),
        "M": M,
        "heads": H,
        "keys": K,
        "values": V,
        "chunk": _steps(call),
        **rows,
        "gates": gates,
        "start": state,
        "restart": restart,
    }


def _numbers(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with addresses for tensors, whose owner keeps them alive during the call."""
    return {key: value if isinstance(value, int) else _address(value) for key, value in arguments.items()}


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
