"""Training: a frozen configuration in, a run directory out."""

from __future__ import annotations

from .config import ModelConfig, OptimizerConfig, PenaltyConfig, RecordConfig, RunConfig, read_config
from .directory import RunDirectory
from .log import read_metrics
from .loop import Progress, Run, RunResult, Trainer, train

__all__ = [
    "ModelConfig",
    "OptimizerConfig",
    "PenaltyConfig",
    "Progress",
    "RecordConfig",
    "Run",
    "RunConfig",
    "RunDirectory",
    "RunResult",
    "Trainer",
    "read_config",
    "read_metrics",
    "train",
]
