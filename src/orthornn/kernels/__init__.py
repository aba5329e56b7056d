"""The recurrence over time behind one narrow interface: `dense_rnn` and `compact_wy_rnn`."""

from .functional import compact_wy_rnn, dense_rnn

__all__ = ["compact_wy_rnn", "dense_rnn"]
