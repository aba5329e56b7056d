"""Two ONNX files: model.onnx and step.onnx."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._checks import check_flag
from .._files import write_together
from ..errors import ArgumentError, MissingPackageError
from .graphs import example_resets, prepare
from .held_steps import warn_of_held_steps
from .network import Network
from .units import warn_of_large_offsets
from .verify import check


def to_onnx(
    model: Network, folder: str | Path, description: dict[str, Any] | None = None, *, resets: bool = False
) -> list[Path]:
    """Write model.onnx and step.onnx, and check both against the module on random input with onnxruntime.

    The metadata property "state" of step.onnx is the initial state (S, N') as JSON; "orthornn" is the description.

    Args:
        model: The network.
        folder: Output folder; it is created if it does not exist.
        description: Description of a run, stored in the files' metadata. With it the graphs take raw inputs and return
            probabilities or values in the units of the targets. Default: None, they take and return the network's
            inputs and outputs.
        resets: Add a graph input ``reset``, bool (T, B) or (B,), True if an episode starts before a step. Default:
            ``False``.

    Raises:
        MissingPackageError: If the required packages are not installed.
        ArgumentTypeError: If the network lacks core, head, output or token_classes, or its head does not begin with a
            Linear.
        ArgumentError: If resets are requested and outputs pool or read several steps, or if torch does not convert the
            network (torch 2.6 converts none: the loop over the steps is its ``scan``).
        CheckpointError: If a check fails.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError.named("--onnx", error.name or "onnx", "export") from error
    warn_of_large_offsets(description)
    warn_of_held_steps(description)
    model, sequence, step, (x, state) = prepare(model, description)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    graphs: list[tuple[str, torch.nn.Module, dict[str, tuple[Tensor, dict[int, Any]]], list[str]]] = [
        ("model", sequence, {"x": (x, {0: T, 1: B})}, ["y"]),
        ("step", step, {"x": (x[0], {0: B}), "state": (state, {1: B})}, ["y", "next_state"]),
    ]
    if check_flag("resets", resets):
        sequence.check_resets()
        mask = example_resets(x)
        graphs[0][2]["reset"], graphs[1][2]["reset"] = (mask, {0: T, 1: B}), (mask[0], {0: B})
    contents = {}
    for name, module, given, outputs in graphs:
        try:
            with _without_notes_of_torch():
                program = torch.onnx.export(
                    module,
                    tuple(tensor for tensor, _ in given.values()),
                    dynamo=True,
                    dynamic_shapes=tuple(sizes for _, sizes in given.values()),
                    input_names=list(given),
                    output_names=outputs,
                    custom_translation_table={torch.ops.aten.hypot.default: _hypot_in_onnx},
                    verbose=False,
                )
        except torch.onnx.OnnxExporterError as error:
            raise ArgumentError(
                f"Expected a network that torch.onnx converts, but got {type(model.core).__name__}, which torch "
                f"{torch.__version__} does not. Use torch 2.8 or newer, another model, --torch-export or --safetensors."
            ) from error
        assert program is not None
        proto = program.model_proto
        first = {"state": json.dumps(step.state.tolist())} if name == "step" else {}
        onnx.helper.set_model_props(proto, {**first, "orthornn": json.dumps(description or {})})
        contents[f"{name}.onnx"] = proto.SerializeToString()
    whole, single = (
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]) for content in contents.values()
    )

    def run(session: Any, names: str, tensors: tuple[Tensor, ...]) -> list[Tensor]:
        found = session.run(None, {name: tensor.numpy() for name, tensor in zip(names.split(), tensors)})
        return [torch.from_numpy(value) for value in found]

    def run_step(*given: Tensor) -> tuple[Tensor, Tensor]:
        y, after = run(single, "x state reset", given)
        return y, after

    start = torch.tensor(json.loads(single.get_modelmeta().custom_metadata_map["state"]), dtype=step.state.dtype)
    check(model, lambda *given: run(whole, "x reset", given)[0], run_step, step, start, resets)
    return write_together(Path(folder), contents)


@contextlib.contextmanager
def _without_notes_of_torch() -> Iterator[None]:
    """Suppress the converter's notes about packages and names that no network here uses; show only errors."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"# The axis name: \w+ will not be used")  # B, of x and the state
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated")  # in torch itself
            yield
    finally:
        logger.setLevel(level)


def _hypot_in_onnx(a: Any, b: Any) -> Any:
    """Return sqrt(a^2 + b^2) of finite numbers without overflow, which neither ONNX nor torch's translation to it
    avoids.
    """
    from onnxscript import opset18

    op: Any = opset18
    large, small = op.Max(op.Abs(a), op.Abs(b)), op.Min(op.Abs(a), op.Abs(b))
    ratio, one = op.Div(small, large), op.CastLike(op.Constant(value_float=1.0), a)
    found = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), one)))
    return op.Where(op.Equal(large, small), op.Mul(large, op.Sqrt(op.Add(one, one))), found)  # 0 / 0 at the origin
