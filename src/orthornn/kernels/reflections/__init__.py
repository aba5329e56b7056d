"""A recurrence whose transition is a product of reflections chosen per step; README.md has the derivation.

functional: arguments -> ReflectionCall. kernel: what the frames run. reference, cpp: the backends.
"""

from .functional import reflection_rnn

__all__ = ["reflection_rnn"]
