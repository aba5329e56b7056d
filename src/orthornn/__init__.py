"""Orthogonal and unitary recurrent networks for PyTorch."""

from . import activations, errors, kernels
from .modules import OrthogonalRNN, OrthogonalRNNCell
from .parametrizations import (
    Givens,
    Householder,
    MatrixExponential,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    orthogonalize,
)

__version__ = "0.1.0"

__all__ = [
    "Givens",
    "Householder",
    "MatrixExponential",
    "OrthogonalRNN",
    "OrthogonalRNNCell",
    "RestrictedUnitary",
    "ScaledCayley",
    "SpectralMargin",
    "Stiefel",
    "Unconstrained",
    "activations",
    "errors",
    "kernels",
    "orthogonalize",
]
