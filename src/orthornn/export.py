"""A trained network outside this package: ONNX, torch.export, or plain tensors.

The network is folded (every W a plain matrix, the gain in it) and written with real numbers alone: a complex state is
[Re h; Im h]. The recurrence is torch's scan, so that T and B stay dynamic. There are two graphs:

model   x (T, B, I) float32, or (T, B) int64 tokens -> y (T, B, O), or (B, O) where the network speaks at the last step
step    x (B, I) or (B,), state (S, B, N') -> y (B, O), state: for streams; S counts the layers, twice for an LSTM,
        whose state is h and c; N' is N, or 2N for a complex state. The first state is the tensor "state" of weights().

Networks of one direction; torch's RNN, GRU and LSTM with one layer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .activations import Activation
from .errors import ArgumentError, CheckpointError, DTypeError, MissingPackageError
from .models import SequenceModel
from .modules import OrthogonalRNN
from .training.checkpoint import save_tensors
from .training.files import write_atomically

FORMATS = ("onnx", "torch-export", "safetensors")


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
        """V x + b of (..., I), or of tokens (...,)."""
        return (F.linear(x, self.weight) if x.is_floating_point() else F.embedding(x, self.weight.mT)) + self.bias

    def advance(self, state: Tensor, a: Tensor) -> Tensor:
        """The state (S, B, N') after a step with projected input a."""
        raise NotImplementedError


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
        """One product and phi."""
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
        """The gates in torch's order."""
        recurrent = F.linear(state[0], self.W) + self.inner
        if self.kind == "LSTM":
            i, f, g, o = (a + recurrent).chunk(4, -1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return torch.stack([o.sigmoid() * c.tanh(), c])
        (r, z, n), (hr, hz, hn) = a.chunk(3, -1), recurrent.chunk(3, -1)
        z = (z + hz).sigmoid()
        return ((1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * state[0]).unsqueeze(0)


class Sequence(nn.Module):
    """The whole sequence: x -> y."""

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_layers(model.core))
        self.head, self.last = _head(model), model.output == "last"

    def forward(self, x: Tensor) -> Tensor:
        """y from x; see the module's docstring."""
        from torch._higher_order_ops.scan import scan

        count = x.shape[1]
        for layer in self.layers:
            assert isinstance(layer, Recurrence)
            first = layer.first.unsqueeze(1).expand(-1, count, -1).clone()

            def move(state: Tensor, a: Tensor, advance: Callable[..., Tensor] = layer.advance) -> tuple[Tensor, Tensor]:
                state = advance(state, a)
                return state, state[0].clone()

            x = scan(move, first, layer.project(x))[1]
        return self.head(x[-1] if self.last else x)


class Step(nn.Module):
    """One step of a stream: (x, state) -> (y, state)."""

    state: Tensor

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_layers(model.core))
        self.head = _head(model)
        self.register_buffer("state", torch.cat([layer.first for layer in self.layers]))  # type: ignore[misc]

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """y (B, O) and the next state (S, B, N')."""
        after = []
        for layer, own in zip(self.layers, state.chunk(len(self.layers))):
            assert isinstance(layer, Recurrence)
            own = layer.advance(own, layer.project(x))
            after.append(own)
            x = own[0]
        return self.head(x), torch.cat(after)


def example(model: SequenceModel, T: int, B: int) -> Tensor:
    """Random input for a model: (T, B, I), or tokens (T, B)."""
    if model.token_classes is not None:
        return torch.randint(model.token_classes, (T, B))
    return torch.randn(T, B, model.core.input_size)


def to_onnx(model: SequenceModel, folder: Path, description: dict[str, Any] | None = None) -> list[Path]:
    """Write model.onnx and step.onnx, and check both against the module on random input with onnxruntime.

    description: goes into the files' metadata. MissingPackageError without the packages; CheckpointError if a check fails.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("--onnx", error.name or "onnx", "export") from error
    sequence, step, (x, state) = _prepared(model)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    written = []
    for name, module, arguments, shapes, outputs in (
        ("model", sequence, (x,), ({0: T, 1: B},), ["y"]),
        ("step", step, (x[0], state), ({0: B}, {1: B}), ["y", "next_state"]),
    ):
        path = folder / f"{name}.onnx"
        program = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=["x", "state"][: len(arguments)],
            output_names=outputs,
            custom_translation_table={torch.ops.aten.hypot.default: _hypot_in_onnx},
            verbose=False,
        )
        assert program is not None
        proto = program.model_proto
        onnx.helper.set_model_props(proto, {"orthornn": json.dumps(description or {})})
        content = proto.SerializeToString()
        write_atomically(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
        written.append(path)
    whole, single = (onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for path in written)

    def run_step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = single.run(None, {"x": x.numpy(), "state": state.numpy()})
        return torch.from_numpy(y), torch.from_numpy(after)

    check(model, lambda x: torch.from_numpy(whole.run(None, {"x": x.numpy()})[0]), run_step, step)
    return written


def _hypot_in_onnx(a: Any, b: Any) -> Any:
    """sqrt(a^2 + b^2) of finite numbers without overflow, which neither ONNX nor torch's translation to it has."""
    from onnxscript import opset18

    op: Any = opset18
    large, small = op.Max(op.Abs(a), op.Abs(b)), op.Min(op.Abs(a), op.Abs(b))
    ratio, one = op.Div(small, large), op.CastLike(op.Constant(value_float=1.0), a)
    found = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), one)))
    return op.Where(op.Equal(large, small), op.Mul(large, op.Sqrt(op.Add(one, one))), found)  # 0 / 0 at the origin


