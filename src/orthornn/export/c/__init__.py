"""A trained network as C99: one header, one source, no heap.

`to_c` writes NAME.h, NAME.c and NAME_selftest.c, and files for build systems. The weights are constants, the state is a
struct of the caller's, and nothing of libc is used but tanhf, hypotf and fabsf where an activation needs them (no function
at all with integers). See docs/microcontroller.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..._checks import check_choice, check_flag
from ..._files import write_atomically
from ...errors import ArgumentError, ArgumentTypeError, CheckpointError
from . import project_files
from .float_numbers import FloatDialect
from .folded import CForm, FoldedNetwork, fold_network
from .source import MARK, Generated, Sizes, Vectors, header, selftest, source
from .text import check_identifier

__all__ = ["CExport", "Sizes", "fold_network", "to_c"]

Numbers = Literal["float32"]
NUMBERS: tuple[str, ...] = Numbers.__args__  # type: ignore[attr-defined]
_SELFTEST_STEPS = 20
_LARGEST_TOKEN_CLASSES = 65535


@dataclass(frozen=True)
class CExport:
    """What `to_c` wrote.

    Attributes:
        files: The paths.
        sizes: Bytes of flash and of RAM, and multiply-adds per step.
        network: The numbers of the network as they were written, in float64.
    """

    files: tuple[Path, ...]
    sizes: Sizes
    network: FoldedNetwork

    def table(self) -> str:
        """Return the costs as text, one per line."""
        return "\n".join(self.sizes.lines())


def to_c(
    network: Any,
    folder: str | Path,
    *,
    name: str = "network",
    numbers: Numbers = "float32",
    form: CForm = "auto",
    makefile: bool = True,
    arduino: bool = False,
    zephyr: bool = False,
    force: bool = False,
) -> CExport:
    """Write a network as C99.

    Args:
        network: An OrthogonalRNN, an OrthogonalRNNCell or a torch.nn.RNN; such a ``core`` with a linear ``head``; or a run,
            as `orthornn.load` returns it: then the C takes inputs in the units of the training data, and has its labels.
        folder: Where to write; it is made if it is missing.
        name: Begins the names of the files and functions; a C identifier. Default: ``"network"``.
        numbers: Number format of weights and states. Default: ``"float32"``.
        form: ``"dense"``, ``"reflections"`` (N M numbers) or ``"rotations"`` (linear layers with an orthogonal W) for all
            layers; ``"auto"`` takes the one with the fewest multiply-adds for each. Default: ``"auto"``.
        makefile: Write a Makefile that compiles and runs the self-test. Default: ``True``.
        arduino: Write library.properties, with which the folder is an Arduino library. Default: ``False``.
        zephyr: Write the files of a Zephyr module. Default: ``False``.
        force: Replace files that orthornn did not write. Default: ``False``.

    Returns:
        The files and what the network costs.

    Raises:
        ArgumentError: If the network has no C form, or a file of somebody else's is in the way. Nothing is written then.

    Example::

        >>> import tempfile
        >>> from orthornn import Householder, OrthogonalRNN
        >>> rnn = OrthogonalRNN(3, 8, parametrization=Householder(reflections=2))
        >>> made = to_c(rnn, tempfile.mkdtemp())
        >>> made.sizes.ram
        32
    """
    check_identifier(name)
    check_choice("numbers", numbers, NUMBERS)
    flags = {"makefile": makefile, "arduino": arduino, "zephyr": zephyr, "force": force}
    for flag, value in flags.items():
        check_flag(flag, value)
    model, description = _model_of(network)
    folded = fold_network(model, description, form)
    if folded.tokens and folded.input_size > _LARGEST_TOKEN_CLASSES:
        raise ArgumentError(
            f"Expected at most {_LARGEST_TOKEN_CLASSES} classes of input, but got {folded.input_size}. A token is a uint16_t."
        )
    _check_against_module(folded, model, description)
    made = Generated(folded, FloatDialect(folded), name, ("Numbers are float32.",))
    files = _texts(made, _float_vectors(folded), makefile, arduino, zephyr)
    return CExport(_write(Path(folder), files, force), made.sizes(), folded)


def _texts(made: Generated, vectors: Vectors, makefile: bool, arduino: bool, zephyr: bool) -> dict[str, str]:
    """Return the text of every file by its path in the folder."""
    files = {
        f"{made.name}.h": header(made),
        f"{made.name}.c": source(made),
        f"{made.name}_selftest.c": selftest(made, vectors),
    }
    if makefile:
        files["Makefile"] = project_files.makefile(made.name)
    if arduino:
        files["library.properties"] = project_files.arduino(made.name, made.sizes())
    if zephyr:
        files |= project_files.zephyr(made.name)
    return files


def _model_of(network: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return a module, and the description of its run if it comes from one."""
    description = getattr(network, "description", None)
    if isinstance(description, dict) and isinstance(getattr(network, "model", None), torch.nn.Module):
        return network.model, description
    if not isinstance(network, torch.nn.Module):
        raise ArgumentTypeError(
            f"Expected a torch.nn.Module, or a run as orthornn.load returns it, but got {type(network).__name__}. "
            f"Of a run directory, pass orthornn.load(path)."
        )
    return network, None


