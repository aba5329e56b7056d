"""Checks of the public functions: tensors, sizes and options of a call must match. Code below does not check again."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .. import activations
from .._checks import (
    check_choice,
    check_dtype,
    check_integer,
    check_number,
    check_positive,
    check_same,
    check_shape,
    check_tensor,
)
from ..activations import Activation, Name
from ..compact_wy import packed_reflections
from ..errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..layout import SequenceLayout
from . import dispatch
from .call import Call, Kind, Options
from .checkpointing import MODES, segment_length
from .interception import can_be_read
from .projection import is_tokens, stored_dtype

Output = Literal["all", "last"]
OUTPUTS: tuple[str, ...] = get_args(Output)


def check_input(
    x: Tensor, h0: Tensor, n: int, weight_ih: Tensor | None, bias: Tensor | None, batch_sizes: Tensor | None
) -> None:
    """Raise ShapeError or DTypeError unless input, initial state and projection match a state of size n."""
    check_tensor("x", x)
    tokens = is_tokens(x)
    if x.dtype in (torch.bool, torch.uint8) or x.is_complex() or (tokens and weight_ih is None):
        raise DTypeError(
            f"Expected x to be real rows, or tokens of a signed integer dtype together with weight_ih, but got "
            f"{x.dtype}{' without weight_ih' if tokens and weight_ih is None else ''}."
        )
    leading = "(T, B" if batch_sizes is None else "(R"
    wanted = (2 if batch_sizes is None else 1) + (not tokens)
    if x.dim() != wanted:
        raise ShapeError(f"Expected x to have shape {leading}{'' if tokens else ', I'}), but got {tuple(x.shape)}.")
    if weight_ih is not None:
        check_shape("weight_ih", weight_ih, (n, "I"))
    width = n if weight_ih is None else weight_ih.shape[-1]
    if not tokens and x.shape[-1] != width:
        what = "the hidden size" if weight_ih is None else "weight_ih's columns"
        raise ShapeError(f"Expected the last size of x to be {width}, {what}, but got x of shape {tuple(x.shape)}.")
    if bias is not None:
        check_shape("bias", bias, (n,))
    if batch_sizes is None:
        check_shape("h0", h0, (x.shape[1], n))
        return
    check_kind_of_batch_sizes(batch_sizes)
    check_shape("h0", h0, ("B", n))
    if torch.compiler.is_compiling():
        return  # the values are not known while a graph is traced; the kernel checks them when it runs
    check_batch_sizes(batch_sizes, x.shape[0], h0.shape[0])


def check_kind_of_batch_sizes(batch_sizes: Tensor) -> None:
    """Raise ShapeError unless batch_sizes are int64 (T,) on the CPU: kernels read them by address."""
    check_tensor("batch_sizes", batch_sizes)
    if batch_sizes.dim() != 1 or batch_sizes.dtype != torch.int64 or batch_sizes.device.type != "cpu":
        raise ShapeError(
            f"Expected batch_sizes to be an int64 tensor (T,) on the CPU, but got {batch_sizes.dtype} of shape "
            f"{tuple(batch_sizes.shape)} on {batch_sizes.device}. Pack with torch.nn.utils.rnn.pack_padded_sequence."
        )


def check_batch_sizes(batch_sizes: Tensor, rows: int, batch: int) -> None:
    """Raise ShapeError unless the step sizes are positive, never increase, start with `batch` and add up to `rows`."""
    sizes = batch_sizes.tolist()
    falls = all(a >= b for a, b in pairwise(sizes))
    if not falls or (sizes and sizes[-1] < 1) or sum(sizes) != rows or (sizes and sizes[0] != batch):
        shown = f"{sizes[:8]}{'...' if len(sizes) > 8 else ''}"
        raise ShapeError(
            f"Expected batch_sizes to be positive, never grow, start with h0's batch {batch} and add up to the "
            f"{rows} rows of x, but got {shown} with sum {sum(sizes)}. Pack with "
            f"torch.nn.utils.rnn.pack_padded_sequence."
        )


def checked_layout(rows: Tensor, batch_sizes: Tensor | None, batch: int, state: str) -> SequenceLayout:
    """Return the division of rows (T, B, ...), or (R, ...) with batch_sizes, into steps.

    Raises:
        ShapeError: If the initial state, the argument named ``state``, has another batch size.
    """
    if batch_sizes is not None:
        check_kind_of_batch_sizes(batch_sizes)
        if not torch.compiler.is_compiling():  # in a graph the operator checks their values
            check_batch_sizes(batch_sizes, rows.shape[0], batch)
    elif rows.shape[1] != batch:
        raise ShapeError(f"Expected {state} with batch size {rows.shape[1]}, like the input, but got {batch}.")
    return SequenceLayout.of(rows, batch_sizes, batch)


class Resets(NamedTuple):
    """The resets and the state from which sequences restart; None for no resets, and for h_0."""

    reset: Tensor | None = None
    restart: Tensor | None = None


def check_resets(resets: Resets, leading: tuple[int, ...], h0: Tensor, name: str = "h0") -> Resets:
    """Return the resets with the state that they restart from, if there are any.

    Args:
        resets: Same as in the public functions.
        leading: The shape of the mask: (T, B), or (R,) of flat rows.
        h0: The initial state (B, ...).
        name: The caller's name for it.
    """
    if resets.reset is None:
        check_restart_is_used(resets.restart)
        return resets
    check_reset(resets.reset, leading, h0.device)
    if resets.restart is None:
        return Resets(resets.reset, h0)
    check_shape("restart", resets.restart, tuple(h0.shape))
    check_same(name, h0, restart=resets.restart)
    return resets


def check_restart_is_used(restart: object) -> None:
    """Raise ArgumentError if a state to restart from is given without resets."""
    if restart is not None:
        raise ArgumentError(
            "Expected reset together with restart, but got only restart. Pass reset, or leave restart out."
        )


def check_reset(reset: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Raise DTypeError, ShapeError or DeviceError unless the mask is boolean with this shape and on this device."""
    check_tensor("reset", reset)
    if reset.dtype != torch.bool:
        raise DTypeError(f"Expected reset to be boolean, but got {reset.dtype}. Convert it with .bool().")
    if tuple(reset.shape) != tuple(shape):
        raise ShapeError(
            f"Expected reset of shape {tuple(shape)}, one entry per step and sequence, but got {tuple(reset.shape)}. "
            f"Pass True for each step before which a new episode starts."
        )
    if reset.device != device:
        raise DeviceError(f"Expected reset on {device}, as the input is, but got {reset.device}. Move it with .to().")


