"""Timing against torch's own recurrent layers, on this machine."""

from __future__ import annotations

from .cases import Case, Work
from .run import Plan, Results, run
from .sweep import Grid, Sweep, sweep
from .timing import Contender, Timing, interleave

__all__ = ["Case", "Contender", "Grid", "Plan", "Results", "Sweep", "Timing", "Work", "interleave", "run", "sweep"]
