"""Orthogonal and unitary recurrent networks for PyTorch."""

from . import activations, errors, kernels
from .modules import GORU, OrthogonalBlocks, OrthogonalRNN, OrthogonalRNNCell, PeepholeLSTM, ReflectionRNN, convert
from .parametrizations import (
    Givens,
    Householder,
    MatrixExponential,
    RestrictedUnitary,
    Rotations,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    orthogonalize,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .lab.from_python import train
    from .lab.predict import load

__version__ = "0.1.0"

__all__ = [
    "GORU",
    "Givens",
    "Householder",
    "MatrixExponential",
    "OrthogonalBlocks",
    "OrthogonalRNN",
    "OrthogonalRNNCell",
    "PeepholeLSTM",
    "ReflectionRNN",
    "RestrictedUnitary",
    "Rotations",
    "ScaledCayley",
    "SpectralMargin",
    "Stiefel",
    "Unconstrained",
    "activations",
    "convert",
    "errors",
    "kernels",
    "load",
    "orthogonalize",
    "train",
]


def __getattr__(name: str) -> object:
    """Import `orthornn.load` and `orthornn.train`, and the floors of training with them, when they are first asked for."""
    if name == "load":
        from .lab.predict import load

        return load
    if name == "train":
        from .lab.from_python import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
