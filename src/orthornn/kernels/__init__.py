"""The recurrences behind `dense_rnn`, `compact_wy_rnn`, `rotations_rnn`, `operator_rnn`, `reflection_rnn` and
`delta_rnn`, and `denormals_as_zero` for training loops.

The path of a call: functional -> recurrence -> backends. README.md has the map.
"""

from .delta import delta_rnn
from .denormals import denormals_as_zero
from .functional import compact_wy_rnn, dense_rnn, rotations_rnn
from .operator_rnn import operator_rnn
from .reflections import reflection_rnn

__all__ = [
    "compact_wy_rnn",
    "delta_rnn",
    "denormals_as_zero",
    "dense_rnn",
    "operator_rnn",
    "reflection_rnn",
    "rotations_rnn",
]
