"""The two exported graphs: a whole sequence, and one step of a stream.

With a run's description the graphs take raw inputs, in the units of the data, and return the same as `predict`:
probabilities, or values in the units of the targets. Without a description they take and return the network's inputs
and outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from ..errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError
from ..modules import OrthogonalRNN
from .layers import Recurrence, fold_layers, fold_parametrizations_
from .network import Network, check_steps_are_equal
from .units import centered

_TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]
_TRANSFORMS = {"log": (torch.log, torch.exp), "log1p": (torch.log1p, torch.expm1)}  # of targets, and back
_PARTS = {"last": 1, "mean": 1, "both": 2, "summary": 3}  # how often a head reads each output


class _Reader(nn.Module):
    """The part that both graphs share: the scaling in front of the layers, and pool, head and scaling behind them."""

    center: Tensor
    scale: Tensor
    offset: Tensor
    target_scale: Tensor
    target_offset: Tensor
    transformed: Tensor

    def __init__(self, model: Network, description: Mapping[str, Any] | None) -> None:
        super().__init__()
        check_network(model)
        d = description or {}
        self.layers = nn.ModuleList(fold_layers(model.core))
        self.last = model.output == "last"
        self.pool = getattr(model, "pool", "last") if self.last else "last"
        self.head = _head(model, _PARTS[self.pool])
        recent = getattr(model, "recent", None)
        # Nothing that a scan reads may need a gradient: torch.onnx does not convert what is computed for one.
        self.series = copy.deepcopy(getattr(model, "series", None))
        if self.series is not None:
            self.series.requires_grad_(False)
        self.lags = 0 if recent is None else recent.lags
        self.recent: nn.Linear | None = None
        if recent is not None:
            matrix = recent.matrix().detach()
            like = {"device": matrix.device, "dtype": matrix.dtype}
            self.recent = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, **like)
            self.recent.weight.data.copy_(matrix)
        self.scaled = "scale" in d or "offset" in d
        self.output_kind = d.get("says")
        if "order" in d:
            raise ArgumentError(
                "Expected steps in their original order, but got a network that reorders them. Reorder."
            )
        device = _parameter(model).device
        scale, offset = (
            np.asarray(d.get(name, value), np.float64) for name, value in (("scale", 1.0), ("offset", 0.0))
        )
        center, rest = centered(scale, offset)
        numbers = {"center": center, "scale": scale, "offset": rest}
        numbers |= {"target_scale": d.get("target_scale", 1.0), "target_offset": d.get("target_offset", 0.0)}
        for name, value in numbers.items():
            number = torch.as_tensor(np.asarray(value, np.float32), device=device)
            self.register_buffer(name, number, persistent=False)
        both = _TRANSFORMS.get(d.get("target_transform") or "")
        self.transform = None if both is None else both[0]
        self.inverse = None if both is None else both[1]
        self.quantiles = len(d.get("quantiles") or ())
        self.transforms_inputs = bool(d.get("transformed_inputs"))
        which = np.isin(np.arange(d["input_size"]), d["transformed_inputs"]) if self.transforms_inputs else None
        mask = None if which is None else torch.as_tensor(which, device=device)
        self.register_buffer("transformed", mask, persistent=False)

    def raw(self, x: Tensor) -> Tensor:
        """Return raw inputs of about the same size as the training inputs.

        Args:
            x: Random numbers (..., I) of standard deviation 1.
        """
        if not self.scaled:
            return x
        x = (x - self.offset) / torch.where(self.scale == 0, 1, self.scale)
        if not self.transforms_inputs:
            return x
        assert self.inverse is not None
        return torch.where(self.transformed, self.inverse(torch.where(self.transformed, x + self.center, 0)), x)

    def prepared(self, x: Tensor) -> Tensor:
        """Return raw inputs in the form that the network reads.

        Args:
            x: Raw inputs (..., I), or tokens (...).
        """
        if self.transforms_inputs:
            assert self.transform is not None
            x = torch.where(self.transformed, self.transform(torch.where(self.transformed, x, 1)), x)
        return (x - self.center) * self.scale + self.offset if self.scaled else x

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the layers, and the input of the matrix over the last steps.

        Args:
            x: Inputs as returned by `prepared`.
        """
        return (x, x) if self.series is None else (self.series(x), x[..., :-1])

    def said(self, y: Tensor) -> Tensor:
        """Return outputs of the network in the form that its user reads.

        Args:
            y: Outputs of the head (..., O).
        """
        if self.output_kind == "classes":
            return y.softmax(-1)
        if self.output_kind == "probabilities":
            return y.sigmoid()
        if self.output_kind is None:
            return y
        y = y * self.target_scale + self.target_offset
        y = y if self.inverse is None else self.inverse(y)
        if self.quantiles < 2:
            return y
        return y.unflatten(-1, (-1, self.quantiles)).sort(-1).values.flatten(-2)  # so that they do not cross


