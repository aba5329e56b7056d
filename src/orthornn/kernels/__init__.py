"""The recurrence over time behind `dense_rnn`, `compact_wy_rnn`, `rotations_rnn`, `operator_rnn`, `reflection_rnn` and
`delta_rnn`.

The road of a call: functional -> autograd -> execute -> backends. README.md has the map.
"""

from .delta import delta_rnn
from .functional import compact_wy_rnn, dense_rnn, rotations_rnn
from .operator_rnn import operator_rnn
from .reflections import reflection_rnn

__all__ = ["compact_wy_rnn", "delta_rnn", "dense_rnn", "operator_rnn", "reflection_rnn", "rotations_rnn"]
