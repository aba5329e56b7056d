"""The base of every model: a frozen dataclass whose fields are its options.

The fields, with the docstring below each, become command-line options with their help, and entries of config.json. A
field that is None takes the value that its docstring names. `parse` in a field's metadata reads its text on the command
line, if its type does not suffice.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from ..._checks import check_below_1, check_integer
from ...errors import ArgumentError
from ...kernels.checkpointing import Mode
from ...modules import GORU, DeltaRNN, OrthogonalBlocks, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from ..fields import check_choices
from .pooling import Pool

DEFAULT_HIDDEN_SIZE = 128
# A network is built only for its shapes before it is trusted, and that costs some bytes per unit.
LARGEST_WIDTH = 1 << 20
LARGEST_DEPTH = 1 << 8
LARGEST_LAGS = 1 << 12
LARGEST_ROTATIONS = 1 << 26
LARGEST_BUDGET = 1 << 40
SIZES = ("hidden_size", "parameters")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}

Core = OrthogonalRNN | OrthogonalBlocks | GORU | PeepholeLSTM | ReflectionRNN | DeltaRNN | nn.RNNBase
Where = dict[str, Any]  # {"device": ..., "dtype": ...}


def parse_count(text: str) -> int:
    """Return 5000, "5k" or "1.3m" as an integer. ArgumentError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.strip().lower())
    if match is None:
        raise ArgumentError(f"Expected parameters to be a number like 5000, 5k or 1.3m, but got {text!r}.")
    return round(float(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True)
class Model:
    """A recurrent core with its initial values, at a width or within a budget of parameters.

    name: Name on the command line and in config.json. summary: One line for help texts.
    paper_readout: Whether the readout starts as in the papers (uniform Glorot, bias 0), not as torch.nn.Linear does.
    narrow: Whether the number of parameters grows as N, not as N^2.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper_readout: ClassVar[bool] = True
    narrow: ClassVar[bool] = False

    hidden_size: int | None = None
    """Width N of the network. Default: 128, or as --parameters allows."""
    parameters: int | None = dataclass_field(default=None, metadata={"parse": parse_count})
    """Parameter budget, such as 5000, 5k or 1.3m; the width is the largest that stays within it."""

    head: Literal["linear", "mlp"] | None = None
    """Readout of the network's outputs: a matrix (linear), or a perceptron with one hidden layer of gelu units (mlp).
    Default: linear."""
    head_width: int | None = None
    """Hidden units of --head mlp. Default: 64."""
    pool: Pool | None = None
    """With one prediction per sequence: outputs that the head reads, the last one, the mean of all, both, or a summary
    (last, mean and maximum). Default: last."""
    dropout: float | None = None
    """Probability of zeroing the inputs of the head, and outputs between layers, in training. Default: 0."""

    lags: int | None = None
    """Steps of the input that a matrix next to the network reads: a linear autoregression, from which forecasts start.
    Default: 0."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.lags is not None:
            check_integer("lags", self.lags, 0, LARGEST_LAGS)
        if self.dropout is not None:
            check_below_1("dropout", self.dropout, "With 1 nothing reaches the head.")
        if self.head_width is not None:
            check_integer("head_width", self.head_width, 1, LARGEST_WIDTH)
            if self.head != "mlp":
                raise ArgumentError(
                    f"Expected head_width only with head='mlp', but got head_width={self.head_width} with "
                    f"head={self.head!r}. Pass head='mlp'."
                )
        if self.hidden_size is not None and self.parameters is not None:
            raise ArgumentError(
                f"Expected hidden_size or parameters, but got both, {self.hidden_size} and {self.parameters}. Pass "
                f"one: the width, or the number of parameters from which it follows."
            )
        given = self.given()
        for name in ("hidden_size", "reflections", "layers", "depth"):
            value, most = given.get(name), LARGEST_DEPTH if name == "depth" else LARGEST_WIDTH
            if isinstance(value, int) and value > most:
                raise ArgumentError(f"Expected {name} to be at most {most}, but got {value}.")
        layers = given.get("layers")
        if isinstance(layers, int) and layers * (self.hidden_size or 1) > LARGEST_ROTATIONS:
            raise ArgumentError(
                f"Expected layers times hidden_size to be at most {LARGEST_ROTATIONS}, but got {layers} times "
                f"{self.hidden_size}."
            )
        if self.parameters is not None and self.parameters > LARGEST_BUDGET:
            raise ArgumentError(f"Expected parameters to be at most {LARGEST_BUDGET}, but got {self.parameters}.")

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the options that this model has besides its size."""
        return tuple(entry.name for entry in dataclasses.fields(cls) if entry.name not in SIZES)

    def given(self, *names: str) -> dict[str, Any]:
        """Return the size and the options that are not None; of these names only, if there are some."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None and (not names or name in names)}

    def replace(self, **changes: Any) -> Model:
        """Return the same model with these options changed; None takes one back."""
        return dataclasses.replace(self, **changes)

    @property
    def forgets(self) -> bool:
        """Whether its transitions are made to be no longer orthogonal, by trained factors below 1."""
        return bool(getattr(self, "decay", False))

    @property
    def glorot_readout(self) -> bool:
        """Whether a readout that is a matrix starts uniform Glorot with bias 0; otherwise as torch.nn.Linear does."""
        return self.paper_readout

    @property
    def smallest_width(self) -> int:
        """Return the least width that the options allow."""
        return 1

    def layering(self) -> dict[str, Any]:
        """Return the arguments of the core that say how many layers and directions it has."""
        return {}

    def core(self, input_size: int, width: int, where: Where) -> Core:
        """Return the recurrent core with its initial values, which come from torch's global generator."""
        raise NotImplementedError

    def start(self, core: nn.Module, sequences: Iterable[Tensor], timed: bool) -> None:
        """Set those initial values of a core that depend on the data, in place, before its training.

        Args:
            core: What `core` returned.
            sequences: Training sequences (T, I), made only if they are asked for.
            timed: Whether their last input is the time since the step before.
        """


@dataclass(frozen=True)
class Layered(Model):
    """A model whose core has layers, of one direction or two."""

    depth: int | None = None
    """Layers, each of which reads the outputs of the layer below. Default: 1."""
    bidirectional: bool | None = None
    """Also read every sequence backwards, with separate weights; such a network cannot read streams, nor predict later
    values of what it reads. Default: no."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth is not None:
            check_integer("depth", self.depth, 1)

    def layering(self) -> dict[str, Any]:
        """Return number of layers, directions, and the dropout between layers."""
        depth = self.depth or 1
        between = {"dropout": self.dropout} if self.dropout and depth > 1 else {}
        return {"num_layers": depth, "bidirectional": bool(self.bidirectional), **between}


@dataclass(frozen=True)
class OrthogonalModel(Layered):
    """A model whose core is an OrthogonalRNN, or blocks of them."""

    memory: Mode | None = None
    """States of long sequences to store for the backward pass: all (store), or one per segment (checkpoint), from which
    the others are recomputed. Default: store."""
    segment: int | None = None
    """Steps per segment of --memory checkpoint. Default: the number that needs the least memory."""
