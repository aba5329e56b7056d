"""The recurrences on one NVIDIA GPU: verified, then timed next to cuDNN's layers, in one run that can be resumed."""

from .benchmark import CASES, BenchmarkPlan, run

__all__ = ["CASES", "BenchmarkPlan", "run"]
