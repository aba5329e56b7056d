"""The delta rule: a recurrence with a matrix state that is erased and written along keys.

docs/derivations/delta_rule.md has the derivation.

functional: arguments -> DeltaCall. kernel: what the frames run. reference, chunked, cpp: the backends.
"""

from .functional import delta_rnn

__all__ = ["delta_rnn"]
