"""A trained network as C99: one header, one source, no heap.

`to_c` writes NAME.h, NAME.c and NAME_selftest.c, and files for build systems. The weights are constants and the caller
owns the state, a struct. The code calls tanhf, hypotf, erff, expf, sqrtf and fabsf of libc if an activation or a
normalization needs them, and no other function (none at all with integers). See docs/how_to/microcontroller.md.

folded         the network as numbers, in float64; blocks and reading hold the parts next to the recurrences
bounds         ranges of inputs and states, which determine the scales of integers
fixed          the network in integers, and its twin in Python; fixed_blocks: blocks, pools and lags;
               fixed_arithmetic: sums, products and tables
rounded        the network with weights rounded to these integers, for fine-tuning
body           the functions, independent of the number format; body_blocks: those next to recurrences; float_numbers and
               fixed_numbers: the two dialects
reference      the expected outputs and their tolerance
module         the check that the module computes the same
source, text   the generated files; project_files: those of build systems
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..._checks import check_choice, check_flag, check_integer, check_number
from ..._files import write_together
from ..._warnings import warn
from ...errors import ArgumentError
from ..held_steps import warn_of_held_steps
from ..units import warn_of_large_offsets
from . import project_files
from .bounds import Ranges, bits_lost, calibrated, find_ranges
from .disturbance import has_rounding_bounds, rounding_bounds
from .fixed import FixedNetwork, quantize
from .fixed_blocks import HELD_PLACES
from .fixed_numbers import FixedDialect
from .float_numbers import FloatDialect
from .folded import CForm, FoldedNetwork, fold_network, model_of
from .module import check_against_module
from .reference import example, follow
from .rounded import RoundedNetwork, rounded
from .source import MARK, Generated, Sizes, Vectors, header, selftest, source
from .text import check_identifier

__all__ = [
    "CExport",
    "RoundedNetwork",
    "Sizes",
    "check_replaceable",
    "fold_network",
    "model_of",
    "rounded",
    "sizes_of",
    "to_c",
    "write_files",
]

Numbers = Literal["float32", "int16", "int8"]
NUMBERS: tuple[str, ...] = get_args(Numbers)
_SELFTEST_STEPS = 20
_MARGIN, _MARGIN_OF_BLOCKS = 1.25, 4.0
_ROUNDED_STEPS = (1, 10, 100)  # for the bounds in the header
_LARGEST_TOKEN_CLASSES = 65535
_MOST_BITS_LOST = 7  # of a state's 15 bits without sign: 8 remain, one more than an int8 weight has


@dataclass(frozen=True)
class CExport:
    """The files that `to_c` wrote.

    Attributes:
        files: Paths of the files.
        sizes: Bytes of flash and of RAM, and multiply-adds per step.
        network: The numbers of the network as written, in float64.
        integers: The network in integers; its ``run`` returns the same bits as the C code. None for float32.
    """

    files: tuple[Path, ...]
    sizes: Sizes
    network: FoldedNetwork
    integers: FixedNetwork | None = None

    def table(self) -> str:
        """Return the costs as text, one per line."""
        return "\n".join(self.sizes.lines())

    def rounding_bound(self, steps: int) -> float:
        """Return an upper bound, in Euclidean norm, on how far rounding to integers moves the outputs within `steps` steps.

        The bound holds for all inputs and all states of the network before rounding that are within the ranges of the
        integers; with `input_range` the states always are. It is infinite for modReLU with b > 0, which is discontinuous.

        Args:
            steps: Number of steps T, from 1 to 10^7.

        Raises:
            ArgumentError: If the network was exported as float32.
        """
        check_integer("steps", steps, 1, 10**7)
        if self.integers is None:
            raise ArgumentError(
                "Expected an export in integers, but got float32. Pass numbers='int16' or 'int8' to to_c."
            )
        return rounding_bounds(self.integers, [steps])[0]


def to_c(
    network: Any,
    folder: str | Path,
    *,
    name: str = "network",
    numbers: Numbers = "float32",
    form: CForm = "auto",
    calibration: Any = None,
    input_range: tuple[float, float] | None = None,
    steps: int | None = None,
    margin: float | None = None,
    makefile: bool = True,
    arduino: bool = False,
    zephyr: bool = False,
    force: bool = False,
) -> CExport:
    """Write a network as C99.

    Args:
        network: An OrthogonalRNN, OrthogonalBlocks, an OrthogonalRNNCell or a torch.nn.RNN; a module with such a ``core``
            and a linear ``head``, whose ``forward``, if it has one, returns ``head`` applied to the core's outputs; a run
            returned by `orthornn.load`, for which the C code takes inputs in the units of the training data and contains
            the labels; or the result of :func:`rounded`.
        folder: Output directory, created if missing.
        name: Prefix of the names of files and functions; a C identifier. Default: ``"network"``.
        numbers: ``"float32"``; or ``"int16"`` or ``"int8"``, which is the type of the weights next to an int16 state and
            32-bit sums. Integers need `calibration` or `input_range`, which determine the scales. OrthogonalBlocks, and
            networks with vectors of series or a perceptron as readout, need `calibration`. Default: ``"float32"``.
        form: ``"dense"``, ``"reflections"`` (N M numbers), ``"rotations"`` (linear layers with an orthogonal W) or
            ``"hadamard"`` (N bits, for :class:`orthornn.Hadamard`) for all layers; ``"auto"`` selects the form with the
            fewest multiply-adds, or additions, for each layer. Default: ``"auto"``.
        calibration: Typical raw inputs (B, T, I) or (T, I), tokens (B, T), or a list of sequences of several lengths; only
            with integers. The largest values on these sequences determine the scales.
        input_range: Lowest and highest raw input; only with integers. The scales follow from a bound on the state that
            holds for all such inputs. If the state is not bounded for sequences of any length, `steps` is required. A
            warning is issued if the bound leaves states fewer than 8 of their 15 bits, as it does if W is far from
            orthogonal.
        steps: Length of the longest sequence, for that bound.
        margin: Factor on the largest calibrated values of states, and for OrthogonalBlocks also of inputs and features;
            larger values are clipped. Default: None, which is 1.25, or 4 for OrthogonalBlocks, because columns of a table
            drift and blocks have bits to spare.
        makefile: Write a Makefile that compiles and runs the self-test. Default: ``True``.
        arduino: Write library.properties, which makes the folder an Arduino library. Default: ``False``.
        zephyr: Write the files of a Zephyr module. Default: ``False``.
        force: Replace files that orthornn did not write. Default: ``False``.

    Returns:
        The paths of the files and the cost of the network.

    Raises:
        ArgumentError: If the network has no C form, its ``forward`` computes more than its head and core, or a file that
            orthornn did not write already exists. No file is written then.

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
    folded = _folded(network, form)
    fixed = None
    if numbers == "float32":
        if any(option is not None for option in (calibration, input_range, steps)):
            raise ArgumentError(
                "Expected numbers='int16' or 'int8' with calibration, input_range or steps, but got numbers='float32'."
            )
        made = _floats(folded, name)
        vectors = _float_vectors(folded)
    else:
        if margin is None:
            margin = _MARGIN_OF_BLOCKS if folded.blocks else _MARGIN
        check_number("margin", margin, 1.0, 1024.0)
        ranges = find_ranges(folded, calibration, input_range, steps, margin)
        if input_range is not None:
            _warn_of_wide_bounds(folded, input_range, steps, ranges)
        fixed = quantize(folded, int(numbers.removeprefix("int")), ranges)
        _warn_of_jumps(folded)
        made, vectors = _integers(fixed, name), _fixed_vectors(fixed)
    files = _texts(made, vectors, makefile, arduino, zephyr)
    return CExport(write_files(Path(folder), files, force), made.sizes(), folded, fixed)


