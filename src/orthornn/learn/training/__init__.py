"""Training: a frozen configuration in, a run directory out. The names are imported when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..._warnings import warn

if TYPE_CHECKING:
    from ...saved.checkpoint import Checkpoints, read_checkpoint
    from ...saved.run_files import read_description, read_result
    from ..fine_tuning import FineTuning, fine_tune
    from ..runs.directory import RunDirectory, load_model
    from ..runs.log import read_metrics
    from ..runs.loop import resume, run_to_end, train
    from ..runs.result import Progress, RunResult
    from ..runs.run import Run
    from .config import (
        SCHEDULES,
        OptimizerConfig,
        PenaltyConfig,
        RecordConfig,
        RunConfig,
        ScheduleConfig,
        read_config,
    )
    from .processes import Processes
    from .trainer import Trainer

_CONFIG = (
    "SCHEDULES",
    "OptimizerConfig",
    "PenaltyConfig",
    "RecordConfig",
    "RunConfig",
    "ScheduleConfig",
    "read_config",
)
_MODULES = {
    "...saved.checkpoint": ("Checkpoints", "read_checkpoint"),
    "...saved.run_files": ("read_description", "read_result"),
    "..fine_tuning": ("FineTuning", "fine_tune"),
    "..runs.directory": ("RunDirectory", "load_model"),
    "..runs.log": ("read_metrics",),
    "..runs.loop": ("run_to_end", "resume", "train"),
    "..runs.result": ("Progress", "RunResult"),
    "..runs.run": ("Run",),
    ".config": _CONFIG,
    ".processes": ("Processes",),
    ".trainer": ("Trainer",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

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
    "fine_tune",
    "load_model",
    "read_checkpoint",
    "read_config",
    "read_description",
    "read_metrics",
    "read_result",
    "resume",
    "run_to_end",
    "train",
]


_FORMER = {"carry_out": "run_to_end"}


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        warn(f"{name} is called {_FORMER[name]} now. Call it so.", DeprecationWarning)
        name = _FORMER[name]
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)
