"""Orthogonal and unitary recurrent networks for PyTorch."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import activations, automata, certify, diagnostics, errors, export, kernels, optim, penalties
    from .learn.from_python import train
    from .learn.predict import load
    from .modules import (
        GORU,
        DeltaRNN,
        OrthogonalBlocks,
        OrthogonalRNN,
        OrthogonalRNNCell,
        PeepholeLSTM,
        ReflectionRNN,
    )
    from .modules.convert import convert
    from .parametrizations import (
        Givens,
        Hadamard,
        Householder,
        LeakyHouseholder,
        MatrixExponential,
        RestrictedUnitary,
        Rotations,
        ScaledCayley,
        SpectralMargin,
        Stiefel,
        Unconstrained,
    )
    from .parametrizations.orthogonalize import orthogonalize

__version__ = "0.1.0"

__all__ = [
    "GORU",
    "DeltaRNN",
    "Givens",
    "Hadamard",
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
    "automata",
    "certify",
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

_DOORS = {"load": "learn.predict", "train": "learn.from_python"}  # to the workbench
_MODULES = ("modules", "parametrizations")


def __getattr__(name: str) -> object:
    """Import a name of __all__ when it is first asked for: torch, which all of them need, takes seconds."""
    from importlib import import_module

    if name not in (*__all__, *_MODULES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _DOORS:
        return getattr(import_module(f".{_DOORS[name]}", __name__), name)
    for place in () if name in _MODULES else _MODULES:
        found = import_module(f".{place}", __name__)
        if name in found.__all__:
            globals()[name] = getattr(found, name)
            return globals()[name]
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
