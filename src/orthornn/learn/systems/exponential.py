"""The exponential of a skew-symmetric matrix (Lezcano-Casado & Martinez-Rubio, 2019; Lezcano-Casado, 2019).

Input weights by He's normal distribution, b from U(-0.01, 0.01), as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ...modules import OrthogonalRNN
from ...parametrizations import MatrixExponential
from .model import OrthogonalModel, Where

DEFAULT_REBASE = 100


@dataclass(frozen=True)
class Exprnn(OrthogonalModel):
    """OrthogonalRNN, MatrixExponential(), modReLU."""

    name: ClassVar[str] = "exprnn"
    summary: ClassVar[str] = "exponential of a skew-symmetric matrix, modReLU (Lezcano-Casado & Martinez-Rubio, 2019)"

    rebase_every: int | None = None
    """Updates between two moves of the base. Default: never."""

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        return self._core(input_size, width, where, self.rebase_every)

    def _core(self, input_size: int, width: int, where: Where, rebase_every: int | None) -> OrthogonalRNN:
        method = MatrixExponential(rebase_every=rebase_every)
        core = OrthogonalRNN(input_size, width, parametrization=method, nonlinearity="modrelu", **where)
        for suffix in core.suffixes:
            nn.init.kaiming_normal_(core.get_parameter(f"weight_ih_{suffix}"), nonlinearity="relu")
        return core


@dataclass(frozen=True)
class Dtriv(Exprnn):
    """The same with rebase_every=100."""

    name: ClassVar[str] = "dtriv"
    summary: ClassVar[str] = "exprnn whose base moves every 100 updates (Lezcano-Casado, 2019)"

    rebase_every: int | None = None
    """Updates between two moves of the base. Default: 100."""

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        every = DEFAULT_REBASE if self.rebase_every is None else self.rebase_every
        return self._core(input_size, width, where, every)
