"""Traces of the computation inside a sequence kernel; hooks see only its arguments and its result.

While a network is traced, its layers project their inputs outside the kernel. The projected input x_t enters the kernel
as a summand of the pre-activation a_t, so the gradient of x_t is dL/da_t, and the gradient of the kernel's result is
the part of dL/dh_t that comes from above: dL/dh_t = (from above) + gain W' dL/da_{t+1}. Nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _every  # where the hooks for all modules are

from ..activations import Activation
from ..kernels.interception import no_autocast
from ..layout import SequenceLayout


class TracedLayer(Protocol):
    """The interface of a traced layer: W on the real state, and the gain."""

    gain: float | Tensor

    def matrix(self) -> Tensor:
        """Return W (N, N)."""
        ...


@dataclass(frozen=True)
class LayerTrace:
    """One layer and direction over one sequence, in the order in which it reads it; real (embedded if complex).

    phi: The activation between a_t and h_t, with its parameter; the identity if the transition is linear.
    projected: V x_t + b, or phi of it if the transition is linear; (T, B, N) or flat rows (R, N). Its gradient is
        dL/da_t.
    h0: (B, N). states: h_t, like projected. layout: The division of the rows into steps.
    restart: The state (B, N) that replaces h_{t-1} at the resets of the layout, or None.

    Under autocast, projected inputs and states are bfloat16; values computed from them have the dtype of h0 and W.
    """

    layer: TracedLayer
    phi: tuple[Activation, Tensor | None]
    projected: Tensor
    h0: Tensor
    states: Tensor
    layout: SequenceLayout
    restart: Tensor | None = None

    def backward_through_W(self, delta: Tensor) -> Tensor:
        """Return gain W' delta for every row of delta = dL/da, which W passes from a_t to h_{t-1}; zero if t is a
        reset.

        delta: Like projected; it may lack the first steps.
        """
        W = self.layer.matrix()
        with no_autocast(W):
            carried = self.layer.gain * (delta.to(W.dtype) @ W)
        resets = self.resets(carried)
        return carried if resets is None else torch.where(resets.unsqueeze(-1), torch.zeros_like(carried), carried)

    def resets(self, rows: Tensor) -> Tensor | None:
        """Return the mask of resets for rows (T, B, ...) or (R, ...) that may lack the first steps; None without
        resets.
        """
        if self.layout.resets is None:
            return None
        resets = self.layout.unflatten(self.layout.resets)
        return resets[resets.shape[0] - rows.shape[0] :]

    def previous(self) -> Tensor:
        """Return h_{t-1} for every row: (T, B, N). Flat rows are not supported."""
        layout, states = self.layout, self.states.to(self.h0.dtype)
        return layout.unflatten(layout.previous(layout.flatten(states), self.h0, self.restart))

    def preactivations(self) -> Tensor:
        """Return a_t (T, B, N), computed from the states. Flat rows are not supported."""
        with no_autocast(self.h0):
            return self.projected + self.layer.gain * (self.previous() @ self.layer.matrix().mT)


@contextmanager
def tracing(networks: Mapping[str, nn.Module]) -> Iterator[dict[str, list[LayerTrace]]]:
    """Yield a dictionary in which each network records its layers and directions, one LayerTrace each, in the order of
    `layers()`.

    networks: By any name; the records have the same names. A network that is called twice records twice. Inside another
    context, the inner one takes the records of its networks until it ends. Code compiled by torch.compile runs eagerly
    in this context: a tensor that leaves a graph has no gradient from other tensors that leave it.
    """
    notes: dict[str, list[LayerTrace]] = {name: [] for name in networks}
    before = {name: getattr(network, "_traces", None) for name, network in networks.items()}
    for name, network in networks.items():
        network._traces = notes[name]  # type: ignore[assignment]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield notes
    finally:
        for name, network in networks.items():
            _restore(network, before[name])


def is_watched(module: Any, kind: type[nn.Module]) -> bool:
    """Return whether something must see the call of a network, so no shortcut may replace it: a trace, a hook of a
    module or of all modules, or the forward() of a subclass of `kind`.
    """
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    of_all = (
        _every._global_forward_hooks,
        _every._global_forward_pre_hooks,
        _every._global_backward_hooks,
        _every._global_backward_pre_hooks,
    )
    replaced = "forward" in vars(module) or type(module).forward is not kind.forward
    return replaced or getattr(module, "_traces", None) is not None or any(own) or any(of_all)


def _restore(network: Any, traces: list[LayerTrace] | None) -> None:
    if traces is None:
        network.__dict__.pop("_traces", None)
    else:
        network._traces = traces
