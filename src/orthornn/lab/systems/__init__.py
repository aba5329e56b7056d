"""Every system that the papers compare, by name: a recurrent core, a readout, and the width that meets a budget."""

from __future__ import annotations

from .build import DEFAULT_HIDDEN_SIZE, MODEL_OPTIONS, MODELS, SequenceModel, build, count_parameters
from .cores import SYSTEMS, System

__all__ = [
    "DEFAULT_HIDDEN_SIZE",
    "MODELS",
    "MODEL_OPTIONS",
    "SYSTEMS",
    "SequenceModel",
    "System",
    "build",
    "count_parameters",
]
