"""The recurrent layers of a network, folded: one product and one activation a step, or torch's gates."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..activations import Activation
from ..errors import ArgumentError
from ..modules import OrthogonalBlocks, OrthogonalRNN


class Recurrence(nn.Module):
    """One folded layer: `project` for a whole sequence at once, then `advance` step by step on (S, B, N')."""

    weight: Tensor
    bias: Tensor
    first: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, first: Tensor) -> None:
        super().__init__()
        for name, tensor in {"weight": weight, "bias": bias, "first": first}.items():
            self.register_buffer(name, tensor.detach().clone().contiguous())

    def project(self, x: Tensor) -> Tensor:
        """Return V x + b of (..., I), or of tokens (...,)."""
        return (F.linear(x, self.weight) if x.is_floating_point() else F.embedding(x, self.weight.mT)) + self.bias

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Return the state (S, B, N') after a step with projected input a."""
        raise NotImplementedError

    def read(self, x: Tensor, h: Tensor) -> Tensor:
        """Return the layer's output from its input and its state h (..., N')."""
        return h


class Plain(Recurrence):
    """h = phi(W h + a), or W h + phi(a) where the transition is linear."""

    W: Tensor
    parameter: Tensor

    def __init__(
        self, W: Tensor, phi: Activation, parameter: Tensor | None, *rest: Tensor, linear: bool = False
    ) -> None:
        super().__init__(*rest)
        self.linear = linear
        self.phi, self.has_parameter = phi, parameter is not None
        self.register_buffer("W", W.detach().clone().contiguous())
        self.register_buffer("parameter", torch.zeros(0) if parameter is None else parameter.detach().clone())

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Advance the state by one product and phi."""
        parameter, carried = self.parameter if self.has_parameter else None, F.linear(state[0], self.W)
        after = carried + self.phi(a, parameter) if self.linear else self.phi(carried + a, parameter)
        return after.unsqueeze(0)


class Gated(Recurrence):
    """torch's LSTM, with state (h, c), and GRU."""

    W: Tensor
    inner: Tensor

    def __init__(self, kind: str, W: Tensor, inner: Tensor, *rest: Tensor) -> None:
        super().__init__(*rest)
        self.kind = kind
        self.register_buffer("W", W.detach().clone())
        self.register_buffer("inner", inner.detach().clone())

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Advance the state by the gates, in torch's order."""
        recurrent = F.linear(state[0], self.W) + self.inner
        if self.kind == "LSTM":
            i, f, g, o = (a + recurrent).chunk(4, -1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return torch.stack([o.sigmoid() * c.tanh(), c])
        (r, z, n), (hr, hz, hn) = a.chunk(3, -1), recurrent.chunk(3, -1)
        z = (z + hz).sigmoid()
        return ((1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * state[0]).unsqueeze(0)


class Block(Plain):
    """A block of OrthogonalBlocks: the recurrence reads norm(x), and the output is skip(x) + mix(h)."""

    def __init__(self, recurrence: Plain, norm: nn.Module | None, mix: nn.Module, skip: nn.Module | None) -> None:
        phi, parameter = recurrence.phi, recurrence.parameter if recurrence.has_parameter else None
        super().__init__(recurrence.W, phi, parameter, recurrence.weight, recurrence.bias, recurrence.first)
        self.norm, self.mix, self.skip = norm, mix, skip
        self.requires_grad_(False)  # a scan after what requires a gradient is not translated to ONNX

    def project(self, x: Tensor) -> Tensor:
        """Return V norm(x) + b."""
        return super().project(x if self.norm is None else self.norm(x))

    def read(self, x: Tensor, h: Tensor) -> Tensor:
        """Return skip(x) + mix(h)."""
        out = self.mix(h)
        if self.skip is None:
            return out
        if isinstance(self.skip, nn.Linear) and not x.is_floating_point():
            return out + F.embedding(x, self.skip.weight.mT)
        return out + self.skip(x)


def fold_layers(core: nn.Module) -> list[Recurrence]:
    """Return the folded layers of a core; ArgumentError if it cannot be exported."""
    if getattr(core, "batch_first", False):
        raise ArgumentError(
            "Expected a time-major network, but got batch_first=True. Build it without batch_first and load its "
            "state_dict."
        )
    if isinstance(core, OrthogonalRNN):
        return _orthogonal_layers(core)
    if isinstance(core, OrthogonalBlocks):
        return _blocks(core)
    many = not isinstance(core, nn.RNNBase) or core.num_layers > 1 or core.bidirectional
    if not isinstance(core, nn.RNNBase) or many or not core.bias or core.proj_size:
        raise ArgumentError(
            f"Expected an OrthogonalRNN, OrthogonalBlocks, or torch's RNN, GRU or LSTM with one layer, one direction, "
            f"biases and no projection, but got {core}. Export another network."
        )
    size = core.hidden_size
    V, W, inner, outer = (getattr(core, n) for n in ("weight_ih_l0", "weight_hh_l0", "bias_hh_l0", "bias_ih_l0"))
    first = torch.zeros(2 if core.mode == "LSTM" else 1, size)
    if core.mode in ("LSTM", "GRU"):
        return [Gated(core.mode, W, inner, V, outer, first)]
    from ..activations import get

    return [Plain(W, get(core.mode.removeprefix("RNN_").lower()), None, V, inner + outer, first)]


@torch.no_grad()
def _blocks(core: OrthogonalBlocks) -> list[Recurrence]:
    if core.stride > 1:
        raise ArgumentError(
            f"Expected stride=1, but got stride={core.stride}: a stream cannot know which steps are read, since they are "
            f"counted from the last. Train the network with stride=1."
        )
    made: list[Recurrence] = []
    for k, block in enumerate(core.blocks):
        (folded,) = _orthogonal_layers(block.recurrence)  # type: ignore[arg-type]
        norm, mix, skip = copy.deepcopy((block.norm, block.mix, block.skip))
        if core.is_complex:  # the folded state is [Re h; Im h], where mix reads Re and Im of each unit side by side
            first: Any = mix[0]  # type: ignore[index]
            first.weight.copy_(torch.cat([first.weight[:, 0::2], first.weight[:, 1::2]], 1))
        if core.residual and k:
            skip = nn.Identity()
        made.append(Block(folded, norm, mix, skip))  # type: ignore[arg-type]
    return made


@torch.no_grad()
def _orthogonal_layers(core: OrthogonalRNN) -> list[Recurrence]:
    if core.bidirectional:
        raise ArgumentError(
            "Expected a network of one direction, but got a bidirectional one, which cannot stream. Train it with "
            "bidirectional=False."
        )
    made: list[Recurrence] = []
    states = core.initial_states(1)
    for layer, state in zip(core.layers(), states):
        h0 = layer.state_in(state)
        # above a complex layer the input is complex, and embedded
        sample = torch.zeros(1, dtype=torch.complex64) if layer.is_complex and made else torch.zeros(1)
        V = layer.input_weight(sample)
        bias, parameter = layer.bias()
        added = torch.zeros(layer.size) if bias is None else bias
        made.append(
            Plain(
                layer.gain * layer.matrix(),
                layer.activation,
                parameter,
                V,
                added,
                h0.reshape(1, -1),
                linear=layer.linear_transition,
            )
        )
    return made
