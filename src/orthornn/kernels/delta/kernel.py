"""The delta rule as a kernel of the frames; `run` is its entry. Backends other than the compiled one are plain
torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...layout import SequenceLayout
from ..call import States
from ..dispatch import choose_compiled
from ..frame import Tensors
from ..operators import Like, OperatorKernel, Shapes
from . import chunked, cpp, reference
from .call import DeltaCall

BACKENDS = ("auto", "cpp", "chunked", "reference")


def backend_of(call: DeltaCall) -> str:
    """Return "cpp", "chunked" or "reference"; raise BackendError if the requested backend cannot run."""
    return choose_compiled(call.backend, call.state.device, "chunked")


class _Delta(OperatorKernel[DeltaCall]):
    name = "delta"
    state = DeltaCall._fields.index("state")
    differentiable = DeltaCall._fields.index("layout")

    def is_plain(self, call: DeltaCall) -> bool:
        return backend_of(call) != "cpp"

    def forward(self, call: DeltaCall, save: bool) -> tuple[States, Tensors]:
        return cpp.forward(call, save)

    def backward(self, call: DeltaCall, grad: States, saved: Tensors, needs: Sequence[bool]) -> Tensors:
        (marks,) = saved
        assert marks is not None
        return cpp.backward(call, grad, marks, needs)

    def plain(self, call: DeltaCall) -> States:
        if call.layout.length == 0:
            # Of every tensor nothing, but the graph of any other sequence.
            rows = torch.cat([t[:0].flatten() for t in call.tensors() if t is not None]).to(call.state.dtype)
            return States(rows.view(*call.layout.shape(call.shape[1]), call.shape[3]), call.state + rows.sum())
        return (reference if call.backend == "reference" else chunked).forward(call)

    def read(self, tensors: Tensors, others: Tensors, layout: SequenceLayout, spec: str) -> DeltaCall:
        return DeltaCall(*tensors, layout, spec)  # type: ignore[arg-type, call-arg]

    def shapes(self, call: DeltaCall) -> Shapes:
        state, (_, H, _, V), dtype = call.state, call.shape, call.state.dtype
        marks = Like((cpp.stored(call), *state.shape), dtype)
        return Shapes(Like((*call.layout.shape(H), V), dtype), Like(tuple(state.shape), dtype), (marks,), False)


run = _Delta().run
