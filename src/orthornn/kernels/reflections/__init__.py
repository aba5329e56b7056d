"""A recurrence whose transition is a product of reflections chosen per step; docs/derivations/reflections.md derives
it.

functional: arguments -> ReflectionCall. kernel: the kernel that the frames run. reference, cpp: the backends.
"""

from .functional import reflection_rnn

__all__ = ["reflection_rnn"]