def example(network: FoldedNetwork, steps: int) -> np.ndarray:
    """Return raw inputs (T, I), or tokens (T,), that a network might read: the same ones every time."""
    random = np.random.default_rng(0)
    if network.tokens:
        return random.integers(0, network.input_size, steps)
    x = random.standard_normal((steps, network.input_size))
    if network.input_scale is not None and network.input_offset is not None:
        scale = np.where(network.input_scale == 0, 1, network.input_scale)
        x = (x - network.input_offset) / scale
    return x.astype(np.float32)


def _float_vectors(network: FoldedNetwork) -> Vectors:
    """Return vectors by float64; the tolerance is rounding of float32 in every step."""
    x, states, rows = example(network, _SELFTEST_STEPS), network.first_states(), []
    largest = 1.0
    for row in x:
        y, states = network.step(row, states)
        rows.append(y)
        largest = max(largest, float(np.abs(y).max()), *(float(np.abs(h).max()) for h in states))
    outputs = np.stack(rows)
    sums = max(layer.size + layer.V.shape[1] for layer in network.layers)
    readout = 1.0 if network.Y is None else max(1.0, float(np.abs(network.Y).sum(1).max()))
    tolerance = 8 * float(np.finfo(np.float32).eps) * (_SELFTEST_STEPS + sums) * largest * readout
    return Vectors(x, outputs, tolerance)


@torch.no_grad()
def _check_against_module(folded: FoldedNetwork, model: Any, description: dict[str, Any] | None) -> None:
    """Raise CheckpointError unless the folded network computes what the module does, to rounding of the module's dtype."""
    core = model.core if hasattr(model, "core") else model
    core = core.rnn if hasattr(core, "rnn") else core
    x = example(folded, 9)
    parameter = next(core.parameters())
    read = torch.from_numpy(np.ascontiguousarray(folded.prepared(x) if not folded.tokens else x))
    read = read.to(parameter.device) if folded.tokens else read.to(parameter.device, parameter.dtype)
    read = read.unsqueeze(0 if core.batch_first else 1)
    if folded.tokens and isinstance(core, torch.nn.RNN):
        read = torch.nn.functional.one_hot(read, folded.input_size).to(parameter.dtype)
    was_training = core.training
    core.eval()
    try:
        states = core(read)[0]
    finally:
        core.train(was_training)
    states = states[0] if core.batch_first else states[:, 0]
    states = torch.view_as_real(states).flatten(-2) if states.is_complex() else states
    expected = (model.head(states) if hasattr(model, "head") else states).double().cpu().numpy()
    if description is not None and folded.says == "values":
        expected = expected * np.asarray(description.get("target_scale", 1)) + np.asarray(
            description.get("target_offset", 0)
        )
    now, rows = folded.first_states(), []
    for row in x:
        y, now = folded.step(row, now)
        rows.append(y)
    found = np.stack(rows)
    eps = float(torch.finfo(parameter.dtype).eps)
    readout = 1.0 if folded.Y is None else max(1.0, float(np.abs(folded.Y).sum(1).max()))
    largest = max(1.0, float(np.abs(expected).max()), *(float(np.abs(h).max()) for h in now))
    inputs = max(layer.size + layer.V.shape[1] for layer in folded.layers)
    difference = float(np.abs(found - expected).max())
    if not difference <= 8 * eps * (len(x) + inputs) * largest * readout:
        raise CheckpointError(
            f"Expected the generated network to compute what the module does, but they differ by {difference:.2g}."
        )


def _write(folder: Path, files: dict[str, str], force: bool) -> tuple[Path, ...]:
    """Write all files, or none if one of somebody else's is in the way."""
    paths = {folder / name: content for name, content in files.items()}
    if not force:
        foreign = [path for path in paths if not _may_replace(path)]
        if foreign:
            raise ArgumentError(
                f"Expected {', '.join(map(str, foreign))} to be missing or written by orthornn, but got something else. "
                f"Choose another folder or name, or pass force=True (--force) to replace it."
            )
    for path, content in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded = content.encode("ascii")
        write_atomically(path, lambda file, encoded=encoded: file.write(encoded))  # type: ignore[misc]
    return tuple(paths)


def _may_replace(path: Path) -> bool:
    """Return whether nothing is lost if `path` is written: it is not there, or it is a file with our mark."""
    if not path.is_symlink() and not path.exists():
        return True
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return MARK.encode() in file.read(400)
