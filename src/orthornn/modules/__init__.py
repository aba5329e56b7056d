"""The networks."""

from .cell import OrthogonalRNNCell
from .rnn import OrthogonalRNN
from .transition import Transition

__all__ = ["OrthogonalRNN", "OrthogonalRNNCell", "Transition"]
