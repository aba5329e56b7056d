"""The delta rule: a recurrence with a matrix state that is erased and written along keys; README.md has the derivation.

functional: arguments -> DeltaCall. autograd: the frame. reference, chunked, cpp: the backends.
"""

from .functional import delta_rnn

__all__ = ["delta_rnn"]
