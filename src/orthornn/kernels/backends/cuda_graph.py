"""A chain of plain torch operations as a CUDA graph: one launch for all its kernels, replayed on copies of its inputs.

This serves dense transitions that no single multiprocessor can hold: each step is one cuBLAS product and the
activation. The first call with each shape captures a graph (a few times the cost of a plain loop). The latest CAPTURED
graphs are cached with their buffers, which take the memory of one call each.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from ..call import Call, Size
from . import tf32
from .reference.backend import REFERENCE
from .scan import Scan, ScanBackend, ScanGradients

CAPTURED = 6  # forward and backward of a whole segment and of a shorter last one, of two layers or so

Outputs = tuple[Tensor | None, ...]


class _Captured:
    """A captured function. `stream`: Stream for warm-up and capture, on the device of the tensors."""

    def __init__(
        self, function: Callable[..., Outputs], tensors: tuple[Tensor | None, ...], stream: torch.cuda.Stream
    ) -> None:
        with torch.inference_mode(False), torch.no_grad():  # training could not write to inference tensors
            self.inputs = tuple(None if t is None else t.clone() for t in tensors)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # library handles and workspaces are made before the capture
            function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Without a stream, torch reuses its first capture stream, even if that is on another device.
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.outputs = function(*self.inputs)

    def replay(self, tensors: tuple[Tensor | None, ...]) -> Outputs:
        for static, given in zip(self.inputs, tensors):
            if static is not None and given is not None:
                static.copy_(given)
        self.graph.replay()
        return tuple(None if t is None else t.clone() for t in self.outputs)


class _Device:
    """The stream in which all graphs of one device are captured, and an event after its latest replay.

    Replays run one after another, even from different streams: a graph has one set of inputs, and all graphs share the
    cuBLAS workspace of the capture stream.
    """

    def __init__(self) -> None:
        self.stream, self.replayed = torch.cuda.Stream(), torch.cuda.Event()


_devices: dict[torch.device, _Device] = {}
_graphs: OrderedDict[Hashable, _Captured] = OrderedDict()
_lock = threading.Lock()  # backward passes run in autograd's threads


def _settings() -> Hashable:
    """Return the settings that a capture makes permanent: the arithmetic and the algorithms that cuBLAS uses."""
    return tf32.allowed(), torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.preferred_blas_library()


@torch.no_grad()
def run(function: Callable[..., Any], tensors: tuple[Tensor | None, ...], key: Hashable) -> Any:
    """Run function(*tensors). Replay it if it was captured before with tensors of these shapes, the same key, and the
    same torch settings.

    Inside another capture the function is called directly.
    """
    device = next(t for t in tensors if t is not None).device
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return function(*tensors)
        shapes = tuple(None if t is None else (tuple(t.shape), t.dtype) for t in tensors)
        full_key = (device, key, _settings(), shapes)
        with _lock:
            if device not in _devices:
                _devices[device] = _Device()
            own, stream = _devices[device], torch.cuda.current_stream()
            stream.wait_event(own.replayed)
            if full_key not in _graphs:
                if len(_graphs) >= CAPTURED:
                    for one in _devices.values():
                        one.replayed.synchronize()  # the buffers of the oldest may be in use
                    _graphs.popitem(last=False)
                given = tuple(t if t is None else t.contiguous() for t in tensors)
                _graphs[full_key] = _Captured(function, given, own.stream)
            _graphs.move_to_end(full_key)
            outputs = _graphs[full_key].replay(tensors)
            own.replayed.record(stream)
        return outputs


class GraphBackend(ScanBackend):
    """The reference's loops, captured as graphs."""

    name = "graph"

    def unavailable(self, device: torch.device) -> str | None:
        """Return why the backend cannot run: it needs a CUDA device."""
        return None if device.type == "cuda" else "it runs only on CUDA devices"

    def unsupported(self, dtype: torch.dtype, size: Size) -> str | None:
        """Return why the backend cannot run a call: it does not support rotations."""
        return "it has no kernel for rotations" if size.rotations else None

    def describe(self, size: Size) -> str:
        """Return a description of the captured operations."""
        return "graph: one cuBLAS product per step, in a CUDA graph"

    def scan(self, call: Call, x: Tensor) -> Scan:
        """Replay the forward loop."""
        own = _own(call)
        key = ("forward", call.options, call.layout.key)
        return Scan(*run(lambda x, *own: tuple(REFERENCE.scan(_with(call, own), x)), (x, *own), key))

    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Replay the backward loop."""
        own = _own(call)
        key = ("backward", call.options, call.layout.key, last)

        def loop(grad: Tensor, saved: Tensor, *own: Tensor | None) -> Outputs:
            return tuple(REFERENCE.scan_backward(_with(call, own), grad, last, saved))

        return ScanGradients(*run(loop, (grad, saved, *own), key))


def _own(call: Call) -> tuple[Tensor | None, ...]:
    """Return the tensors of a call that a graph reads in addition to the rows."""
    factors = call.factors or (None, None)
    return (call.h0, call.weight, call.c, call.s, call.parameter, *factors, call.restart, call.layout.resets)


def _with(call: Call, own: tuple[Tensor | None, ...]) -> Call:
    """Return the call with the tensors that a graph holds."""
    h0, weight, c, s, parameter, U, S, restart, resets = own
    assert h0 is not None
    assert weight is not None
    factors = None if U is None or S is None else (U, S)
    layout = call.layout.between(resets)
    return call._replace(
        h0=h0, weight=weight, c=c, s=s, parameter=parameter, factors=factors, restart=restart, layout=layout
    )


GRAPH = GraphBackend()
