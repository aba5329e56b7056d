"""The Triton backend: how its kernels are chosen for a call."""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import shutil
import sysconfig

import torch
from torch import Tensor

from ...call import Call, Size
from ..scan import Scan, ScanBackend, ScanGradients
from . import launch


def interpreted() -> bool:
    """Return whether Triton kernels run on its interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _missing() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing; torch's CUDA builds for Linux include it"
    return None


@functools.cache
def _cannot_launch() -> str | None:
    """Return what Triton lacks to compile the C programs that launch its kernels, or None."""
    given = os.environ.get("CC")
    if not any(shutil.which(name) for name in ([given] if given else ["gcc", "clang"])):
        return "Triton finds no C compiler, with which it builds its launchers; install gcc, or set CC"
    scheme = sysconfig.get_default_scheme()
    scheme = "posix_prefix" if scheme == "posix_local" else scheme  # as Triton does
    header = pathlib.Path(sysconfig.get_paths(scheme)["include"], "Python.h")
    if not header.exists() and not (os.environ.get("CPATH") or os.environ.get("C_INCLUDE_PATH")):
        return f"Triton finds no {header}, with which it builds its launchers; install Python's headers (python3-dev)"
    return None


class TritonBackend(ScanBackend):
    """One launch for the whole loop."""

    name = "triton"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why it cannot run: it needs a CUDA device, or Triton's interpreter."""
        if device.type == "cuda":
            return _missing() or _cannot_launch()
        if device.type == "cpu" and interpreted():
            return _missing()
        return "on a CPU it runs only on Triton's interpreter, for tests (TRITON_INTERPRET=1)"

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why it cannot run a call: W must fit into one multiprocessor, in float32, and rotations need equal
        lengths.
        """
        if dtype != torch.float32:
            return f"it computes in float32, not in {dtype}"
        if size.resets:
            return "it has no resets inside a sequence"
        if size.rotations:
            return "sequences of unequal lengths are not for its kernel of rotations" if size.ragged else None
        if size.m is None and launch.dense_strategy(size.n, size.paired, size.batch) is None:
            return f"the registers of one multiprocessor cannot hold the weights of N={size.n}"
        return None

    def describe(self, size: Size) -> str:
        """Return the strategy, for a reader."""
        if size.m is not None:
            return f"triton: {launch.compact_wy_strategy(size.n, size.m, size.batch).name}"
        strategy = launch.dense_strategy(size.n, size.paired, size.batch)
        assert strategy is not None  # the size is supported
        return f"triton: {strategy.name}"

    def scan(self, call: Call, x: Tensor) -> Scan:
        """Run the loop of the call's kind."""
        if call.options.kind == "rotations":
            from . import rotations

            return Scan(rotations.forward(call, x))
        if call.options.kind == "compact_wy":
            from . import compact_wy

            return Scan(*compact_wy.forward(call, x, _compact_wy_strategy(call)))
        from . import dense

        return Scan(*dense.forward(call, x, _dense_strategy(call)))

    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Run the loop of the call's kind backwards."""
        if call.options.kind == "rotations":
            from . import rotations

            return ScanGradients(*rotations.backward(call, grad, last))
        if call.options.kind == "compact_wy":
            from . import compact_wy

            return ScanGradients(*compact_wy.backward(call, grad, last, saved, _compact_wy_strategy(call)))
        from . import dense

        return ScanGradients(*dense.backward(call, grad, last, saved, _dense_strategy(call)))


def _compact_wy_strategy(call: Call) -> launch.Strategy:
    assert call.factors is not None
    return launch.compact_wy_strategy(call.h0.shape[1], call.factors[0].shape[1], call.layout.batch)


def _dense_strategy(call: Call) -> launch.Strategy:
    strategy = launch.dense_strategy(call.h0.shape[1], call.options.activation.paired, call.layout.batch)
    assert strategy is not None  # `unsupported` has seen to it
    return strategy


TRITON = TritonBackend()
