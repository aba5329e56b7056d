"""The folded recurrent layers of a network: one product and one activation per step, or torch's gates."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from ..activations import Activation, get
from ..errors import ArgumentError
from ..modules import GORU, OrthogonalBlocks, OrthogonalRNN


class Recurrence(nn.Module):
    """One folded layer: `project` for a whole sequence at once, then `advance` step by step on (S, B, N').

    Args:
        weight: Input weights, V.
        bias: Bias, b.
        first: The initial state (S, N').
    """

    weight: Tensor
    bias: Tensor
    first: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, first: Tensor) -> None:
        super().__init__()
        for name, tensor in {"weight": weight, "bias": bias, "first": first}.items():
            self.register_buffer(name, tensor.detach().clone().contiguous())

    def project(self, x: Tensor) -> Tensor:
        """Return V x + b.

        Args:
            x: Inputs (..., I), or tokens (...).
        """
        return (F.linear(x, self.weight) if x.is_floating_point() else F.embedding(x, self.weight.mT)) + self.bias

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Return the state (S, B, N') after a step.

        Args:
            state: The state (S, B, N') before the step.
            a: The projected input (B, ...) of the step, a row of the result of `project`.
        """
        raise NotImplementedError

    def out(self, x: Tensor, h: Tensor) -> Tensor:
        """Return the layer's outputs.

        Args:
            x: The layer's inputs (..., I).
            h: Its states (..., N').
        """
        return h


class Plain(Recurrence):
    """h = phi(W h + a), or W h + phi(a) if the transition is linear.

    Args:
        W: The transition (N', N').
        phi: The activation.
        parameter: Parameter of the activation, or None.
        rest: Arguments of :class:`Recurrence`.
        linear: Apply W h outside phi. Default: False.
    """

    W: Tensor
    parameter: Tensor

    def __init__(
        self, W: Tensor, phi: Activation, parameter: Tensor | None, *rest: Tensor, linear: bool = False
    ) -> None:
        super().__init__(*rest)
        self.linear = linear
        self.phi, self.has_parameter = phi, parameter is not None
        self.register_buffer("W", W.detach().clone().contiguous())
        self.register_buffer("parameter", W.new_zeros(0) if parameter is None else parameter.detach().clone())

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Advance the state by one product and phi.

        Args:
            state: The state (S, B, N') before the step.
            a: The projected input (B, ...) of the step, a row of the result of `project`.
        """
        parameter, carried = self.parameter if self.has_parameter else None, F.linear(state[0], self.W)
        after = carried + self.phi(a, parameter) if self.linear else self.phi(carried + a, parameter)
        return after.unsqueeze(0)


class Gated(Recurrence):
    """torch's LSTM, with state (h, c), and GRU.

    Args:
        kind: ``"LSTM"`` or ``"GRU"``.
        W: Hidden weights (4N, N), or (3N, N) for a GRU.
        inner: The biases added to W h.
        rest: Arguments of :class:`Recurrence`.
    """

    W: Tensor
    inner: Tensor

    def __init__(self, kind: str, W: Tensor, inner: Tensor, *rest: Tensor) -> None:
        super().__init__(*rest)
        self.kind = kind
        self.register_buffer("W", W.detach().clone())
        self.register_buffer("inner", inner.detach().clone())

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Advance the state by the gates, in torch's order.

        Args:
            state: The state (S, B, N') before the step.
            a: The projected input (B, ...) of the step, a row of the result of `project`.
        """
        recurrent = F.linear(state[0], self.W) + self.inner
        if self.kind == "LSTM":
            i, f, g, o = (a + recurrent).chunk(4, -1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return torch.stack([o.sigmoid() * c.tanh(), c])
        (r, z, n), (hr, hz, hn) = a.chunk(3, -1), recurrent.chunk(3, -1)
        z = (z + hz).sigmoid()
        return ((1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * state[0]).unsqueeze(0)


class Block(Plain):
    """A block of OrthogonalBlocks: a linear recurrence, a pointwise nonlinearity, normalization and the residual
    connection.
    """

    def __init__(self, block: Any, W: Tensor, *rest: Tensor) -> None:
        super().__init__(W, get("identity"), None, *rest)
        self.norm: nn.Module | None = block.norm
        self.mix: nn.Module = block.mix
        self.skip: nn.Linear | None = block.skip
        self.residual: bool = block.residual
        self.requires_grad_(False)  # torch.onnx does not convert a scan after what requires a gradient

    def project(self, x: Tensor) -> Tensor:
        """Return V norm(x) + b."""
        return super().project(x if self.norm is None else self.norm(x))

    def out(self, x: Tensor, h: Tensor) -> Tensor:
        """Return skip(x) + mix(h)."""
        y = self.mix(h)
        if not self.residual:
            return y
        if self.skip is None:
            return x + y
        return y + (self.skip(x) if x.is_floating_point() else F.embedding(x, self.skip.weight.mT))


class GatedOrthogonal(Recurrence):
    """GORU with a real state."""

    gates: Tensor
    W: Tensor
    parameter: Tensor

    def __init__(self, core: GORU) -> None:
        biased = core.activation.parameter_is_bias
        added = torch.cat([core.bias_gates, torch.zeros_like(core.bias) if biased else core.bias])
        first = core.bias.new_zeros(1, core.hidden_size) if core.h0 is None else core.h0
        super().__init__(core.weight_ih, added, first)
        self.phi, self.biased = core.activation, biased
        for name, tensor in {"gates": core.weight_gates, "W": core.transition.matrix(), "parameter": core.bias}.items():
            self.register_buffer(name, tensor.detach().clone().contiguous())

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """Advance the state by update gate, reset gate and candidate."""
        h = state[0]
        z, r, c = a.chunk(3, -1)
        from_z, from_r = F.linear(h, self.gates).chunk(2, -1)
        z = (z + from_z).sigmoid()
        c = self.phi(c + (r + from_r).sigmoid() * F.linear(h, self.W), self.parameter if self.biased else None)
        return (z * h + (1 - z) * c).unsqueeze(0)


def fold_layers(core: nn.Module) -> list[Recurrence]:
    """Return the folded layers of a core; raise ArgumentError if it cannot be exported."""
    if getattr(core, "batch_first", False):
        raise ArgumentError(
            "Expected a time-major network, but got batch_first=True. Build it without batch_first and load its "
            "state_dict."
        )
    if isinstance(core, OrthogonalRNN):
        return _orthogonal_layers(core)
    if isinstance(core, OrthogonalBlocks):
        return _blocks(core)
    if isinstance(core, GORU) and not core.is_complex:
        return [GatedOrthogonal(core)]
    if not isinstance(core, nn.RNNBase) or core.bidirectional or not core.bias or core.proj_size:
        raise ArgumentError(
            f"Expected an OrthogonalRNN, OrthogonalBlocks, a real GORU, or torch's RNN, GRU or LSTM with one direction, "
            f"biases and no projection, but got {core}. Choose one of those."
        )
    made: list[Recurrence] = []
    for k in range(core.num_layers):
        V, W, inner, outer = (getattr(core, f"{n}_l{k}") for n in ("weight_ih", "weight_hh", "bias_hh", "bias_ih"))
        first = V.new_zeros(2 if core.mode == "LSTM" else 1, core.hidden_size)
        if core.mode in ("LSTM", "GRU"):
            made.append(Gated(core.mode, W, inner, V, outer, first))
        else:
            made.append(Plain(W, get(core.mode.removeprefix("RNN_").lower()), None, V, inner + outer, first))
    return made


@torch.no_grad()
def _blocks(core: OrthogonalBlocks) -> list[Recurrence]:
    if core.bidirectional or core.stride > 1:
        found = "bidirectional=True" if core.bidirectional else f"stride={core.stride}"
        raise ArgumentError(
            f"Expected unidirectional blocks with stride=1, which can stream, but got {found}. Train such a network, or "
            f"pass this one to torch.export.export for whole sequences."
        )
    made: list[Recurrence] = []
    for block in core.blocks:
        own: Any = copy.deepcopy(block)
        for part in own.children():
            if part is not own.recurrence:
                fold_parametrizations_(part)
        (folded,) = _orthogonal_layers(own.recurrence)
        if core.is_complex:  # the folded state is [Re h; Im h], where mix reads Re and Im of each unit side by side
            weight = own.mix[0].weight
            weight.copy_(torch.cat([weight[:, 0::2], weight[:, 1::2]], 1))
        made.append(Block(own, folded.W, folded.weight, folded.bias, folded.first))  # type: ignore[arg-type]
    return made


@torch.no_grad()
def _orthogonal_layers(core: OrthogonalRNN) -> list[Recurrence]:
    if core.bidirectional:
        raise ArgumentError(
            "Expected a unidirectional network, but got a bidirectional one, which cannot stream. Train it with "
            "bidirectional=False."
        )
    made: list[Recurrence] = []
    states = core.initial_states(1)
    for layer, state in zip(core.layers(), states):
        h0 = layer.state_in(state)
        # above a complex layer the input is complex, and embedded
        V = layer.input_weight(h0.new_zeros(1, dtype=torch.complex64 if layer.is_complex and made else None))
        bias, parameter = layer.bias()
        added = V.new_zeros(layer.size) if bias is None else bias
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


@torch.no_grad()
def fold_parametrizations_(module: nn.Module) -> None:
    """Replace weights that torch.nn.utils.parametrize computes, as under orthogonalize, by their values.

    ONNX lacks some of the operations that compute them. torch's remove_parametrizations would remove the weight from
    the class, which this module shares with the module that it was copied from.
    """
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            values = {name: getattr(part, name).clone() for name in part.parametrizations}  # type: ignore[union-attr]
            del part.parametrizations
            part.__class__ = type(part).__bases__[0]
            for name, value in values.items():
                part.register_parameter(name, nn.Parameter(value))
