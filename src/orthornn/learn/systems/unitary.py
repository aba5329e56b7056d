"""Unitary networks: complex modReLU, h_0 trained, initial values as in Arjovsky et al., 2016."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...modules import OrthogonalRNN
from ...modules.goru import DEFAULT_LAYERS
from ...parametrizations import Givens, MatrixExponential, Parametrization, RestrictedUnitary, Stiefel
from .initial_values import arjovsky_
from .model import OrthogonalModel, Where


@dataclass(frozen=True)
class UnitaryModel(OrthogonalModel):
    """A model with a unitary transition."""

    def method(self) -> Parametrization:
        """Return the parametrization of the transition."""
        raise NotImplementedError

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = self.method()
        core = OrthogonalRNN(input_size, width, parametrization=method, nonlinearity="modrelu", learn_h0=True, **where)
        return arjovsky_(core)


@dataclass(frozen=True)
class Urnn(UnitaryModel):
    """RestrictedUnitary() (Arjovsky et al., 2016)."""

    name: ClassVar[str] = "urnn"
    narrow: ClassVar[bool] = True
    summary: ClassVar[str] = "unitary of restricted capacity, by the FFT (Arjovsky et al., 2016)"

    def method(self) -> RestrictedUnitary:
        """Return the parametrization of the transition."""
        return RestrictedUnitary()


@dataclass(frozen=True)
class FullUrnn(UnitaryModel):
    """Stiefel(field="complex") (Wisdom et al., 2016)."""

    name: ClassVar[str] = "full-urnn"
    summary: ClassVar[str] = "the unitary matrix itself on its manifold (Wisdom et al., 2016)"

    def method(self) -> Stiefel:
        """Return the parametrization of the transition."""
        return Stiefel(field="complex")


@dataclass(frozen=True)
class Eurnn(UnitaryModel):
    """Givens(layers=2, field="complex") (Jing et al., 2016)."""

    name: ClassVar[str] = "eurnn"
    narrow: ClassVar[bool] = True
    summary: ClassVar[str] = "layers of unitary rotations (Jing et al., 2016)"

    layers: int | Literal["fft"] | None = None
    """Layers of rotations, or fft. Default: 2."""

    def method(self) -> Givens:
        """Return the parametrization of the transition."""
        return Givens(layers=DEFAULT_LAYERS if self.layers is None else self.layers, field="complex")


@dataclass(frozen=True)
class ExprnnUnitary(UnitaryModel):
    """MatrixExponential(field="complex") (Hyland & Raetsch, 2017)."""

    name: ClassVar[str] = "exprnn-unitary"
    summary: ClassVar[str] = "exponential of a skew-Hermitian matrix (Hyland & Raetsch, 2017)"

    rebase_every: int | None = None
    """Updates between two moves of the base. Default: never."""

    def method(self) -> MatrixExponential:
        """Return the parametrization of the transition."""
        return MatrixExponential(field="complex", rebase_every=self.rebase_every)
