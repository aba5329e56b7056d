"""Free numbers -> W: one method, one file."""

from .base import BoundParametrization, Parametrization
from .cayley import ScaledCayley
from .householder import Householder
from .orthogonalize import orthogonalize
from .spectral import SpectralMargin
from .stiefel import Stiefel
from .unconstrained import Unconstrained

__all__ = [
    "BoundParametrization",
    "Householder",
    "Parametrization",
    "ScaledCayley",
    "SpectralMargin",
    "Stiefel",
    "Unconstrained",
    "orthogonalize",
]
