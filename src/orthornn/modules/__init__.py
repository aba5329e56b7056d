"""The networks."""

from .blocks import OrthogonalBlocks
from .cell import OrthogonalRNNCell
from .convert import ApproximationWarning, convert
from .goru import GORU
from .lstm import PeepholeLSTM
from .missing import hold_missing
from .rnn import OrthogonalRNN
from .transition import Transition

__all__ = [
    "GORU",
    "ApproximationWarning",
    "OrthogonalBlocks",
    "OrthogonalRNN",
    "OrthogonalRNNCell",
    "PeepholeLSTM",
    "Transition",
    "convert",
    "hold_missing",
]
