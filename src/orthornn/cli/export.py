"""`orthornn export RUN --onnx | --torch-export | --safetensors | --c | --audio`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

from .. import export
from .._files import write_together
from ..errors import ArgumentError
from ..export.c import Numbers, check_replaceable
from ..export.c.folded import CForm
from ..learn.files.columns import is_table
from ..learn.files.sequence_files import read_sequences
from ..learn.predict import Loaded, load
from ..learn.report.lines import show
from ..learn.runs.fingerprint import check_data
from ..learn.tasks.table_task import TableTask
from ..learn.training import fine_tune, read_result
from ..saved.run_files import check_is_run, run_in
from .arguments import read_options
from .outputs import check_folder, check_new_file

_TYPICAL = 300  # sequences that set the scales of integers unless others are given


@dataclass(frozen=True)
class ExportArguments:
    """The options of orthornn export."""

    run: Path = field(metadata={"positional": "RUN"})
    """Run directory."""
    onnx: bool = False
    """Write model.onnx for whole sequences of any length and batch size, and step.onnx for streams; both are checked
    with onnxruntime."""
    torch_export: bool = False
    """Write the same two graphs as model.pt2 and step.pt2, for torch.export.load; both are checked."""
    safetensors: bool = False
    """Write folded.safetensors: the recurrent matrix and all other weights as plain tensors."""
    c: bool = False
    """Write C99 for microcontrollers (header, source, self-test, Makefile), and print what the network costs."""
    audio: bool = False
    """Write the weights as JSON, and the C++17 class for real-time audio that reads them."""
    name: str = "network"
    """Prefix of the C files and functions, and name of the JSON file of --audio."""
    form: CForm = "auto"
    """With --c or --audio: form of the transition; auto chooses the one with the fewest multiply-adds."""
    numbers: Numbers = "float32"
    """With --c: type of the weights. int8 and int16 have scales, from --calibration or --input-range."""
    calibration: Path | None = None
    """With integers: file with typical sequences of equal length, as for orthornn predict; they set the scales. Default: for
    a network of tables, sequences of its training part."""
    input_range: tuple[float, float] | None = None
    """With integers: smallest and largest input; the scales follow from a bound on the state."""
    steps: int | None = None
    """With --input-range: length of the longest sequence, required if the state of an endless sequence is unbounded."""
    fine_tune: int = 0
    """With integers: updates with rounded weights before the export, on the training data of the run."""
    fine_tune_lr: float = 1e-3
    """With --fine-tune: initial learning rate."""
    arduino: bool = False
    """With --c: also write library.properties, which makes the folder an Arduino library."""
    zephyr: bool = False
    """With --c: also write the files of a Zephyr module."""
    force: bool = False
    """Replace existing files. Files of --c and --audio that orthornn wrote are always replaced."""
    out: Path | None = None
    """Folder for the files. Default: the folder export of the run directory."""
    checkpoint: str = "chosen"
    """Weights to use: best, last, or the step of a checkpoint; chosen is best, or last if nothing was validated."""


DESCRIPTION = "Writes a trained network for use without orthornn, its recurrent matrices as plain ones."


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(ExportArguments, "orthornn export", DESCRIPTION, words or ["--help"])
    if not (arguments.onnx or arguments.torch_export or arguments.safetensors or arguments.c or arguments.audio):
        raise ArgumentError(
            "Expected at least one of --onnx, --torch-export, --safetensors, --c and --audio, but got none. Name one."
        )
    _check_c_options(arguments)
    check_is_run(run_in(arguments.run))  # first what is read, then what is written
    folder = arguments.out or arguments.run / "export"
    if arguments.out is None and folder.is_symlink():
        raise ArgumentError(
            f"Expected {folder} to be a folder of the run itself, but got a symbolic link. Name another with --out."
        )
    check_folder(folder)
    check_new_file([folder / name for name in _names(arguments)], arguments.force)
    with tempfile.TemporaryDirectory() as scratch:  # so that nothing is in the folder if one of the formats refuses
        made, said = _made(arguments, Path(scratch))
        contents = {path.relative_to(scratch).as_posix(): path.read_bytes() for path in made}
    if not arguments.force:
        check_replaceable([folder / name for name in contents if Path(name).name not in _names(arguments)])
    for line in (*said, *write_together(folder, contents)):
        show(line)
    return 0


def _made(arguments: ExportArguments, folder: Path) -> tuple[list[Path], list[str]]:
    """Write all requested formats to a folder; return the files and the messages about them."""
    loaded = load(arguments.run, arguments.checkpoint)
    model, description = loaded.model, loaded.description
    made: list[Path] = []
    said: list[str] = []
    if arguments.audio:
        sound = export.to_audio(loaded, folder, name=arguments.name, form=arguments.form)
        rate = "" if sound.sample_rate is None else f", trained at {sound.sample_rate:g} Hz"
        said.append(f"{sound.type}: {sound.multiply_adds} multiply-adds per sample{rate}")
        made += sound.files
    if arguments.safetensors:
        made += export.to_safetensors(model, folder)
    if arguments.torch_export:
        made += export.to_torch_export(model, folder, description)
    if arguments.onnx:
        made += export.to_onnx(model, folder, description)
    if arguments.c:  # the last, since fine-tuning takes its time
        calibration = _calibration(arguments, loaded)
        network, form = _tuned(arguments, loaded, calibration)
        code = export.to_c(
            network,
            folder,
            name=arguments.name,
            form=form,
            numbers=arguments.numbers,
            calibration=calibration,
            input_range=arguments.input_range,
            steps=arguments.steps,
            arduino=arguments.arduino,
            zephyr=arguments.zephyr,
        )
        said.append(code.table())
        made += code.files
    return made, said


def _names(arguments: ExportArguments) -> list[str]:
    """Return the names of the files except source code; C and C++ determine their own files."""
    names = []
    if arguments.onnx:
        names += ["model.onnx", "step.onnx"]
    if arguments.torch_export:
        names += ["model.pt2", "step.pt2"]
    if arguments.safetensors:
        names += ["folded.safetensors"]
    return names


def _tuned(arguments: ExportArguments, loaded: Loaded, calibration: Any) -> tuple[Any, CForm]:
    """Return the network to write, fine-tuned if requested, and the form of its transitions."""
    if not arguments.fine_tune:
        return loaded, arguments.form
    folder = loaded.directory or arguments.run  # of a search, that of its result
    check_data(folder, loaded.config.task)
    network = export.rounded(loaded, arguments.numbers, calibration=calibration, form=arguments.form)
    result = read_result(folder)
    begin = loaded.config.steps if result is None else result["steps"]
    found = fine_tune(network, loaded.config, begin, arguments.fine_tune, arguments.fine_tune_lr)
    metric = loaded.config.task.metric
    if found.before:
        show(
            f"validation {metric} with rounded weights: {found.before[metric]:.4g}, after {arguments.fine_tune} updates "
            f"{found.after[metric]:.4g}{'' if found.used else '; the weights before are written'}"
        )
    return network, "auto"


def _calibration(arguments: ExportArguments, loaded: Loaded) -> np.ndarray | list[np.ndarray] | None:
    """Return the sequences of --calibration, as a list from a table; else of a table's training part; or None."""
    if arguments.calibration is None:
        scaled = arguments.numbers != "float32" and arguments.input_range is None
        return _training_sequences(arguments, loaded) if scaled else None
    if isinstance(loaded.config.task, TableTask) and is_table(arguments.calibration):
        return [one.values for one, _ in loaded.tables.predict(arguments.calibration)]
    description = loaded.description
    x = read_sequences(arguments.calibration, description["input"] == "tokens")[0]
    wide = description["input_size"]
    return (
        x.reshape(len(x), -1, wide) if description["input"] != "tokens" and x.ndim == 2 and not x.shape[1] % wide else x
    )


