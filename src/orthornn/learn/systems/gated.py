"""Gated networks, and torch's own.

torch's LSTM and RNN have two bias vectors, and only their sum matters, while the papers count one: the second
is fixed at 0 here and is not a parameter. (The two biases of a GRU differ in effect.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from ...modules import GORU, PeepholeLSTM
from ...modules.goru import DEFAULT_LAYERS
from ...parametrizations import Givens
from .initial_values import one_bias_
from .model import Layered, Model, Where


@dataclass(frozen=True)
class Goru(Model):
    """GORU, Givens(layers=2), modReLU, h_0 trained (Jing et al., 2017)."""

    name: ClassVar[str] = "goru"
    summary: ClassVar[str] = "gated, with layers of rotations (Jing et al., 2017)"

    layers: int | Literal["fft"] | None = None
    """Layers of rotations, or fft. Default: 2."""

    def core(self, input_size: int, width: int, where: Where) -> GORU:
        """Return the core with its initial values."""
        method = Givens(layers=DEFAULT_LAYERS if self.layers is None else self.layers)
        return GORU(input_size, width, parametrization=method, learn_h0=True, **where)


@dataclass(frozen=True)
class Lstm(Layered):
    """torch.nn.LSTM, biases 0 but the forget gate's, which is 5 (Mhammedi et al., 2017, section 5)."""

    name: ClassVar[str] = "lstm"
    summary: ClassVar[str] = "torch.nn.LSTM, forget bias 5"
    paper_readout: ClassVar[bool] = False

    forget_bias: float | None = None
    """Initial forget bias. Default: 5."""
    init: Literal["uniform", "glorot"] | None = None
    """Initial matrices: torch's (uniform), or uniform Glorot for each gate and the readout (glorot). Default:
    uniform.
    """

    @property
    def glorot_readout(self) -> bool:
        """Whether the readout starts uniform Glorot with bias 0."""
        return self.init == "glorot"

    def core(self, input_size: int, width: int, where: Where) -> nn.RNNBase:
        """Return the core with its initial values."""
        core = nn.LSTM(input_size, width, **where)
        for name, parameter in core.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.zeros_(parameter)
                forget = parameter[width : 2 * width]  # torch's order: i, f, g, o
                nn.init.constant_(forget, 5.0 if self.forget_bias is None else self.forget_bias)
            elif name.startswith("weight") and self.init == "glorot":
                for gate in parameter.detach().split(width):
                    nn.init.xavier_uniform_(gate)
        return one_bias_(core)


@dataclass(frozen=True)
class LstmPeephole(Model):
    """PeepholeLSTM, forget bias 1 (Vorontsov et al., 2017)."""

    name: ClassVar[str] = "lstm-peephole"
    summary: ClassVar[str] = "LSTM with peepholes, forget bias 1"
    paper_readout: ClassVar[bool] = False

    forget_bias: float | None = None
    """Initial forget bias. Default: 1."""
    init: Literal["uniform", "orthogonal"] | None = None
    """Initial matrices: uniform or orthogonal. Default: uniform."""

    def core(self, input_size: int, width: int, where: Where) -> PeepholeLSTM:
        """Return the core with its initial values."""
        return PeepholeLSTM(input_size, width, **self.given("forget_bias", "init"), **where)


@dataclass(frozen=True)
class LstmOrthogonal(Model):
    """PeepholeLSTM without peepholes, from orthogonal matrices, forget bias 1."""

    name: ClassVar[str] = "lstm-orthogonal"
    summary: ClassVar[str] = "LSTM from orthogonal matrices, forget bias 1"
    paper_readout: ClassVar[bool] = False

    forget_bias: float | None = None
    """Initial forget bias. Default: 1."""

    def core(self, input_size: int, width: int, where: Where) -> PeepholeLSTM:
        """Return the core with its initial values."""
        given = self.given("forget_bias")
        return PeepholeLSTM(input_size, width, peepholes=False, init="orthogonal", **given, **where)


@dataclass(frozen=True)
class Gru(Layered):
    """torch.nn.GRU."""

    name: ClassVar[str] = "gru"
    summary: ClassVar[str] = "torch.nn.GRU"
    paper_readout: ClassVar[bool] = False

    def core(self, input_size: int, width: int, where: Where) -> nn.RNNBase:
        """Return the core with its initial values."""
        return nn.GRU(input_size, width, **where)


@dataclass(frozen=True)
class Rnn(Layered):
    """torch.nn.RNN, tanh."""

    name: ClassVar[str] = "rnn"
    summary: ClassVar[str] = "torch.nn.RNN, tanh"
    paper_readout: ClassVar[bool] = False

    def core(self, input_size: int, width: int, where: Where) -> nn.RNNBase:
        """Return the core with its initial values."""
        return one_bias_(nn.RNN(input_size, width, **where))
