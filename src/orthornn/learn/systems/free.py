"""Baselines with one free recurrent matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from ...modules import OrthogonalRNN
from ...parametrizations import Unconstrained
from ...parametrizations.unconstrained import Init
from .initial_values import arjovsky_, lasagne_, nonlinearity, start_slope_, torch_
from .model import OrthogonalModel, Where


@dataclass(frozen=True)
class Irnn(OrthogonalModel):
    """OrthogonalRNN, Unconstrained(init="identity"), ReLU; input weights N(0, 0.001^2), biases 0 (Le et al., 2015)."""

    name: ClassVar[str] = "irnn"
    summary: ClassVar[str] = "ReLU network from the identity (Le et al., 2015)"

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = Unconstrained(init="identity")
        core = OrthogonalRNN(input_size, width, parametrization=method, nonlinearity="relu", **where)
        for suffix in core.suffixes:
            nn.init.normal_(core.get_parameter(f"weight_ih_{suffix}"), std=0.001)
            nn.init.zeros_(core.get_parameter(f"bias_ih_{suffix}"))
        return core


@dataclass(frozen=True)
class Srnn(OrthogonalModel):
    """OrthogonalRNN, Unconstrained(), tanh, h_0 trained (Mhammedi et al., 2017, section 5).

    Initial values as in Arjovsky et al.; W uniform Glorot.
    """

    name: ClassVar[str] = "srnn"
    summary: ClassVar[str] = "simple network, tanh, with the initial values of ornn (Mhammedi et al., 2017)"

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = Unconstrained()
        core = arjovsky_(
            OrthogonalRNN(input_size, width, parametrization=method, nonlinearity="tanh", learn_h0=True, **where)
        )
        for suffix in core.suffixes:
            nn.init.xavier_uniform_(core.get_parameter(f"transition_{suffix}.weight"))
        return core


@dataclass(frozen=True)
class LasagneModel(OrthogonalModel):
    """A network of the paper, whose fields that are left out make it the one that torch.nn.RNN would be."""

    paper_readout: ClassVar[bool] = False

    clip_backward: float | None = None
    """Largest absolute value of an entry of the backward signal, inside back-propagation. Default: no clipping."""
    learn_h0: bool | None = None
    """Train the initial state. Default: no, it is zero."""
    initial_values: Literal["torch", "lasagne"] | None = None
    """Initial values except the recurrent matrix: as in torch.nn.RNN and Linear (torch), or, as in the released code of
    Vorontsov et al., small input weights, biases and trained initial state 0, and a Glorot readout (lasagne). Default:
    torch."""

    @property
    def glorot_readout(self) -> bool:
        """Whether the readout starts uniform Glorot with bias 0."""
        return self.initial_values == "lasagne"

    def filled(self, core: OrthogonalRNN) -> OrthogonalRNN:
        """Give a core the initial values that are asked for; return it."""
        return lasagne_(core) if self.initial_values == "lasagne" else torch_(core)


@dataclass(frozen=True)
class Elman(LasagneModel):
    """OrthogonalRNN, Unconstrained(init="orthogonal"), tanh (Vorontsov et al., 2017, section 3.2)."""

    name: ClassVar[str] = "elman"
    summary: ClassVar[str] = "one free recurrent matrix, from an orthogonal one"

    init: Init | None = None
    """Initial recurrent matrix: orthogonal, glorot, identity or uniform. Default: orthogonal."""
    nonlinearity: str | None = None
    """Activation. Default: tanh."""
    slope: float | None = None
    """Slope of leaky_relu, or the initial slope of prelu."""

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = Unconstrained("orthogonal" if self.init is None else self.init)
        phi = nonlinearity(self.nonlinearity or "tanh", self.slope)
        core = OrthogonalRNN(
            input_size,
            width,
            parametrization=method,
            nonlinearity=phi,
            learn_h0=bool(self.learn_h0),
            clip_backward=self.clip_backward,
            **where,
        )
        return start_slope_(self.filled(core), self.slope)


@dataclass(frozen=True)
class LtOrnn(OrthogonalModel):
    """OrthogonalRNN, linear_transition, Unconstrained(init="orthogonal"), ReLU (Henaff et al., 2016)."""

    name: ClassVar[str] = "lt-ornn"
    summary: ClassVar[str] = "transition outside the ReLU, from an orthogonal matrix (Henaff et al., 2016)"
    init: ClassVar[Literal["orthogonal", "identity"]] = "orthogonal"

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = Unconstrained(init=self.init)
        return OrthogonalRNN(
            input_size, width, parametrization=method, nonlinearity="relu", linear_transition=True, **where
        )


@dataclass(frozen=True)
class LtIrnn(LtOrnn):
    """The same from the identity."""

    name: ClassVar[str] = "lt-irnn"
    summary: ClassVar[str] = "transition outside the ReLU, from the identity (Henaff et al., 2016)"
    init: ClassVar[Literal["orthogonal", "identity"]] = "identity"
