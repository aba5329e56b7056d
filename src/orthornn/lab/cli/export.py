"""`orthornn export RUN --onnx | --torch-export | --safetensors | --c`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ... import export
from ...errors import ArgumentError
from ...export.c.folded import CForm
from ..predict import load
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
    c: bool = False
    """C99 for microcontrollers: one header, one source, a self-test and a Makefile; prints what the network costs."""
    name: str = "network"
    """Begins the names of the C files and functions."""
    form: CForm = "auto"
    """Form of the transitions in C: dense, reflections, rotations, or auto, the one with the fewest multiply-adds."""
    arduino: bool = False
    """With --c: also library.properties, with which the folder is an Arduino library."""
    zephyr: bool = False
    """With --c: also the files of a Zephyr module."""
    force: bool = False
    """With --c: replace files that orthornn did not write."""
    out: Path | None = None
    """Folder for the files. Without it: the run directory's folder export."""
    checkpoint: str = "last"
    """Whose weights: last, best, or the step of a checkpoint."""


DESCRIPTION = "Writes a trained network, folded to plain matrices, for use without orthornn."


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(ExportArguments, "orthornn export", DESCRIPTION, words or ["--help"])
    others = arguments.onnx or arguments.torch_export or arguments.safetensors
    if not (others or arguments.c):
        raise ArgumentError("name at least one of --onnx, --torch-export, --safetensors and --c.")
    _check_c_options(arguments)
    _, model = load_model(arguments.run, arguments.checkpoint)
    folder = arguments.out or arguments.run / "export"
    if arguments.out is None and folder.is_symlink():
        raise ArgumentError(
            f"Expected {folder} to be a folder of the run itself, but got a symbolic link. Name another with --out."
        )
    written: list[Path] = []
    if arguments.c:
        made = export.to_c(
            load(arguments.run, arguments.checkpoint),
            folder,
            name=arguments.name,
            form=arguments.form,
            arduino=arguments.arduino,
            zephyr=arguments.zephyr,
            force=arguments.force,
        )
        print(made.table())
        written += made.files
    if others:
        folder.mkdir(parents=True, exist_ok=True)
    if arguments.onnx:
        written += export.to_onnx(model, folder, read_description(arguments.run))
    if arguments.torch_export:
        written += export.to_torch_export(model, folder)
    if arguments.safetensors:
        written += export.to_safetensors(model, folder)
    for path in written:
        print(path)
    return 0


def _check_c_options(arguments: ExportArguments) -> None:
    """Raise ArgumentError if an option of C was given without --c."""
    if arguments.c:
        return
    own = ("name", "form", "arduino", "zephyr", "force")
    changed = [name for name in own if getattr(arguments, name) != getattr(ExportArguments, name)]
    if changed:
        options = ", ".join(f"--{name}" for name in changed)
        raise ArgumentError(f"Expected --c with {options}, but got no --c. Add it, or leave {options} out.")
