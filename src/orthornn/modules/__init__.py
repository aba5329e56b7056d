"""The networks."""

from .cell import OrthogonalRNNCell
from .missing import hold_missing
from .rnn import OrthogonalRNN
from .transition import Transition

__all__ = ["OrthogonalRNN", "OrthogonalRNNCell", "Transition", "hold_missing"]
