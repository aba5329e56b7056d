"""Checks at the public boundary: what was expected, what was received, what to do."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, NonFiniteError, ShapeError

REAL_DTYPES = (torch.float32, torch.float64)


def check_choice(name: str, value: object, allowed: Collection[str]) -> str:
    """Return `value` if it is one of `allowed`, else raise ArgumentError with the allowed name that it resembles."""
    if isinstance(value, str) and value in allowed:
        return value
    choices = list(allowed)
    known = {choice.lower(): choice for choice in reversed(choices)}
    shown, hint = repr(value), ""
    if isinstance(value, str):
        near = difflib.get_close_matches(value.lower(), known, n=1)
        hint = f" Did you mean {known[near[0]]!r}?" if near else ""
    elif callable(value):  # such as torch.tanh, torch.nn.Tanh or torch.nn.Tanh()
        own = getattr(value, "__name__", type(value).__name__)
        module = isinstance(value, torch.nn.Module)
        shown = f"the {'module' if module else 'class' if isinstance(value, type) else 'function'} {own}"
        hint = f" Pass its name, {known[own.lower()]!r}." if own.lower() in known else " Pass a name."
    kind = ArgumentError if isinstance(value, str) else ArgumentTypeError
    raise kind(f"Expected {name} to be one of {', '.join(map(repr, choices))}, but got {shown}.{hint}")


def check_integer(name: str, value: object, low: int, high: int | None = None, advice: str = "") -> int:
    """Return `value` if it is an int in [low, high] (bool is not), else raise ArgumentError or ArgumentTypeError."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and low <= value and (high is None or value <= high):  # type: ignore[operator]
        return value  # type: ignore[return-value]
    needed = f"an integer of at least {low}" if high is None else f"an integer between {low} and {high}"
    kind = ArgumentError if is_integer else ArgumentTypeError
    raise kind(f"Expected {name} to be {needed}, but got {value!r}.{' ' + advice if advice else ''}")


