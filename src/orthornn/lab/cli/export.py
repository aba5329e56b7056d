"""`orthornn export RUN --onnx | --torch-export | --safetensors`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ... import export
from ...errors import ArgumentError
from ..training import load_model, read_description
from .arguments import read_options


@dataclass(frozen=True)
class ExportArguments:
    """The options of orthornn export."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run directory."""
    onnx: bool = False
    """model.onnx for whole sequences of any T and B, step.onnx for streams; checked with onnxruntime."""
    torch_export: bool = False
    """The same two as model.pt2 and step.pt2, for torch.export.load; checked."""
    safetensors: bool = False
    """folded.safetensors: the recurrent matrix and all else as plain tensors."""
    out: Path | None = None
    """Folder for the files. Without it: the run directory's folder export."""
    checkpoint: str = "last"
    """Whose weights: last, best, or the step of a checkpoint."""


DESCRIPTION = "Writes a trained network, folded to plain matrices, for use without orthornn."


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(ExportArguments, "orthornn export", DESCRIPTION, words or ["--help"])
    if not (arguments.onnx or arguments.torch_export or arguments.safetensors):
        raise ArgumentError("name at least one of --onnx, --torch-export and --safetensors.")
    _, model = load_model(arguments.run, arguments.checkpoint)
    folder = arguments.out or arguments.run / "export"
    if arguments.out is None and folder.is_symlink():
        raise ArgumentError(
            f"Expected {folder} to be a folder of the run itself, but got a symbolic link. Name another with --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if arguments.onnx:
        written += export.to_onnx(model, folder, read_description(arguments.run))
    if arguments.torch_export:
        written += export.to_torch_export(model, folder)
    if arguments.safetensors:
        written += export.to_safetensors(model, folder)
    for path in written:
        print(path)
    return 0
