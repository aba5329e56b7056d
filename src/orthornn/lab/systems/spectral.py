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
from .initial_values import lasagne_, nonlinearity, start_slope_
from .model import OrthogonalModel, Where

DEFAULT_MARGIN = 0.1


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
class Spectral(OrthogonalModel):
    """OrthogonalRNN, SpectralMargin(margin=0.1), tanh (Vorontsov et al., 2017). The paper's gain is 1.05."""

    name: ClassVar[str] = "spectral"
    summary: ClassVar[str] = "singular values within a margin of 1, tanh (Vorontsov et al., 2017)"
    paper_readout: ClassVar[bool] = False

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
    clip_backward: float | None = None
    """Largest absolute value of an entry of the backward signal, inside back-propagation. Default: no clipping."""
    learn_h0: bool | None = None
    """Train the initial state. Default: no, it is zero."""
    nonnegative: bool | None = None
    """Replace singular values below 0, which a margin above 1 or none allows, by 0. Default: no."""
    initial_values: Literal["torch", "lasagne"] | None = None
    """Initial values besides the recurrent matrix: those of torch.nn.RNN and Linear (torch), or, as in the released code of
    the paper, small input weights, biases and trained initial state 0, and a Glorot readout (lasagne). Default: torch."""

    @property
    def glorot_readout(self) -> bool:
        """Whether the readout starts uniform Glorot with bias 0."""
        return self.initial_values == "lasagne"

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        margin = DEFAULT_MARGIN if self.margin is None else self.margin
        init: Init = "orthogonal" if self.init is None else self.init
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
        if self.initial_values == "lasagne":
            lasagne_(core)
        return start_slope_(core, self.slope)