def sizes_of(network: Any, numbers: Numbers = "float32") -> Sizes:
    """Return the cost that `to_c` reports for a network with these numbers, trained or not.

    Raises:
        ArgumentError: If the network has no C form.
    """
    folded = _folded(network, "auto")
    if numbers == "float32":
        return _floats(folded, "network").sizes()
    ranges = calibrated(
        folded, example(folded, _SELFTEST_STEPS)[None], _MARGIN
    )  # any scales: they do not change the cost
    return _integers(quantize(folded, int(numbers.removeprefix("int")), ranges), "network").sizes()


def _folded(network: Any, form: CForm) -> FoldedNetwork:
    """Return the numbers of a network; raise an error if it has no C form or computes anything else."""
    model, description = model_of(network)
    warn_of_large_offsets(description)
    warn_of_held_steps(description)
    folded = fold_network(model, description, form)
    if folded.tokens and folded.input_size > _LARGEST_TOKEN_CLASSES:
        raise ArgumentError(
            f"Expected at most {_LARGEST_TOKEN_CLASSES} input classes, but got {folded.input_size}. A token is a uint16_t."
        )
    check_against_module(folded, model, description)
    return replace(folded, threshold=getattr(network, "threshold", None))


def _floats(folded: FoldedNetwork, name: str) -> Generated:
    return Generated(folded, FloatDialect(folded), name, ("Numbers are float32.",))


