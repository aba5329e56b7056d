"""Detection of the autograd machinery that is active around a kernel call.

The backward pass of a kernel serves plain reverse mode. torch.func transforms (grad, vmap, jvp, ...), forward-mode
automatic differentiation and higher derivatives need every operation in between, so they use the reference recurrence
in plain torch, which is slower but correct.

A dispatch mode or a tensor subclass (make_fx, FakeTensorMode, FlopCounterMode, selective checkpointing) must see the
operations. It gets the custom operators, since compiled code that reads addresses is invisible to it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .._checks import is_captured, is_plain_eager
from ..errors import TransformError


def is_observed(*tensors: Tensor | None) -> bool:
    """Return whether more than autograd observes a call: a graph, a transform, a dispatch mode or a tensor subclass."""
    return not is_plain_eager() or is_intercepted(*tensors)


def refuse_clip(clip: float | None) -> None:
    """Raise TransformError if entries of dL/da_t are clipped and the backward pass is not the kernel's."""
    if clip is not None:
        raise TransformError(
            f"Expected no clip under torch.func transforms, forward mode and higher derivatives, which are meaningless with "
            f"it, but got {clip}: clipping changes the backward pass. Pass clip=None (clip_backward=None)."
        )


def can_be_read(values: Tensor) -> bool:
    """Return whether a check may read values: they exist, and no graph, CUDA graph, dispatch mode or vmap is
    recording.
    """
    if values.is_meta or torch.compiler.is_compiling() or values.numel() == 0:
        return False
    if is_captured(values) or is_intercepted(values):
        return False
    if not torch._C._are_functorch_transforms_active():
        return True
    while torch._C._functorch.is_functorch_wrapped_tensor(values):
        if torch._C._functorch.is_batchedtensor(values):
            return False
        values = torch._C._functorch.get_unwrapped(values)
    return True


def is_autocast(tensor: Tensor) -> bool:
    """Return whether autocast is active for the device of a tensor; meta tensors have no autocast."""
    if tensor.is_cpu:  # asked before the name of its device, which torch spells anew each time
        return torch.is_autocast_enabled("cpu")
    return not tensor.is_meta and torch.is_autocast_enabled(tensor.device.type)


def no_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products keep their precision; meta tensors have no autocast.

    What is recorded now may run inside autocast later, and keeps the context even outside.
    """
    recorded = not is_plain_eager() or torch._C._is_torch_function_mode_enabled()
    if tensor.is_meta or not (recorded or is_autocast(tensor)):
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def is_intercepted(*tensors: Tensor | None) -> bool:
    """Return whether a dispatch mode is active, or one of the tensors dispatches itself."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    return not _PLAIN.issuperset(map(type, tensors)) and any(_dispatches(type(t)) for t in tensors)


_PLAIN = {Tensor, torch.nn.Parameter, type(None)}


def _dispatches(kind: type) -> bool:
    return kind not in _PLAIN and (
        getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl
    )
