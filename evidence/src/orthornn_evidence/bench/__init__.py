"""Timing against torch's own recurrent layers, on this machine."""

from __future__ import annotations

from .benchmark import BenchmarkPlan, Results, run
from .cases import Case, Work
from .scaling import Grid, Sweep, sweep
from .timing import Contender, Timing, interleave

__all__ = [
    "BenchmarkPlan",
    "Case",
    "Contender",
    "Grid",
    "Results",
    "Sweep",
    "Timing",
    "Work",
    "interleave",
    "run",
    "sweep",
]
