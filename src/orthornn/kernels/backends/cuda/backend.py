"""The CUDA C++ backend (chain.cu): W, or U and V, in registers and shared memory of one multiprocessor (SM).

For compact WY the base B is moved out of the loop, so that no thread waits for its partner's unit twice in a step:

    forward   h~ = (B'U S')' h,    a = B h - U h~ + x
    backward  C~ = (U S)' d,       dL/dh gains B'd - (B'U) C~.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....compact_wy import apply_base_transpose
from ...call import Call, Size
from ..scan import Scan, ScanBackend, ScanGradients, reflected
from . import chain, nvrtc


class CudaBackend(ScanBackend):
    """Kernels that NVRTC compiles for each shape."""

    name = "cuda"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why it cannot run: it needs a CUDA device and NVRTC."""
        return nvrtc.missing(device) if device.type == "cuda" else "it runs only on CUDA devices"

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why it cannot run a call: weights must fit into one multiprocessor, in float32."""
        if size.resets:
            return "it has no resets inside a sequence"
        if size.rotations:
            return "it has no kernel for rotations"
        if dtype != torch.float32:
            return f"it computes in float32, not in {dtype}"
        if size.m == 0:
            return "it needs a reflection at least"
        if chain.best(size.n, size.m or 0) is None:
            words = f"N={size.n}" if size.m is None else f"N={size.n}, M={size.m}"
            return f"one multiprocessor cannot hold the weights of {words}"
        return None

    def describe(self, size: Size) -> str:
        """Return the shape of the kernel, for a reader."""
        shape = chain.best(size.n, size.m or 0)
        assert shape is not None  # the size is supported
        return f"cuda: {shape.describe()}"

    def scan(self, call: Call, x: Tensor) -> Scan:
        """Run the loop on the device."""
        shape = chain.best(call.h0.shape[1], call.num_reflections or 0)
        assert shape is not None
        if call.factors is None:
            states, saved, _ = chain.forward(shape, call, x, call.weight.contiguous(), None, None)
            return Scan(states, saved)
        U, S = call.factors
        V = apply_base_transpose(reflected(U, S.mT).mT, call.base).mT.contiguous()
        return Scan(*chain.forward(shape, call, x, V, U.contiguous(), call.base))

    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Run the loop backwards on the device."""
        shape = chain.best(call.h0.shape[1], call.num_reflections or 0)
        assert shape is not None
        if call.factors is None:
            weight = call.weight.contiguous()
            delta, grad_h0, grad_parameter, _ = chain.backward(shape, call, grad, last, saved, weight, None, None)
            return ScanGradients(delta, grad_h0, grad_parameter)
        U, S = call.factors
        second = apply_base_transpose(U.mT, call.base).mT.contiguous()
        return ScanGradients(*chain.backward(shape, call, grad, last, saved, reflected(U, S), second, call.base))


CUDA = CudaBackend()
