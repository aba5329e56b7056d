"""Parametrizations: free tensors -> W, one method per file."""

from .cayley import ScaledCayley
from .exponential import MatrixExponential
from .givens import Givens
from .hadamard import Hadamard
from .householder import Householder
from .leaky import LeakyHouseholder
from .orthogonalize import orthogonalize
from .parametrization import BoundParametrization, Parametrization
from .restricted import RestrictedUnitary
from .rotations import Rotations
from .spectral import SpectralMargin
from .stiefel import Stiefel
from .unconstrained import Unconstrained

__all__ = [
    "BoundParametrization",
    "Givens",
    "Hadamard",
    "Householder",
    "LeakyHouseholder",
    "MatrixExponential",
    "Parametrization",
    "RestrictedUnitary",
    "Rotations",
    "ScaledCayley",
    "SpectralMargin",
    "Stiefel",
    "Unconstrained",
    "orthogonalize",
]
