"""The CUDA C++ backend.

chain.cu holds W, or U and V, in the registers and shared memory of one multiprocessor; cluster.cu distributes W over a
cluster of multiprocessors; rotations.cu processes pieces of the sequence in parallel.

For compact WY the base B is moved out of the loop; otherwise threads would wait for their partner's unit twice per step:

    forward   h~ = (B'U S')' h,    a = B h - U h~ + x
    backward  C~ = (U S)' d,       dL/dh gains B'd - (B'U) C~.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .... import compact_wy
from ....compact_wy import apply_base_transpose
from ...call import Call, Size
from ..scan import Scan, ScanBackend, ScanGradients, reflected
from . import chain, cluster, nvrtc, recurrence, rotations


@functools.lru_cache(maxsize=1024)
def _least(n: int, m: int | None, batch: int, paired: bool) -> recurrence.Shape | None:
    single = chain.best(n, m or 0)
    if paired or (single is not None and m is not None):
        return single
    shared = cluster.best(n, batch)
    if single is None or shared is None:
        return single or shared
    return shared if shared.cost(batch) < single.cost(batch) else single


def _shape(size: Size) -> recurrence.Shape | None:
    """Return the shape of least cost, for a cluster or for one multiprocessor; None if the weights fit into neither."""
    return _least(size.n, size.m, size.batch, size.paired)


def _of(call: Call) -> recurrence.Shape:
    shape = _shape(call.size())
    assert shape is not None  # `unsupported` has checked it
    return shape


class CudaBackend(ScanBackend):
    """Kernels that NVRTC compiles for each shape."""

    name = "cuda"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why the backend cannot run: it needs a CUDA device and NVRTC."""
        return nvrtc.missing(device) if device.type == "cuda" else "it runs only on CUDA devices"

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why the backend cannot run a call: weights must fit into a multiprocessor or a cluster of them, in float32,
        and rotations need sequences of equal lengths.
        """
        if dtype != torch.float32:
            return f"it computes in float32, not in {dtype}"
        if size.rotations:
            return "its kernel for rotations needs sequences of equal lengths" if size.ragged else None
        if size.m == 0:
            return "it needs at least one reflection"
        if _shape(size) is None:
            words = f"N={size.n}" if size.m is None else f"N={size.n}, M={size.m}"
            pairs = ", as an activation on pairs requires" * size.paired
            return f"no multiprocessor and no cluster of them can hold the weights of {words}{pairs}"
        return None

    def describe(self, size: Size) -> str:
        """Return a description of the kernel's shape."""
        if size.rotations:
            return "cuda: pieces of the sequence in parallel"
        shape = _shape(size)
        assert shape is not None  # the size is supported
        return f"cuda: {shape.describe()}"

    def scan(self, call: Call, x: Tensor) -> Scan:
        """Run the loop on the device."""
        if call.options.kind == "rotations":
            return Scan(rotations.forward(call, x))
        shape = _of(call)
        if call.factors is None:
            states, saved, _ = recurrence.forward(shape, call, x, call.weight.contiguous(), None, None)
            return Scan(states, saved)
        U, S = call.factors
        V = apply_base_transpose(reflected(U, S.mT).mT, call.base).mT.contiguous()
        if shape.m:
            return Scan(*recurrence.forward(shape, call, x, V, U.contiguous(), call.base))
        states, saved, _ = recurrence.forward(shape, call, x, _multiplied_out(call), None, None)
        rows = call.layout.flatten(states).to(U.dtype)
        return Scan(states, saved, (call.layout.previous(rows, call.h0, call.restart) @ V).to(states.dtype))

    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Run the loop backwards on the device."""
        if call.options.kind == "rotations":
            delta, grad_h0, grad_restart = rotations.backward(call, grad, last)
            return ScanGradients(delta, grad_h0, restart=grad_restart)
        shape = _of(call)
        if call.factors is None:
            weight = call.weight.contiguous()
            delta, grad_h0, grad_parameter, _, grad_restart = recurrence.backward(
                shape, call, grad, last, saved, weight, None, None
            )
            return ScanGradients(delta, grad_h0, grad_parameter, restart=grad_restart)
        U, S = call.factors
        into = reflected(U, S)
        if shape.m:
            second = apply_base_transpose(U.mT, call.base).mT.contiguous()
            return ScanGradients(*recurrence.backward(shape, call, grad, last, saved, into, second, call.base))
        delta, grad_h0, grad_parameter, _, grad_restart = recurrence.backward(
            shape, call, grad, last, saved, _multiplied_out(call), None, None
        )
        return ScanGradients(delta, grad_h0, grad_parameter, delta @ into, grad_restart)


def _multiplied_out(call: Call) -> Tensor:
    """Return W (N, N) = (I - U S U') B of compact WY, computed in float64."""
    assert call.factors is not None
    U, S = (factor.double() for factor in call.factors)
    W = torch.eye(U.shape[0], dtype=U.dtype, device=U.device) - U @ S @ U.mT
    base = None if call.base is None else (call.base[0].double(), call.base[1].double())
    return compact_wy.apply_base_transpose(W, base).to(call.h0.dtype)


CUDA = CudaBackend()
