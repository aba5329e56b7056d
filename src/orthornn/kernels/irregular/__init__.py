"""Rotations over irregular time, h_t = exp(-lambda dt_t) R(omega dt_t) h_{t-1} + x_t;
docs/derivations/irregular_time.md derives it.

call: the tensors of a run. kernel: the kernel that the frames run. reference, cpp: the backends.
"""

from .call import IrregularCall
from .kernel import run
from .reference import turned

__all__ = ["IrregularCall", "run", "turned"]
