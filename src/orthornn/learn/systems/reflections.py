"""Transitions that depend on the input: products of reflections, the delta rule, and the rotation of RUM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...modules import DeltaRNN, ReflectionRNN
from .model import Model, Where

PER_STEP = 4
"""Reflections per step, unless a model names others."""


@dataclass(frozen=True)
class _InputDependent(Model):
    """A model whose reflections the input chooses."""

    paper_readout: ClassVar[bool] = False
    narrow: ClassVar[bool] = True

    reflections: int | None = None
    """Reflections per step. Default: 4, or N if that is less."""

    @property
    def smallest_width(self) -> int:
        """Return the number of reflections as the smallest number of units."""
        return self.reflections or 1

    def count(self, width: int) -> int:
        """Return the number of reflections at this width."""
        return min(PER_STEP, width) if self.reflections is None else self.reflections


@dataclass(frozen=True)
class WordReflections(_InputDependent):
    """ReflectionRNN whose input acts only as a transition: beta = 2, nothing is added, h_0 trained."""

    name: ClassVar[str] = "word-reflections"
    summary: ClassVar[str] = "the input chooses reflections and nothing else; for words in groups"

    def core(self, input_size: int, width: int, where: Where) -> ReflectionRNN:
        """Return the core with its initial values."""
        return ReflectionRNN(
            input_size,
            width,
            reflections=self.count(width),
            additive=False,
            bias=False,
            learn_h0=True,
            **where,
        )


@dataclass(frozen=True)
class DeltaProduct(_InputDependent):
    """ReflectionRNN with beta and a scalar gate from the input, as in DeltaProduct (Siems et al., 2025), vector
    state.
    """

    name: ClassVar[str] = "delta-product"
    summary: ClassVar[str] = "reflections, their strengths and a gate from the input (Siems et al., 2025)"

    def core(self, input_size: int, width: int, where: Where) -> ReflectionRNN:
        """Return the core with its initial values."""
        reflections = self.count(width)
        return ReflectionRNN(
            input_size, width, reflections=reflections, beta="input", gate="scalar", learn_h0=True, **where
        )


@dataclass(frozen=True)
class DeltaNet(Model):
    """DeltaRNN with one update per step and its strength from the input (Schlag et al., 2021; Yang et al., 2024).

    The state is a matrix of N x N numbers for each sequence. Strengths go up to 2, which allows reflections as updates.
    """

    name: ClassVar[str] = "delta-net"
    summary: ClassVar[str] = "a matrix state, erased and written along keys by the delta rule (Yang et al., 2024)"
    paper_readout: ClassVar[bool] = False
    narrow: ClassVar[bool] = True

    def core(self, input_size: int, width: int, where: Where) -> DeltaRNN:
        """Return the core with its initial values."""
        return DeltaRNN(input_size, width, **where)


@dataclass(frozen=True)
class RumRotation(Model):
    """ReflectionRNN that turns one direction into another at each step, ReLU (Dangovski et al., 2019).

    Both directions come from the input alone; in RUM one of them also reads the state.
    """

    name: ClassVar[str] = "rum-rotation"
    summary: ClassVar[str] = "a rotation between two directions that the input names (Dangovski et al., 2019)"
    paper_readout: ClassVar[bool] = False
    narrow: ClassVar[bool] = True

    def core(self, input_size: int, width: int, where: Where) -> ReflectionRNN:
        """Return the core with its initial values."""
        return ReflectionRNN(input_size, width, transition="rotation", nonlinearity="relu", learn_h0=True, **where)
