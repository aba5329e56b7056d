"""Every system that the papers compare, by name: a recurrent core, a readout, and the width that meets a budget.

One file a family; each model is a frozen dataclass whose fields are its options.
"""

from __future__ import annotations

from .blocks import Blocks
from .build import build, count_parameters
from .cayley import Scornn, Scurnn
from .exponential import Dtriv, Exprnn
from .free import Elman, Irnn, LtIrnn, LtOrnn, Srnn
from .gated import Goru, Gru, Lstm, LstmOrthogonal, LstmPeephole, Rnn
from .householder import Ornn, OrnnRotations
from .model import DEFAULT_HIDDEN_SIZE, SIZES, Model, parse_count
from .reflections import DeltaNet, DeltaProduct, RumRotation, WordReflections
from .registry import MODEL_OPTIONS, MODELS, foreign, model_named, options
from .sequence_model import SequenceModel
from .spectral import Spectral
from .unitary import Eurnn, ExprnnUnitary, FullUrnn, Urnn

__all__ = [
    "DEFAULT_HIDDEN_SIZE",
    "MODELS",
    "MODEL_OPTIONS",
    "SIZES",
    "Blocks",
    "DeltaNet",
    "DeltaProduct",
    "Dtriv",
    "Elman",
    "Eurnn",
    "Exprnn",
    "ExprnnUnitary",
    "FullUrnn",
    "Goru",
    "Gru",
    "Irnn",
    "Lstm",
    "LstmOrthogonal",
    "LstmPeephole",
    "LtIrnn",
    "LtOrnn",
    "Model",
    "Ornn",
    "OrnnRotations",
    "Rnn",
    "RumRotation",
    "Scornn",
    "Scurnn",
    "SequenceModel",
    "Spectral",
    "Srnn",
    "Urnn",
    "WordReflections",
    "build",
    "count_parameters",
    "foreign",
    "model_named",
    "options",
    "parse_count",
]
