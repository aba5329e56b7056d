"""Singular values within a margin of 1 (Vorontsov et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import ClassVar, Literal

from ..._checks import check_number
from ...errors import ArgumentError
from ...modules import OrthogonalRNN
from ...parametrizations import SpectralMargin
from ...parametrizations.spectral import Init
from .free import LasagneModel
from .initial_values import nonlinearity, start_slope_
from .model import Where


def parse_margin(text: str) -> float | Literal["none"]:
    """Return a margin as a number, or "none". ArgumentError for anything else."""
    if text.strip().lower() == "none":
        return "none"
    try:
        return check_number("margin", float(text), 0)
    except ValueError:
        raise ArgumentError(
            f"Expected margin to be a number of at least 0, or none for a free spectrum, but got {text!r}."
        ) from None


@dataclass(frozen=True)
class Spectral(LasagneModel):
    """OrthogonalRNN, SpectralMargin(margin=0.1), tanh (Vorontsov et al., 2017). The paper's gain is 1.05."""

    name: ClassVar[str] = "spectral"
    summary: ClassVar[str] = "singular values within a margin of 1, tanh (Vorontsov et al., 2017)"

    margin: float | Literal["none"] | None = dataclass_field(default=None, metadata={"parse": parse_margin})
    """Largest distance of the singular values from 1, or none for no limit. Default: 0.1."""
    init: Init | None = None
    """Initial recurrent matrix: orthogonal, glorot or identity. Default: orthogonal."""
    nonlinearity: str | None = None
    """Activation. Default: tanh."""
    slope: float | None = None
    """Slope of leaky_relu, or the initial slope of prelu."""
    gain: float | None = None
    """Factor on the recurrent matrix, 1.05 in the paper. Default: 1."""
    nonnegative: bool | None = None
    """Replace singular values below 0, which a margin above 1 or none allows, by 0. Default: no."""

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        margin = SpectralMargin.margin if self.margin is None else self.margin
        init = SpectralMargin.init if self.init is None else self.init
        core = OrthogonalRNN(
            input_size,
            width,
            parametrization=SpectralMargin(None if margin == "none" else margin, init, bool(self.nonnegative)),
            nonlinearity=nonlinearity(self.nonlinearity or "tanh", self.slope),
            learn_h0=bool(self.learn_h0),
            gain=1.0 if self.gain is None else self.gain,
            clip_backward=self.clip_backward,
            **where,
        )
        return start_slope_(self.filled(core), self.slope)