def check_dt(dt: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Raise DTypeError, ShapeError or DeviceError unless times are real, with this shape and on this device."""
    check_tensor("dt", dt)
    if not dt.is_floating_point():
        raise DTypeError(f"Expected dt in a floating-point dtype, but got {dt.dtype}. Convert it with .double().")
    if tuple(dt.shape) != tuple(shape):
        raise ShapeError(
            f"Expected dt of shape {tuple(shape)}, one time per step and sequence, but got {tuple(dt.shape)}. Pass the "
            f"time since the previous step."
        )
    if dt.device != device:
        raise DeviceError(f"Expected dt on {device}, but got {dt.device}. Move it with .to('{device}').")


def times_of(dt: Tensor) -> Tensor | None:
    """Return times in float64, or None if each is the constant 1, which makes the recurrence the ordinary one.

    Raises:
        ArgumentError: If a time is not positive and finite, as far as values can be read.
    """
    if can_be_read(dt):
        low, high = (float(end) for end in dt.detach().aminmax())
        if not (low > 0 and high < math.inf):
            found = f"values from {low:.9g} to {high:.9g}" if low != high else f"{low:.9g}"
            raise ArgumentError(
                f"Expected dt to be positive and finite, but got {found}. Pass the time since the previous step, and merge "
                f"steps with equal times, for example into their mean."
            )
        if low == high == 1 and not dt.requires_grad:
            return None
    return dt.double()


def check_dense(h0: Tensor, W: Tensor) -> int:
    """Return N if the transition matches the state."""
    check_dtype("h0", h0)
    check_shape("W", W, ("N", "N"))
    n = W.shape[0]
    if W.shape[1] != n:
        raise ShapeError(f"Expected W to be square, but got {tuple(W.shape)}.")
    check_same("h0", h0, W=W)
    return n


def check_compact_wy(h0: Tensor, U: Tensor, c: Tensor | None, s: Tensor | None) -> int:
    """Return N if the reflectors and the base match the state."""
    check_dtype("h0", h0)
    if h0.dim() != 2:
        raise ShapeError(f"Expected h0 to have shape (B, N), but got {tuple(h0.shape)}.")
    n = h0.shape[1]
    check_tensor("U", U)
    if U.dim() == 2:
        check_shape("U", U, (n, "M"))
        if U.shape[1] > n:
            raise ShapeError(f"Expected U to have at most N={n} columns, but got {tuple(U.shape)}.")
    elif U.dim() == 1:
        packed_reflections(n, U.shape[0])
    else:
        raise ShapeError(f"Expected U to be a matrix (N, M) or packed reflectors (P,), but got {tuple(U.shape)}.")
    for name, vector in (("c", c), ("s", s)):
        if vector is not None:
            check_shape(f"B's {name}", vector, (n,))
    check_same("h0", h0, U=U, c=c, s=s)
    return n


def check_memory(memory: str, segment: int | None) -> None:
    """Raise ArgumentError unless ``memory`` is a mode and ``segment`` is None or, with segments, a length."""
    check_choice("memory", memory, MODES)
    if segment is None:
        return
    check_integer("segment", segment, 1)
    if memory == "store":
        raise ArgumentError(
            f"Expected segment only with memory='checkpoint', but got segment={segment} with memory='store'. Use "
            f"memory='checkpoint'."
        )


def settle_memory(call: Call, memory: str, segment: int | None) -> Call:
    """Return the call with its segment length, if it has one."""
    check_memory(memory, segment)
    if memory == "store":
        return call
    if segment is None:
        size = call.size()
        segment = segment_length(size.steps, size.n, size.m or 0)
    return call.changed(options=call.options.changed(segment_length=segment))


def check_gain(gain: float | Tensor, h0: Tensor) -> float | Tensor:
    """Return the gain as a number or as a tensor of shape ()."""
    if isinstance(gain, Tensor):
        check_same("h0", h0, gain=gain)
        if gain.numel() != 1:
            raise ShapeError(f"Expected gain to have one element, but got {tuple(gain.shape)}.")
        return gain.reshape(())
    return check_number("gain", gain)


def _check_stored(x: Tensor, weight_ih: Tensor | None, h0: Tensor) -> None:
    """Raise unless x and V have the dtype and device of h0, or both are bfloat16."""
    rows = None if is_tokens(x) else x
    if stored_dtype(x, weight_ih) != torch.bfloat16:
        check_same("h0", h0, x=rows, weight_ih=weight_ih)
        return
    name, stored = ("x", x) if weight_ih is None else ("weight_ih", weight_ih)
    check_same(name, stored, x=rows)
    check_same("h0", h0, **{name: h0.new_empty(0, device=stored.device)})


def check_activation(activation: Name | Activation, parameter: Tensor | None, n: int) -> Activation:
    """Return phi if it can act on N units and its trainable vector matches."""
    phi = activations.get(activation)
    count = phi.parameter_size(n)
    if parameter is None and count:
        raise ArgumentError(
            f"Expected the trainable vector of {phi.name}, {count} numbers, but got parameter=None. Pass it as "
            f"`parameter`."
        )
    if parameter is not None:
        if not count:
            raise ArgumentError(
                f"Expected no parameter, since {phi.name} has none, but got a tensor of shape {tuple(parameter.shape)}."
            )
        check_shape("parameter", parameter, (count,))
    return phi


def checked_call(
    kind: Kind,
    tensors: tuple[Tensor | None, ...],
    batch_sizes: Tensor | None,
    activation: Name | Activation,
    output: str,
    clip: float | None,
    backend: str,
    resets: Resets,
) -> Call:
    """Return the call of a public function after checking everything that does not depend on values.

    Args:
        kind: Form of the transition.
        tensors: The tensors in the order of `Call.tensors`, except the last.
        resets: The resets and the state to restart from.
        batch_sizes, activation, output, clip, backend: Same as in `orthornn.kernels.dense_rnn`.
    """
    x, weight_ih, bias, h0, weight, c, s, parameter = tensors
    name = "U" if kind == "compact_wy" else "W"
    x, h0, weight = check_tensor("x", x), check_tensor("h0", h0), check_tensor(name, weight)
    n = check_compact_wy(h0, weight, c, s) if kind == "compact_wy" else check_dense(h0, weight)
    check_choice("output", output, OUTPUTS)
    check_input(x, h0, n, weight_ih, bias, batch_sizes)
    check_same("h0", h0, bias=bias, parameter=parameter)
    _check_stored(x, weight_ih, h0)
    phi = check_activation(activation, parameter, n)
    check_choice("backend", backend, dispatch.NAMES)
    options = Options(kind, phi, check_positive("clip", clip), output == "last", backend)
    reset, restart = check_resets(resets, tuple(x.shape[: 2 if batch_sizes is None else 1]), h0)
    layout = SequenceLayout.of(x, batch_sizes, h0.shape[0], reset)
    call = Call(x, weight_ih, bias, h0, weight, c, s, parameter, restart, layout, options)
    if not torch.compiler.is_compiling():  # in a graph the operator chooses, when sizes are known
        dispatch.find(call)
    return call
