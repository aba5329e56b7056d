"""Orthogonal and unitary recurrent networks for PyTorch."""

from . import activations, errors, kernels
from .modules import GORU, OrthogonalRNN, OrthogonalRNNCell, PeepholeLSTM, convert
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
    "GORU",
    "Givens",
    "Householder",
    "MatrixExponential",
    "OrthogonalRNN",
    "OrthogonalRNNCell",
    "PeepholeLSTM",
    "RestrictedUnitary",
    "ScaledCayley",
    "SpectralMargin",
    "Stiefel",
    "Unconstrained",
    "activations",
    "convert",
    "errors",
    "kernels",
    "orthogonalize",
]
