"""Orthogonal and unitary recurrent networks for PyTorch."""

from . import activations, errors, kernels
from .modules import (
    GORU,
    DeltaRNN,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    convert,
)
from .parametrizations import (
    Givens,
    Householder,
    LeakyHouseholder,
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
    from . import diagnostics, export, optim, penalties
    from .learn.from_python import train
    from .learn.predict import load

__version__ = "0.1.0"

__all__ = [
    "GORU",
    "DeltaRNN",
    "Givens",
    "Householder",
    "LeakyHouseholder",
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
    "diagnostics",
    "errors",
    "export",
    "kernels",
    "load",
    "optim",
    "orthogonalize",
    "penalties",
    "train",
]


def __getattr__(name: str) -> object:
    """Import `orthornn.load` and `orthornn.train`, and the floors of training with them, when they are first asked for; and
    the submodules of __all__ that the networks do not need.
    """
    if name in ("diagnostics", "export", "optim", "penalties"):
        from importlib import import_module

        return import_module(f".{name}", __name__)
    if name == "load":
        from .learn.predict import load

        return load
    if name == "train":
        from .learn.from_python import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
