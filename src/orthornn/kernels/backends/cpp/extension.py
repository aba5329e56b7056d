"""The compiled extension orthornn._native, if it exists, and its properties."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from ....errors import BackendError

# What bindings.cpp calls `interface`: an extension built from other sources than these must not be called.
INTERFACE = 11
_REASON: str | None = None
try:
    native: Any = importlib.import_module("orthornn._native")
except ImportError as error:  # a source tree or a wheel without the compiled extension
    native = None
    _REASON = f"the compiled extension orthornn._native is missing ({error}); install with a C++20 compiler to build it"
else:
    if getattr(native, "interface", None) != INTERFACE:
        native = None
        _REASON = "the compiled extension was built from other sources; reinstall the package to rebuild it"


def missing() -> str | None:
    """Return why the compiled kernels cannot run here, or None if they can."""
    return _REASON


class Build(NamedTuple):
    """The compiled kernels on this machine: the instruction set in use, the usable ones, the OpenMP runtime with its
    threads.
    """

    isa: str
    usable: tuple[str, ...]
    threading_runtime: str | None


def build() -> Build | None:
    """Return the built and selected kernels, or None if there are no compiled kernels.

    Raises:
        BackendError: If ORTHORNN_ISA requests an instruction set that is not available.
    """
    if native is None:
        return None
    try:
        return Build(native.isa(), tuple(native.supported_isas()), native.threading_runtime())
    except RuntimeError as error:
        raise BackendError(str(error)) from error
