"""The launches of chain.cu and cluster.cu, which take the same arguments."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch
from torch import Tensor

from ....compact_wy import Base
from ...call import Call
from . import chain, cluster, nvrtc
from .ragged import device_layout

Shape = chain.Shape | cluster.Shape


class Arguments(nvrtc.Arguments):
    """struct Arguments of recurrence.cuh."""

    _fields_: ClassVar = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("x", "h0", "saved_rows", "first", "second", "c", "s", "parameter"),
                *("states", "saved", "h_tilde", "delta", "C_tilde", "grad_h0", "grad_parameter", "resets", "restart"),
                *("grad_restart", "offsets", "lengths"),
            )
        ),
        ("steps", ctypes.c_int),
        ("batch", ctypes.c_int),
        ("slope", ctypes.c_float),
        ("clip", ctypes.c_float),
    ]


def _macros(shape: Shape, stored: torch.dtype, call: Call, base: Base, last: bool = False) -> dict[str, int]:
    activation = call.options.activation
    return shape.macros | {
        "CODE": activation.code,
        "UNIT": activation.parameter == "unit",
        "PAIR": activation.parameter == "pair",
        "KEEP": activation.reads == "preactivation",
        "BASE": base is not None,
        "PACKED": call.layout.is_ragged,
        "RESETS": call.layout.resets is not None,
        "LAST": last,
        "CLIP": call.options.clip is not None,
        "HALVED": stored == torch.bfloat16,
    }


def _vector(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def forward(
    shape: Shape, call: Call, x: Tensor, first: Tensor, second: Tensor | None, base: Base
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return states (R, N), pre-activations (R, N) if phi' reads them, and h~ (R, M).

    Args:
        shape: Shape of the kernel.
        call: The call.
        x: Projected rows (R, N).
        first: W, or V in compact WY form.
        second: U in compact WY form, or None.
        base: (c, s) in compact WY form, or None.
    """
    layout, activation = call.layout, call.options.activation
    x, h0, parameter = x.contiguous(), call.h0.contiguous(), _vector(call.parameter)
    states, h_tilde = x.new_empty(layout.shape(shape.n)), x.new_empty(layout.rows, shape.m)
    saved = torch.empty_like(x) if activation.reads == "preactivation" else None
    if layout.length and layout.batch:
        offsets, lengths = device_layout(layout, h0.device)
        c, s = map(_vector, base or (None, None))
        macros = _macros(shape, x.dtype, call._replace(options=call.options._replace(clip=None)), base)
        nvrtc.load(shape.program, macros, shape.bytes, h0.device).launch(
            "forward",
            (shape.blocks(layout.batch), 1, 1),
            Arguments.of(
                x=x,
                h0=h0,
                first=first,
                second=second,
                c=c,
                s=s,
                parameter=parameter,
                states=states,
                saved=saved,
                h_tilde=h_tilde,
                resets=_vector(layout.resets),
                restart=_vector(call.restart),
                offsets=offsets,
                lengths=lengths,
                steps=layout.length,
                batch=layout.batch,
                slope=activation.slope,
            ),
        )
    return states, saved, h_tilde


def backward(
    shape: Shape,
    call: Call,
    grad: Tensor,
    last: bool,
    saved: Tensor,
    first: Tensor,
    second: Tensor | None,
    base: Base,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter, C~ (R, M) and dL/drestart (B, N).

    The arguments grad and saved are the same as in the reference.
    """
    layout, options = call.layout, call.options
    grad, saved, parameter = grad.to(saved.dtype).contiguous(), saved.contiguous(), _vector(call.parameter)
    delta, C_tilde = first.new_empty(saved.shape), first.new_empty(layout.rows, shape.m)
    grad_restart = None if call.restart is None else first.new_zeros(layout.batch, shape.n)
    if not (layout.length and layout.batch):
        grad_h0 = grad.to(first.dtype, copy=True) if last else first.new_zeros(layout.batch, shape.n)
        return delta, grad_h0, None if parameter is None else torch.zeros_like(parameter), C_tilde, grad_restart
    grad_h0 = first.new_empty(layout.batch, shape.n)
    grad_parameter = None if parameter is None else first.new_empty(layout.batch, parameter.shape[0])
    offsets, lengths = device_layout(layout, saved.device)
    c, s = map(_vector, base or (None, None))
    macros = _macros(shape, saved.dtype, call, base, last)
    nvrtc.load(shape.program, macros, shape.bytes, saved.device).launch(
        "backward",
        (shape.blocks(layout.batch), 1, 1),
        Arguments.of(
            x=grad,
            saved_rows=saved,
            first=first,
            second=second,
            c=c,
            s=s,
            parameter=parameter,
            delta=delta,
            C_tilde=C_tilde,
            grad_h0=grad_h0,
            grad_parameter=grad_parameter,
            resets=_vector(layout.resets),
            grad_restart=grad_restart,
            offsets=offsets,
            lengths=lengths,
            steps=layout.length,
            batch=layout.batch,
            slope=options.activation.slope,
            clip=options.clip,
        ),
    )
    return delta, grad_h0, None if grad_parameter is None else grad_parameter.sum(dim=0), C_tilde, grad_restart