def check_number(name: str, value: object, low: float = -math.inf, high: float = math.inf, advice: str = "") -> float:
    """Return `value` as a float if it is finite and in [low, high], else raise ArgumentError or ArgumentTypeError."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and is_finite(value) and low <= value <= high:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    if low == -math.inf and high == math.inf:
        needed = "a finite number"
    elif high == math.inf:
        needed = f"a finite number of at least {low:g}"
    else:
        needed = f"a number between {low:g} and {high:g}"
    kind = ArgumentError if is_number else ArgumentTypeError
    raise kind(f"Expected {name} to be {needed}, but got {value!r}.{' ' + advice if advice else ''}")


def check_float32(name: str, value: object, advice: str, zero: bool = True) -> float:
    """Return `value` as a float if it is a positive number that float32 holds in full precision, or 0 if it may be; else
    raise ArgumentError or ArgumentTypeError. advice: What to do, as a sentence.
    """
    number = check_number(name, value, 0, advice=advice)
    low, high = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    if low <= number <= high or (zero and number == 0):
        return number
    needed = f"{'0 or' if zero else 'positive,'} between {low:.3g} and {high:.3g} as float32 holds it"
    raise ArgumentError(f"Expected {name} to be {needed}, but got {value!r}. {advice}")


def check_below_1(name: str, value: object, why: str) -> float:
    """Return `value` as a float if it is in [0, 1), else raise ArgumentError or ArgumentTypeError. why: 1 is excluded."""
    number = check_number(name, value, 0, 1)
    if number < 1:
        return number
    raise ArgumentError(f"Expected {name} to be below 1, but got {value!r}. {why} Lower it.")


def is_finite(value: object) -> bool:
    """Return whether a number is finite as a float: a whole number of a thousand digits is not."""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


def check_flag(name: str, value: object) -> bool:
    """Return `value` if it is True or False, else raise ArgumentTypeError: a string such as "no" would count as true."""
    if isinstance(value, bool):
        return value
    raise ArgumentTypeError(f"Expected {name} to be True or False, but got {value!r}.")


def check_tensor(
    name: str, value: object, advice_on_parts: str = "Pass one tensor: torch.stack(parts) if all have the same shape."
) -> Tensor:
    """Return `value`; raise ArgumentTypeError unless it is a tensor neither nested nor sparse: kernels read every entry.
    advice_on_parts: What to do instead of passing a list or tuple of tensors.
    """
    if not isinstance(value, Tensor):
        if isinstance(value, torch.fx.Proxy):
            advice = " Trace with a torch.fx.Tracer whose is_leaf_module is True for this module, or use torch.export."
        elif type(value) in (list, tuple) and any(isinstance(part, Tensor) for part in value):  # type: ignore[attr-defined]
            advice = f" {advice_on_parts}"
        else:
            advice = " Pass torch.as_tensor of it." if hasattr(value, "__array__") or isinstance(value, list) else ""
        raise ArgumentTypeError(f"Expected {name} to be a tensor, but got {type(value).__name__}.{advice}")
    if value.is_nested:
        raise ArgumentTypeError(
            f"Expected {name} to have one size in each dimension, but got a nested tensor. Pack its parts with "
            f"torch.nn.utils.rnn.pack_sequence(parts, enforce_sorted=False), or pad them."
        )
    if value.layout != torch.strided:
        raise ArgumentTypeError(f"Expected {name} to be dense, but got {value.layout}. Convert it with .to_dense().")
    return value


def check_module(name: str, value: object) -> None:
    """Raise ArgumentTypeError unless `value` is a torch.nn.Module."""
    if not isinstance(value, torch.nn.Module):
        raise ArgumentTypeError(f"Expected {name} to be a torch.nn.Module, but got {type(value).__name__}.")


def check_callable(name: str, value: object) -> None:
    """Raise ArgumentTypeError unless `value` can be called."""
    if not callable(value):
        raise ArgumentTypeError(f"Expected {name} to be a function, but got {type(value).__name__}.")


def check_positive(name: str, value: object) -> float | None:
    """Return `value` as a float if it is a positive number, None if it is None, else raise ArgumentError."""
    if value is None:
        return None
    number = check_number(name, value, advice="Pass None for no limit.")
    if number > 0:
        return number
    raise ArgumentError(f"Expected {name} to be a positive number or None, but got {value!r}.")


def check_factory(device: object, dtype: object) -> None:
    """Raise unless parameters can be made on `device` (None: torch's default) in the real `dtype` (None: the default)."""
    if dtype is not None:
        if not isinstance(dtype, torch.dtype):
            raise ArgumentTypeError(
                f"Expected dtype to be a torch.dtype, but got {dtype!r}. Pass torch.float32, for example."
            )
        if not dtype.is_floating_point:
            advice = "For a complex state pass a parametrization with field='complex'."
            raise DTypeError(
                f"Expected dtype to be real and floating-point, but got {dtype}. "
                f"{advice if dtype.is_complex else 'Pass torch.float32, for example.'}"
            )
    if device is None or isinstance(device, torch.device):
        return
    if not isinstance(device, (str, int)) or isinstance(device, bool):
        raise ArgumentTypeError(
            f"Expected device to be a torch.device or its name, but got {device!r}. Pass 'cpu', for example."
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"Expected a device that torch can use here, but got {device!r}: {error}") from None


def check_shape(name: str, tensor: Tensor, shape: Sequence[int | str], advice: str = "") -> None:
    """Raise ShapeError unless `tensor` has this shape; a string entry names a size that may be anything. advice: What to
    do, as a sentence.

    Raises ArgumentTypeError unless it is a dense tensor.
    """
    check_tensor(name, tensor)
    found = tensor.shape
    if found == shape:  # asked first, in a tenth of the time
        return
    if len(found) != len(shape) or not all(isinstance(want, str) or have == want for have, want in zip(found, shape)):
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ShapeError(
            f"Expected {name} to have shape ({wanted}), but got {tuple(tensor.shape)}.{' ' + advice if advice else ''}"
        )


def check_dtype(name: str, tensor: Tensor, allowed: Sequence[torch.dtype] = REAL_DTYPES) -> None:
    """Raise DTypeError unless the dtype of `tensor` is one of `allowed`, ArgumentTypeError unless it is a dense tensor."""
    check_tensor(name, tensor)
    if tensor.dtype not in allowed:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise DTypeError(
            f"Expected {name} to be {names}, but got {str(tensor.dtype).removeprefix('torch.')}. "
            f"Convert it with .to(torch.{str(allowed[0]).removeprefix('torch.')})."
        )


def check_same(reference_name: str, reference: Tensor, **others: Tensor | None) -> None:
    """Raise DTypeError or DeviceError unless every tensor has the dtype and the device of `reference`.

    Raises ArgumentTypeError unless all are dense tensors; None means that the tensor was not given.
    """
    check_tensor(reference_name, reference)
    dtype, device = reference.dtype, reference.device
    for name, tensor in others.items():
        if tensor is None:
            continue
        check_tensor(name, tensor)
        if tensor.dtype != dtype:
            raise DTypeError(
                f"Expected {name} in {dtype}, the dtype of {reference_name}, but got {tensor.dtype}. "
                f"Convert one of them with .to()."
            )
        if tensor.device != device:
            raise DeviceError(
                f"Expected {name} on {device}, the device of {reference_name}, but got {tensor.device}. "
                f"Move both to one device with .to()."
            )


def is_captured(tensor: Tensor) -> bool:
    """Return whether operations on a tensor are being recorded into a CUDA graph: the host may not read its values."""
    return tensor.is_cuda and not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing()


def is_transformed() -> bool:
    """Return whether a torch.func transform or forward-mode differentiation is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_plain_eager() -> bool:
    """Return whether tensors made now are ordinary ones that may be cached: no graph, mode or transform is recording."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack() > 0
    return not (recorded or is_transformed())


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise NonFiniteError, naming the first place, if `tensor` holds a NaN or an infinity.

    Raises ArgumentTypeError unless it is a dense tensor, DeviceError if it is on meta.
    """
    check_tensor(name, tensor)
    if tensor.is_meta:
        raise DeviceError(f"Expected {name} to have values, but it is on meta. Move it to a device with to_empty().")
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        bad = (~finite).nonzero()
        raise NonFiniteError(
            f"Expected {name} to be finite, but {len(bad)} of its {tensor.numel()} entries are not, "
            f"the first at index {tuple(bad[0].tolist())}."
        )
