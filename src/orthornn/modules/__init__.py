"""The networks."""

from .blocks import OrthogonalBlocks
from .cell import OrthogonalRNNCell
from .convert import ApproximationWarning, convert
from .delta import DeltaRNN
from .goru import GORU
from .lstm import PeepholeLSTM
from .missing import hold_missing
from .online import OnlineLearner
from .reflections import ReflectionRNN
from .rnn import OrthogonalRNN
from .transition import Transition

__all__ = [
    "GORU",
    "ApproximationWarning",
    "DeltaRNN",
    "OnlineLearner",
    "OrthogonalBlocks",
    "OrthogonalRNN",
    "OrthogonalRNNCell",
    "PeepholeLSTM",
    "ReflectionRNN",
    "Transition",
    "convert",
    "hold_missing",
]
