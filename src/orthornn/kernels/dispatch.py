"""The choice of the backend that runs a call."""

from __future__ import annotations

import functools

import torch

from .._checks import check_choice
from .._warnings import warn
from ..errors import BackendError
from .backends import BACKENDS, CPP, CUDA, GRAPH, REFERENCE, Backend
from .call import Call, Size

NAMES = ("auto", *BACKENDS)
# Below so many steps capturing a graph is not worth its time.
FEW_STEPS = 16


def available(device: torch.device) -> dict[str, str | None]:
    """Return, in order of preference, None for every backend that can run on this device, and the reason for each that
    cannot.
    """
    if device.type == "cpu":  # an emulation is for tests, never chosen
        first = (CPP.name, REFERENCE.name)
        names = [*first, *(name for name in BACKENDS if name not in first)]
    else:
        names = sorted(BACKENDS, key=lambda name: (name == CPP.name and device.type == "cuda", name == REFERENCE.name))
    return {name: BACKENDS[name].unavailable(device) for name in names}


def find(call: Call) -> Backend:
    """Return the backend that runs a call; raise BackendError if the requested backend cannot."""
    name, h0 = call.options.backend, call.h0
    if name == "auto" and h0.is_cpu:
        return _on_cpu()
    return BACKENDS[choose(name, h0.device, h0.dtype, call.size())]


def _on_cpu(used: bool = True) -> Backend:
    """Return the backend of CPU calls. used: Whether a call is about to run, in which case missing kernels are
    reported.
    """
    reason = CPP.unavailable(_CPU)
    if reason is None:
        return CPP
    if used:
        _warn_of_reference(reason)
    return REFERENCE


@functools.cache
def _warn_of_reference(reason: str) -> None:
    """Warn once that calls run without the compiled kernels, and why."""
    warn(
        f"Expected compiled kernels, but {reason}; the recurrences run as a loop of torch operations, up to 200 times "
        f"slower. Run `orthornn doctor` for details. Silence this with warnings.filterwarnings('ignore', "
        f"category=orthornn.errors.OrthornnWarning), or by backend='reference'."
    )


_CPU = torch.device("cpu")


def choose(name: str, device: torch.device, dtype: torch.dtype = torch.float32, size: Size | None = None) -> str:
    """Return the name of the backend that runs a call; raise BackendError if the requested backend cannot.

    Args:
        name: Name of a backend, or "auto".
        device: Device of the call's tensors.
        dtype: Dtype of the state.
        size: Size of the call, or None to ask only whether the backend is available.
    """
    check_choice("backend", name, NAMES)
    if name != "auto":
        backend = BACKENDS[name]
        reason = backend.unavailable(device) or (None if size is None else backend.unsupported(dtype, size))
        if reason is not None:
            raise _cannot_run(name, device, reason)
        return name
    if device.type == "cpu":
        return _on_cpu(size is not None).name
    if device.type != "cuda":
        return REFERENCE.name
    if size is None:
        return next(name for name, reason in available(device).items() if reason is None)
    if CUDA.unavailable(device) is None and CUDA.unsupported(dtype, size) is None:
        return CUDA.name
    # A graph is captured again for every set of lengths, and float64 is for verification.
    worth_a_graph = dtype == torch.float32 and not size.ragged and not size.rotations and size.steps >= FEW_STEPS
    return (GRAPH if worth_a_graph else REFERENCE).name


def choose_compiled(name: str, device: torch.device, otherwise: str) -> str:
    """Return the name of the backend that runs a recurrence with compiled kernels only on the CPU.

    Args:
        name: "auto", "cpp", or another name, which is returned unchanged.
        device: Device of the call's tensors.
        otherwise: Backend for "auto" if the compiled kernels cannot run.

    Raises:
        BackendError: If the compiled kernels were requested and cannot run.
    """
    if name not in ("auto", CPP.name):
        return name
    reason = CPP.unavailable(device)
    if reason is None:
        return CPP.name
    if name == CPP.name:
        raise _cannot_run(name, device, reason)
    return otherwise


def _cannot_run(name: str, device: torch.device, reason: str) -> BackendError:
    return BackendError(f"Expected a backend that can run on {device}, but got {name!r}: {reason}. Use backend='auto'.")


def describe(device: torch.device, size: Size) -> str:
    """Return a description of the backend and the strategy for a float32 call."""
    return BACKENDS[choose("auto", device, torch.float32, size)].describe(size)
