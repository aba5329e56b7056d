"""The recurrences on one NVIDIA GPU: verified, then timed beside cuDNN's layers, in one run that can be gone on with."""

from .benchmark import CASES, BenchmarkPlan, run

__all__ = ["CASES", "BenchmarkPlan", "run"]
