"""Timing against torch's own recurrent layers, on this machine."""

from __future__ import annotations

from orthornn.learn.timing import Contender, Timing, interleave

from .benchmark import BenchmarkPlan, Results, run
from .cases import Case, Work
from .scaling import Grid, Sweep, sweep

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
