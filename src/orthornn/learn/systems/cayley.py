"""Scaled Cayley transforms, real (Helfrich et al., 2018) and complex (Maduranga et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...modules import OrthogonalRNN
from ...parametrizations import ScaledCayley
from ...parametrizations.cayley import Init
from .initial_values import nonlinearity, small_, start_slope_
from .model import OrthogonalModel, Where


@dataclass(frozen=True)
class Scornn(OrthogonalModel):
    """OrthogonalRNN, ScaledCayley(negatives=N // 2), modReLU; small initial values (Helfrich et al., 2018)."""

    name: ClassVar[str] = "scornn"
    summary: ClassVar[str] = "scaled Cayley transform, modReLU (Helfrich et al., 2018)"

    negatives: int | None = None
    """Number of entries -1 in the diagonal D. Default: half of them."""
    init: Init | None = None
    """Initial recurrent matrix: blocks, zero or uniform. Default: blocks."""
    nonlinearity: str | None = None
    """Activation. Default: modrelu."""
    slope: float | None = None
    """Slope of leaky_relu, or the initial slope of prelu."""

    @property
    def smallest_width(self) -> int:
        """Return the number of entries -1 as the smallest number of units."""
        return self.negatives or 1

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        negatives = width // 2 if self.negatives is None else self.negatives
        method = ScaledCayley(negatives=negatives, init="blocks" if self.init is None else self.init)
        phi = nonlinearity(self.nonlinearity or "modrelu", self.slope)
        core = small_(OrthogonalRNN(input_size, width, parametrization=method, nonlinearity=phi, **where))
        return start_slope_(core, self.slope)


@dataclass(frozen=True)
class Scurnn(OrthogonalModel):
    """OrthogonalRNN, ScaledCayley(field="complex", phases=True), complex modReLU, h_0 trained; small initial values."""

    name: ClassVar[str] = "scurnn"
    summary: ClassVar[str] = "complex scaled Cayley transform with trained phases (Maduranga et al., 2018)"

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = ScaledCayley(field="complex", phases=True)
        core = OrthogonalRNN(input_size, width, parametrization=method, nonlinearity="modrelu", learn_h0=True, **where)
        return small_(core)
