"""The options of networks of Vorontsov et al., 2017, that come from their released code, a recurrent layer of Lasagne."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...modules import OrthogonalRNN
from .initial_values import lasagne_
from .model import OrthogonalModel


@dataclass(frozen=True)
class LasagneModel(OrthogonalModel):
    """A network of the paper, whose fields that are left out make it the one that torch.nn.RNN would be."""

    paper_readout: ClassVar[bool] = False

    clip_backward: float | None = None
    """Largest absolute value of an entry of the backward signal, inside back-propagation. Default: no clipping."""
    learn_h0: bool | None = None
    """Train the initial state. Default: no, it is zero."""
    initial_values: Literal["torch", "lasagne"] | None = None
    """Initial values besides the recurrent matrix: those of torch.nn.RNN and Linear (torch), or, as in the released code of
    Vorontsov et al., small input weights, biases and trained initial state 0, and a Glorot readout (lasagne). Default:
    torch."""

    @property
    def glorot_readout(self) -> bool:
        """Whether the readout starts uniform Glorot with bias 0."""
        return self.initial_values == "lasagne"

    def filled(self, core: OrthogonalRNN) -> OrthogonalRNN:
        """Give a core, which has torch's initial values, those that are asked for; return it."""
        return lasagne_(core) if self.initial_values == "lasagne" else core
