"""Stacked linear orthogonal recurrences with pointwise nonlinearities between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from ..._checks import check_number
from ...errors import ArgumentError
from ...modules import OrthogonalBlocks
from ...modules.blocks import Mixing, Norm
from ...parametrizations import Rotations
from .input_angles import set_angles
from .model import OrthogonalModel, Where

DEFAULT_DEPTH = 2
Angles = Literal["full", "quarter", "log", "inputs"]


@dataclass(frozen=True)
class Blocks(OrthogonalModel):
    """OrthogonalBlocks of rotations with trained angles; the width is the number of outputs."""

    name: ClassVar[str] = "blocks"
    summary: ClassVar[str] = "stacked linear orthogonal recurrences, gates between them"
    paper_readout: ClassVar[bool] = False

    depth: int | None = None
    """Number of blocks. Default: 2."""
    state_size: int | None = None
    """Units of each recurrence, an even number. Default: twice the width."""
    stride: int | None = None
    """Steps of the first block per step of the blocks above, which run at that lower rate. Default: 1."""
    mixing: Mixing | None = None
    """Nonlinearity between recurrences: a gated linear unit (glu), gelu, or a perceptron (mlp). Default: glu."""
    norm: Norm | None = None
    """Normalization of the inputs of every block except the first: layer, rms or none. Default: layer."""
    angles: Angles | None = None
    """Initial angles of the rotations: from the full circle, from -90 to 90 degrees (quarter), log-uniform (log), or at
    the frequencies of the training inputs (inputs). Default: full.
    """
    decay: bool | None = None
    """Train a factor below 1 for each rotation, which makes W non-orthogonal. Default: no."""
    decay_in: Literal["all", "first"] | None = None
    """Blocks that --decay acts on; the others stay orthogonal. Default: all."""
    r_min: float | None = None
    """Smallest initial factor of --decay (LRU's r_min); small factors forget fast. Default: 0.9."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.r_min is not None and check_number("r_min", self.r_min, 0, Rotations.radii[1]) == 0:
            raise ArgumentError("Expected r_min to be above 0, but got 0. Pass a small number such as 0.01.")
        for name in ("decay_in", "r_min"):
            if getattr(self, name) is not None and not self.decay:
                raise ArgumentError(
                    f"Expected {name} only with decay=True, but got {name}={getattr(self, name)!r} with decay={self.decay}. "
                    f"Pass decay=True."
                )

    def layering(self) -> dict[str, Any]:
        """Return the directions and the dropout between blocks, if there are several."""
        between = {"dropout": self.dropout} if self.dropout and self._depth > 1 else {}
        return {"bidirectional": bool(self.bidirectional), **between}

    @property
    def _depth(self) -> int:
        return DEFAULT_DEPTH if self.depth is None else self.depth

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalBlocks:
        """Return the core with its initial values."""
        plain = Rotations(**({} if self.angles == "inputs" else self.given("angles")))
        method = dataclasses.replace(plain, **self.given("decay"))
        if self.r_min is not None:
            method = dataclasses.replace(method, radii=(self.r_min, method.radii[1]))
        size = 2 * width if self.state_size is None else self.state_size
        options = self.given("mixing", "norm", "stride")
        above = plain if self.decay_in == "first" else method
        methods = [method, *[above] * (self._depth - 1)]
        return OrthogonalBlocks(input_size, width, size, self._depth, parametrization=methods, **options, **where)

    def start(self, core: nn.Module, sequences: Iterable[Tensor], timed: bool) -> None:
        """Draw the angles by the spectrum of the training sequences, if requested."""
        if self.angles == "inputs":
            set_angles(core, sequences, timed)
