"""The two graphs that are written: a whole sequence, and one step of a stream."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import DTypeError
from ..modules import OrthogonalRNN
from .layers import Recurrence, fold_layers
from .network import Network


class SequenceGraph(nn.Module):
    """The whole sequence: x -> y."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.layers = nn.ModuleList(fold_layers(model.core))
        self.head, self.last = _head(model), model.output == "last"

    def forward(self, x: Tensor) -> Tensor:
        """Return y from x; see the docstring of the module."""
        from torch._higher_order_ops.scan import scan

        count = x.shape[1]
        for layer in self.layers:
            assert isinstance(layer, Recurrence)
            first = layer.first.unsqueeze(1).expand(-1, count, -1).clone()

            def move(state: Tensor, a: Tensor, advance: Callable[..., Tensor] = layer.advance) -> tuple[Tensor, Tensor]:
                state = advance(state, a)
                return state, state[0].clone()

            x = layer.read(x, scan(move, first, layer.project(x))[1])
        return self.head(x[-1] if self.last else x)


class Step(nn.Module):
    """One step of a stream: (x, state) -> (y, state)."""

    state: Tensor

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.layers = nn.ModuleList(fold_layers(model.core))
        self.head = _head(model)
        self.register_buffer("state", torch.cat([layer.first for layer in self.layers]))  # type: ignore[misc]

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return y (B, O) and the next state (S, B, N')."""
        after = []
        for layer, own in zip(self.layers, state.chunk(len(self.layers))):
            assert isinstance(layer, Recurrence)
            own = layer.advance(own, layer.project(x))
            after.append(own)
            x = layer.read(x, own[0])
        return self.head(x), torch.cat(after)


def example(model: Network, T: int, B: int) -> Tensor:
    """Return random input for a model: (T, B, I), or tokens (T, B)."""
    if model.token_classes is not None:
        return torch.randint(model.token_classes, (T, B))
    return torch.randn(T, B, model.core.input_size)


def prepare(model: Network) -> tuple[SequenceGraph, Step, tuple[Tensor, Tensor]]:
    """Return both graphs, and an input (x, state) of one step; DTypeError unless the network is float32."""
    dtype = next(model.head.parameters()).dtype
    if dtype != torch.float32:
        raise DTypeError(f"Expected a float32 network, but got {dtype}. Convert it with .float().")
    model.eval()
    sequence, step = SequenceGraph(model).eval(), Step(model).eval()
    return sequence, step, (example(model, 5, 3), step.state.unsqueeze(1).expand(-1, 3, -1).contiguous())


def _head(model: Network) -> nn.Module:
    """Return the head of [Re h; Im h]: the model's reads Re and Im of each unit side by side."""
    if not (isinstance(model.core, OrthogonalRNN) and model.core.is_complex):
        return model.head
    head: nn.Module = copy.deepcopy(model.head)
    first = head[0] if isinstance(head, nn.Sequential) else head
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.copy_(torch.cat([first.weight[:, 0::2], first.weight[:, 1::2]], 1))
    return head
