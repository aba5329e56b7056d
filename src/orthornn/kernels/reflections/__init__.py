"""A recurrence whose transition is a product of reflections chosen per step; README.md has the derivation.

functional: arguments -> ReflectionCall. autograd: the frame. reference, cpp: the backends.
"""

from .functional import reflection_rnn

__all__ = ["reflection_rnn"]
