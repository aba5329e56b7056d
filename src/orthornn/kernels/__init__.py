"""The recurrence over time behind one narrow interface: `dense_rnn`, `compact_wy_rnn`, `rotations_rnn`, `operator_rnn`."""

from .functional import compact_wy_rnn, dense_rnn
from .linear import rotations_rnn
from .operator import operator_rnn

__all__ = ["compact_wy_rnn", "dense_rnn", "operator_rnn", "rotations_rnn"]