class SequenceGraph(_Reader):
    """The whole sequence: x -> y, or (x, reset) -> y.

    Args:
        model: A network in evaluation mode.
        description: Description of the run. With it the graph takes raw inputs and returns probabilities or values in
            the units of the targets. Default: None, the graph takes and returns the network's inputs and outputs.
    """

    def __init__(self, model: Network, description: Mapping[str, Any] | None = None) -> None:
        super().__init__(model, description)

    def check_resets(self) -> None:
        """Raise ArgumentError if outputs depend on other steps except through the states of the layers."""
        if self.recent is not None or self.pool != "last":
            found = f"pool={self.pool!r}" if self.recent is None else f"lags={self.lags}"
            raise ArgumentError(
                f"Expected a network whose outputs read one step, for resets inside a sequence, but got {found}. Export "
                f"without resets, and call the graph for each episode."
            )

    def forward(self, x: Tensor, reset: Tensor | None = None) -> Tensor:
        """Return y (T, B, O), or (B, O) if the network answers at the last step.

        Args:
            x: The sequences (T, B, I), or tokens (T, B).
            reset: bool (T, B), True if an episode starts before step t. Default: None, no resets.
        """
        from torch._higher_order_ops.scan import scan

        x, given = self.read(self.prepared(x))
        count = x.shape[1]
        for layer in self.layers:
            assert isinstance(layer, Recurrence)
            first = layer.first.unsqueeze(1).expand(-1, count, -1).clone()

            start = layer.first.unsqueeze(1)  # not `first`: an exported scan takes its carry for what it reads

            def move(state: Tensor, a: Tensor, advance: Callable[..., Tensor] = layer.advance) -> tuple[Tensor, Tensor]:
                state = advance(state, a)
                return state, state[0].clone()

            def restart(
                state: Tensor,
                given: tuple[Tensor, Tensor],
                own: Tensor = start,
                go: Callable[..., tuple[Tensor, Tensor]] = move,
            ) -> tuple[Tensor, Tensor]:
                a, starts = given
                return go(torch.where(starts.unsqueeze(-1), own, state), a)

            projected = layer.project(x)
            states = scan(move, first, projected) if reset is None else scan(restart, first, (projected, reset))
            x = layer.out(x, states[1])
        if self.last:
            mean = x.mean(0)
            parts = {"last": [x[-1]], "mean": [mean], "both": [x[-1], mean], "summary": [x[-1], mean, x.amax(0)]}
            x = torch.cat(parts[self.pool], -1)
        y = self.head(x)
        if self.recent is not None:
            places = torch.arange(given.shape[0], device=given.device)
            steps = torch.cat([given[(places - back).clamp(min=0)] for back in range(self.lags)], -1)
            y = y + self.recent(steps[-1] if self.last else steps)
        return self.said(y)