def to_torch_export(model: SequenceModel, folder: Path) -> list[Path]:
    """Write model.pt2 and step.pt2, for torch.export.load; checked against the module on random input."""
    sequence, step, (x, state) = _prepared(model)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    programs = [
        torch.export.export(sequence, (x,), dynamic_shapes=({0: T, 1: B},)),
        torch.export.export(step, (x[0], state), dynamic_shapes=({0: B}, {1: B})),
    ]
    written = [folder / "model.pt2", folder / "step.pt2"]
    for program, path in zip(programs, written):
        torch.export.save(program, path)
    whole, single = (torch.export.load(path).module() for path in written)
    check(model, whole, single, step)
    return written


def to_safetensors(model: SequenceModel, folder: Path) -> list[Path]:
    """Write folded.safetensors: W, V, b, the first state and the readout as plain tensors."""
    path = folder / "folded.safetensors"
    content = save_tensors(weights(model))
    write_atomically(path, lambda file: file.write(content))
    return [path]


def weights(model: SequenceModel) -> dict[str, Tensor]:
    """The tensors of a folded network: state, head.weight, head.bias, and per layer W, weight (V), bias, parameter."""
    step = Step(model)
    return {name: tensor.contiguous() for name, tensor in step.state_dict().items() if tensor.numel()}


@torch.no_grad()
def check(
    model: SequenceModel,
    whole: Callable[[Tensor], Tensor],
    single: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    step: Step,
) -> float:
    """The largest difference from the module on random input, over T and B that were not exported with.

    CheckpointError if it is more than rounding: each step adds a few units in the last place to a state of norm 1.
    """
    largest = 0.0
    for T, B in ((1, 1), (2, 1), (9, 4), (23, 3)):
        x = example(model, T, B)
        expected = model(x)
        got = whole(x)
        state = step.state.unsqueeze(1).expand(-1, B, -1).contiguous()
        streamed = []
        for row in x:
            y, state = single(row, state)
            streamed.append(y)
        by_step = streamed[-1] if model.output == "last" else torch.stack(streamed)
        scale = max(1.0, float(expected.abs().max()))
        difference = max(float((got - expected).abs().max()), float((by_step - expected).abs().max())) / scale
        if not difference <= 64 * (T + 8) * float(np.finfo(np.float32).eps):
            raise CheckpointError(
                f"the exported network differs from the trained one by {difference:.2g} at T={T}, B={B}."
            )
        largest = max(largest, difference)
    return largest


def _prepared(model: SequenceModel) -> tuple[Sequence, Step, tuple[Tensor, Tensor]]:
    if model.head.weight.dtype != torch.float32:
        raise DTypeError(
            f"export is for float32 networks; this one is {model.head.weight.dtype}. Convert it with .float()."
        )
    model.eval()
    sequence, step = Sequence(model).eval(), Step(model).eval()
    return sequence, step, (example(model, 5, 3), step.state.unsqueeze(1).expand(-1, 3, -1).contiguous())


def _head(model: SequenceModel) -> nn.Linear:
    """The readout of [Re h; Im h]: the model's reads Re and Im of each unit side by side."""
    if not (isinstance(model.core, OrthogonalRNN) and model.core.is_complex):
        return model.head
    head = copy.deepcopy(model.head)
    with torch.no_grad():
        head.weight.copy_(torch.cat([head.weight[:, 0::2], head.weight[:, 1::2]], 1))
    return head


def _layers(core: nn.Module) -> list[Recurrence]:
    if getattr(core, "batch_first", False):
        raise ArgumentError("export is for time-major networks; this one has batch_first=True.")
    if isinstance(core, OrthogonalRNN):
        return _orthogonal_layers(core)
    many = not isinstance(core, nn.RNNBase) or core.num_layers > 1 or core.bidirectional
    if not isinstance(core, nn.RNNBase) or many or not core.bias or core.proj_size:
        raise ArgumentError(
            f"export takes OrthogonalRNN, or torch's RNN, GRU and LSTM with one layer, one direction, biases and no "
            f"projection; got {core}."
        )
    size = core.hidden_size
    V, W, inner, outer = (getattr(core, n) for n in ("weight_ih_l0", "weight_hh_l0", "bias_hh_l0", "bias_ih_l0"))
    first = torch.zeros(2 if core.mode == "LSTM" else 1, size)
    if core.mode in ("LSTM", "GRU"):
        return [Gated(core.mode, W, inner, V, outer, first)]
    from .activations import get

    return [Plain(W, get(core.mode.removeprefix("RNN_").lower()), None, V, inner + outer, first)]


@torch.no_grad()
def _orthogonal_layers(core: OrthogonalRNN) -> list[Recurrence]:
    if core.bidirectional:
        raise ArgumentError("export is for networks of one direction; this one is bidirectional.")
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
