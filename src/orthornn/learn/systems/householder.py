"""Householder reflections (Mhammedi et al., 2017), as in the paper, and on a base of rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from ...modules import OrthogonalRNN
from ...modules.rnn import DEFAULT_REFLECTIONS
from ...parametrizations import Householder
from ...parametrizations.householder import Angles
from .initial_values import arjovsky_, nonlinearity, small_, start_slope_
from .model import OrthogonalModel, Where


@dataclass(frozen=True)
class Reflected(OrthogonalModel):
    """A model whose transition is a product of reflections."""

    narrow: ClassVar[bool] = True

    reflections: int | None = None
    """Number of Householder reflections m. Default: 32, or N if that is less."""
    nonlinearity: str | None = None
    """Activation. Default: leaky_relu for ornn, modrelu for ornn-rotations."""
    slope: float | None = None
    """Slope of leaky_relu, or the initial slope of prelu."""
    unit: bool | None = None
    """Scale the reflectors back to norm 1 after each update. Default: no."""

    @property
    def smallest_width(self) -> int:
        """Return the number of reflections as the smallest number of units."""
        return self.reflections or 1

    def method(self, width: int, *names: str, **more: Any) -> Householder:
        """Return the parametrization with the given options."""
        reflections = min(DEFAULT_REFLECTIONS, width) if self.reflections is None else self.reflections
        given = self.given(*names) if names else {}
        return Householder(reflections=reflections, **given, **more)


@dataclass(frozen=True)
class Ornn(Reflected):
    """OrthogonalRNN, Householder(reflections), leaky ReLU, h_0 trained (Mhammedi et al., 2017, section 5).

    Initial values follow Arjovsky et al.; the entries of the reflectors are U(-1, 1), which sets how fast Adam turns
    them.
    """

    name: ClassVar[str] = "ornn"
    summary: ClassVar[str] = "Householder reflections, leaky ReLU (Mhammedi et al., 2017)"

    base: Literal["identity", "rotations"] | None = None
    """Matrix that the reflections multiply: the identity, or rotations. Default: identity."""
    field: Literal["real", "complex"] | None = None
    """Field of the reflections and the states: real or complex. Default: real."""
    u1: Literal["sign", "soft"] | None = None
    """How u_1 acts if there are as many reflections as units: by its sign, or as a factor from -1 to 1 (a soft
    constraint). Default: sign.
    """

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = self.method(width, "base", "field", "unit", "u1")
        phi = nonlinearity(self.nonlinearity or "leaky_relu", self.slope)
        core = arjovsky_(
            OrthogonalRNN(input_size, width, parametrization=method, nonlinearity=phi, learn_h0=True, **where)
        )
        if not method.unit:
            full = method.field == "real" and method.reflections == width
            for suffix in core.suffixes:
                reflectors = core.get_parameter(f"transition_{suffix}.reflectors")
                nn.init.uniform_(reflectors[:-1] if full else reflectors, -1, 1)  # the last one is u_1, a sign
        return start_slope_(core, self.slope)


@dataclass(frozen=True)
class OrnnRotations(Reflected):
    """OrthogonalRNN, Householder(reflections, base="rotations"), modReLU, h_0 trained; small initial values."""

    name: ClassVar[str] = "ornn-rotations"
    summary: ClassVar[str] = "Householder reflections on a base of rotations, modReLU"

    angles: Angles | None = None
    """Initial angles of the rotations: from the full circle, from -90 to 90 degrees (quarter), or log-uniform (log).
    Default: full.
    """

    def core(self, input_size: int, width: int, where: Where) -> OrthogonalRNN:
        """Return the core with its initial values."""
        method = self.method(width, "angles", "unit", base="rotations")
        phi = nonlinearity(self.nonlinearity or "modrelu", self.slope)
        core = small_(
            OrthogonalRNN(input_size, width, parametrization=method, nonlinearity=phi, learn_h0=True, **where)
        )
        return start_slope_(core, self.slope)