def _training_sequences(arguments: ExportArguments, loaded: Loaded) -> list[np.ndarray]:
    """Return raw sequences of the training part of a run on a table, at most 300."""
    task, description = loaded.config.task, loaded.description
    if not isinstance(task, TableTask):
        raise ArgumentError(
            f"Expected --calibration FILE or --input-range LOWEST HIGHEST with --numbers {arguments.numbers}, but got "
            f"neither. Pass one of them."
        )
    check_data(loaded.directory or arguments.run, task)
    size = loaded.config.batch_size
    epoch = task.steps_per_epoch(size) or 1
    batches = (
        task.problem().train(step, size, loaded.config.seed).inputs for step in range(min(epoch, -(-_TYPICAL // size)))
    )
    read = [sequence for batch in batches for sequence in _sequences(batch)][:_TYPICAL]
    return [(x - np.asarray(description["offset"])) / np.asarray(description["scale"]) for x in read]


def _sequences(inputs: Tensor | PackedSequence) -> list[np.ndarray]:
    """Return the sequences (T, I) of a batch."""
    if isinstance(inputs, PackedSequence):
        return [sequence.numpy() for sequence in unpack_sequence(inputs)]
    return list(inputs.transpose(0, 1).numpy())


def _check_c_options(arguments: ExportArguments) -> None:
    """Raise ArgumentError if an option of C is given but nothing reads it, or a required one is missing."""
    if arguments.c:
        _check_integer_options(arguments)
        return
    shared = () if arguments.audio else ("name", "form")
    own = (*shared, "numbers", "calibration", "input_range", "steps", "fine_tune", "fine_tune_lr", "arduino", "zephyr")
    changed = [name for name in own if getattr(arguments, name) != getattr(ExportArguments, name)]
    if changed:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise ArgumentError(f"Expected --c with {options}, but got no --c. Add it, or leave {options} out.")


def _check_integer_options(arguments: ExportArguments) -> None:
    """Raise the same error for --c and the options for integers."""
    ranges = [name for name in ("calibration", "input_range") if getattr(arguments, name) is not None]
    if arguments.numbers == "float32":
        own = ("calibration", "input_range", "steps", "fine_tune", "fine_tune_lr")
        changed = [name for name in own if getattr(arguments, name) != getattr(ExportArguments, name)]
        if changed:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
            raise ArgumentError(
                f"Expected --numbers int8 or int16 with {options}, but got float32. Add it, or leave {options} out."
            )
    elif len(ranges) > 1:
        raise ArgumentError(
            f"Expected --calibration FILE or --input-range LOWEST HIGHEST with --numbers {arguments.numbers}, but got both. "
            f"Pass one of them."
        )
    if arguments.steps is not None and arguments.input_range is None:
        raise ArgumentError("Expected --input-range with --steps, but got none. Add it, or leave --steps out.")
    if arguments.fine_tune_lr != ExportArguments.fine_tune_lr and not arguments.fine_tune:
        raise ArgumentError("Expected --fine-tune with --fine-tune-lr, but got none. Add it, or leave the rate out.")