def _warn_of_wide_bounds(
    folded: FoldedNetwork, input_range: tuple[float, float], steps: int | None, ranges: Ranges
) -> None:
    """Warn if the bound leaves states fewer than 8 of their 15 bits, which makes them no finer than int8 weights."""
    for k, lost in enumerate(bits_lost(folded, *input_range, steps, ranges)):
        if lost > _MOST_BITS_LOST:
            warn(
                f"The bound on the state of layer {k}, {ranges.states[k]:.3g}, is 2^{lost:.1f} times the largest state on "
                f"random inputs from {input_range[0]:g} to {input_range[1]:g}, so states use only {max(0, 15 - lost):.1f} of "
                f"their 15 bits. The bound grows with the norm of W at each step. Pass calibration=, typical inputs, or "
                f"fewer steps; an orthogonal W has a narrow bound. To silence this: "
                f"warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
            )


def _warn_of_jumps(folded: FoldedNetwork) -> None:
    """Warn of modReLU with a threshold b > 0, which jumps from -b to b at 0, so that rounding flips signs."""
    for k, layer in enumerate(folded.layers):
        if layer.phi.name not in ("modrelu", "complex_modrelu") or layer.parameter is None:
            continue
        count = int((layer.parameter > 0).sum())
        if count:
            warn(
                f"layer {k} has {layer.phi.name} with a threshold b > 0 in {count} of {len(layer.parameter)} units. These "
                f"jump from -b to b at 0: rounding flips their sign, and the integers may diverge from the network. Measure "
                f"the accuracy of the result's `integers`, or train with nonlinearity='tanh' or 'leaky_relu'. To silence "
                f"this: warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
            )


def _integers(fixed: FixedNetwork, name: str) -> Generated:
    scales = ", ".join(f"{layer.scale:.6g}" for layer in fixed.layers)
    states = "states int16"
    if any(layer.turns is not None for layer in fixed.layers):
        states = f"states of rotations int32, which matrices read as int16 ({HELD_PLACES} binary places fewer)"
    notes = (
        f"Weights are int{fixed.bits}, {states}, sums 32 bits.",
        f"A 16-bit state is its integer times {scales} (one number per layer); larger states are clipped.",
        f"The scales come from {fixed.ranges.source}.",
        "A step executes the same instructions for all inputs.",
        *_rounding(fixed),
    )
    scaling = {"input_scale": fixed.input_scale, "input_offset": fixed.input_offset}
    return Generated(fixed.network, FixedDialect(fixed), name, notes, True, **scaling, output_scale=fixed.output_scale)


def _rounding(fixed: FixedNetwork) -> tuple[str, ...]:
    """Return the lines of the header about the effect of rounding on outputs; none if no bound covers the network."""
    if not has_rounding_bounds(fixed):
        return ()
    limits = rounding_bounds(fixed, _ROUNDED_STEPS)
    if not np.isfinite(limits).all():
        return ("No bound on the effect of rounding exists: the nonlinearity jumps, or a sum saturates.",)
    steps, found = ", ".join(map(str, _ROUNDED_STEPS)), ", ".join(f"{limit:.2g}" for limit in limits)
    return (
        f"After {steps} steps, rounding has moved the outputs by at most {found} (Euclidean norm),",
        "if inputs and states before rounding are within their ranges.",
    )


def _fixed_vectors(fixed: FixedNetwork) -> Vectors:
    x, states, rows = fixed.quantize(example(fixed.network, _SELFTEST_STEPS)), fixed.first_states(), []
    for row in x:
        y, states = fixed.step(row, states)
        rows.append(y)
    return Vectors(x, np.stack(rows))


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


def _float_vectors(network: FoldedNetwork) -> Vectors:
    """Return vectors computed in float64; the tolerance covers float32 rounding in every step."""
    found = follow(network, _SELFTEST_STEPS, float(np.finfo(np.float32).eps))
    return Vectors(found.x, found.y, found.tolerance)


def write_files(folder: Path, files: dict[str, str], force: bool) -> tuple[Path, ...]:
    """Write all files, or none if orthornn did not write one that already exists."""
    if not force:
        check_replaceable([folder / name for name in files])
    return tuple(write_together(folder, {name: content.encode("ascii") for name, content in files.items()}))


def check_replaceable(paths: Iterable[Path]) -> None:
    """Raise ArgumentError if a path of a source file exists and was not written by orthornn."""
    foreign = [path for path in paths if not _may_replace(path)]
    if foreign:
        raise ArgumentError(
            f"Expected {', '.join(map(str, foreign))} to be missing or written by orthornn, but got something else. "
            f"Choose another folder or name, or pass force=True (--force) to replace it."
        )


def _may_replace(path: Path) -> bool:
    """Return whether `path` can be written without loss: it does not exist, or is a file with orthornn's mark."""
    if not path.is_symlink() and not path.exists():
        return True
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return MARK.encode() in file.read(400)