class Step(_Reader):
    """One step of a stream: (x, state) -> (y, state), or (x, state, reset) -> (y, state).

    If the network has a pool or lags, rows of the same width follow the states of the layers: the number of steps, the
    mean and the maximum of the outputs, and the last steps. A mean, unlike a sum, is as precise after a million steps
    as after ten.

    Args:
        model: A network in evaluation mode.
        description: Description of the run. With it the graph takes raw inputs and returns probabilities or values in
            the units of the targets. Default: None, the graph takes and returns the network's inputs and outputs.
    """

    state: Tensor

    def __init__(self, model: Network, description: Mapping[str, Any] | None = None) -> None:
        super().__init__(model, description)
        states = [layer.first for layer in self.layers if isinstance(layer, Recurrence)]
        self.sizes = [len(state) for state in states]
        self.wide: int = states[0].shape[-1]
        count = {"last": 0, "mean": 1, "both": 1, "summary": 2}[self.pool]
        self.sums = [_first_linear(self.head).in_features // _PARTS[self.pool]] * count if count else []
        self.steps: int = self.lags * (_width(model) - (self.series is not None))
        extra = 1 + sum(self.sums) + self.steps if self.sums or self.lags else 0
        self.rows = -(-extra // self.wide)
        self.register_buffer("state", torch.cat([*states, states[0].new_zeros(self.rows, self.wide)]))

    def forward(self, x: Tensor, state: Tensor, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return y (B, O) and the next state (S, B, N').

        Args:
            x: The inputs of one step (B, I), or tokens (B,).
            state: The state (S, B, N') after the previous step.
            reset: bool (B,), True if an episode starts with this step. Default: None, no reset.
        """
        if reset is not None:
            state = torch.where(reset.unsqueeze(-1), self.state.unsqueeze(1), state)
        after = []
        x, given = self.read(self.prepared(x))
        parts = state.split([*self.sizes, self.rows])
        for layer, own in zip(self.layers, parts):
            assert isinstance(layer, Recurrence)
            own = layer.advance(own, layer.project(x))
            after.append(own)
            x = layer.out(x, own[0])
        if not self.rows:
            return self.said(self.head(x)), torch.cat(after)
        flat = parts[-1].transpose(0, 1).flatten(1)
        count = flat[:, :1]
        begins, kept = count == 0, [count + 1]
        before = flat[:, 1:].split([*self.sums, self.steps, flat.shape[1] - 1 - sum(self.sums) - self.steps], 1)
        if self.sums:
            mean = before[0] + (x - before[0]) / kept[0]
            kept.append(mean)
            read = [mean] if self.pool == "mean" else [x, mean]
            if self.pool == "summary":
                largest = torch.where(begins, x, torch.maximum(before[1], x))
                kept.append(largest)
                read.append(largest)
            x = torch.cat(read, -1)
        y = self.head(x)
        if self.recent is not None:
            shifted = torch.cat([given, before[len(self.sums)][:, : self.steps - given.shape[1]]], 1)
            shifted = torch.where(begins, given.repeat(1, self.lags), shifted)
            kept.append(shifted)
            y = y + self.recent(shifted)
        rest = torch.cat(kept, 1)
        rest = (
            F.pad(rest, (0, self.rows * self.wide - rest.shape[1])).unflatten(1, (self.rows, self.wide)).transpose(0, 1)
        )
        return self.said(y), torch.cat([*after, rest])


def example(model: Network, T: int, B: int) -> Tensor:
    """Return random input for a model, on its device and with its dtype: (T, B, I), or tokens (T, B).

    Args:
        model: Network that reads the input.
        T: Number of steps.
        B: Number of sequences.
    """
    own = _parameter(model)
    if model.token_classes is not None:
        return torch.randint(model.token_classes, (T, B), device=own.device)
    x = torch.randn(T, B, _width(model), device=own.device, dtype=own.dtype)
    if getattr(model, "series", None) is not None:
        x[..., -1] = 0
    return x


def example_resets(x: Tensor) -> Tensor:
    """Return a mask bool (T, B) for random input x (T, B, ...), for recording graphs."""
    return torch.arange(x.shape[0] * x.shape[1]).view(x.shape[:2]) % 3 == 1


def _width(model: Network) -> int:
    """Return I: with vectors of series, the core reads a vector instead of the number of a series."""
    series = getattr(model, "series", None)
    return model.core.input_size - (0 if series is None else series.weight.shape[1] - 1)


def prepare(
    model: Network, description: Mapping[str, Any] | None = None
) -> tuple[Network, SequenceGraph, Step, tuple[Tensor, Tensor]]:
    """Return a copy of the network on the CPU in evaluation mode, its graphs, and an input (x, state) of one step.

    A graph contains the device on which it was recorded; a CPU graph can be loaded everywhere and checked here.

    Raises:
        DTypeError: Unless the network is float32.
        DeviceError: If the network has no values, on the meta device.
    """
    check_network(model)
    own = _parameter(model)
    if own.dtype != torch.float32:
        raise DTypeError(f"Expected a float32 network, but got {own.dtype}. Convert it with .float().")
    if own.is_meta:
        raise DeviceError(
            "Expected a network with values, but got a network on the meta device. Load its weights, or move it with "
            ".to_empty(device='cpu') and draw them with reset_parameters()."
        )
    model = copy.deepcopy(model)  # the graphs share its head, and it may be in training
    model.eval()
    fold_parametrizations_(model.head)
    if own.device.type != "cpu":
        model.to("cpu")
    sequence, step = SequenceGraph(model, description).eval(), Step(model, description).eval()
    with torch.random.fork_rng(devices=[]):  # a training around goes on as without an export
        x = example(model, 5, 3)
    return model, sequence, step, (x, step.state.unsqueeze(1).expand(-1, 3, -1).contiguous())


def check_network(model: Any) -> None:
    """Raise ArgumentTypeError unless a network has a core, a head, and a description of their input and output."""
    missing = [name for name in ("core", "head", "output", "token_classes") if not hasattr(model, name)]
    if missing or not isinstance(model, nn.Module):
        what = type(model).__name__ + (f" without {', '.join(missing)}" if isinstance(model, nn.Module) else "")
        raise ArgumentTypeError(
            f"Expected a module with core, head, output and token_classes (orthornn.export.Network), but got {what}. Pass "
            f"orthornn.load(RUN).model, or a module with these attributes: the recurrent network, a torch.nn.Linear, "
            f"'all' or 'last', and None for real inputs."
        )
    check_steps_are_equal(model)
    if model.output not in ("all", "last"):
        raise ArgumentError(
            f"Expected the network's output to be 'all' or 'last', but got {model.output!r}. Set it to match forward."
        )
    first = model.head[0] if isinstance(model.head, nn.Sequential) and len(model.head) else model.head
    if not isinstance(first, nn.Linear):
        raise ArgumentTypeError(
            f"Expected a torch.nn.Linear as the network's head, or a Sequential that begins with one, but got "
            f"{type(first).__name__}. Put a Linear first."
        )


def _parameter(model: Network) -> Tensor:
    """Return one of the network's parameters, for its device and dtype."""
    return next(model.head.parameters())


def _first_linear(head: nn.Module) -> nn.Linear:
    first = head[0] if isinstance(head, nn.Sequential) else head
    assert isinstance(first, nn.Linear)
    return first


def _head(model: Network, parts: int) -> nn.Module:
    """Return the head for [Re h; Im h]; the model's head reads Re and Im of each unit next to each other. parts: Number
    of concatenated inputs of the head.
    """
    is_complex = isinstance(model.core, OrthogonalRNN) and model.core.is_complex
    if not is_complex and not any(map(parametrize.is_parametrized, model.head.modules())):
        return model.head
    head: nn.Module = copy.deepcopy(model.head)
    fold_parametrizations_(head)
    if not is_complex:
        return head
    first = _first_linear(head)
    with torch.no_grad():
        own = [torch.cat([part[:, 0::2], part[:, 1::2]], 1) for part in first.weight.chunk(parts, 1)]
        first.weight.copy_(torch.cat(own, 1))
    return head
