"""Training: a frozen configuration in, a run directory out."""

from __future__ import annotations

from .checkpoint import Checkpoints, read_checkpoint
from .config import (
    SCHEDULES,
    OptimizerConfig,
    PenaltyConfig,
    RecordConfig,
    RunConfig,
    ScheduleConfig,
    read_config,
)
from .directory import RunDirectory
from .fine_tune import FineTuning, fine_tune
from .log import read_metrics
from .loop import carry_out, resume, train
from .processes import Processes
from .run import Progress, Run, RunResult
from .trainer import Trainer
from .weights import load_model, read_description, read_result

__all__ = [
    "SCHEDULES",
    "Checkpoints",
    "FineTuning",
    "OptimizerConfig",
    "PenaltyConfig",
    "Processes",
    "Progress",
    "RecordConfig",
    "Run",
    "RunConfig",
    "RunDirectory",
    "RunResult",
    "ScheduleConfig",
    "Trainer",
    "carry_out",
    "fine_tune",
    "load_model",
    "read_checkpoint",
    "read_config",
    "read_description",
    "read_metrics",
    "read_result",
    "resume",
    "train",
]
