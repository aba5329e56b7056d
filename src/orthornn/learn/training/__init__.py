"""Training: a frozen configuration in, a run directory out. The names of runs are imported when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..._warnings import warn
from .config import SCHEDULES as SCHEDULES
from .config import OptimizerConfig as OptimizerConfig
from .config import PenaltyConfig as PenaltyConfig
from .config import RecordConfig as RecordConfig
from .config import RunConfig as RunConfig
from .config import ScheduleConfig as ScheduleConfig
from .config import read_config as read_config
from .processes import Processes as Processes
from .trainer import Trainer as Trainer

if TYPE_CHECKING:
    from ...saved.checkpoint import Checkpoints as Checkpoints
    from ...saved.checkpoint import read_checkpoint as read_checkpoint
    from ...saved.run_files import read_description as read_description
    from ...saved.run_files import read_result as read_result
    from ..fine_tuning import FineTuning as FineTuning
    from ..fine_tuning import fine_tune as fine_tune
    from ..runs.directory import RunDirectory as RunDirectory
    from ..runs.directory import load_model as load_model
    from ..runs.log import read_metrics as read_metrics
    from ..runs.loop import resume as resume
    from ..runs.loop import run_to_end as run_to_end
    from ..runs.loop import train as train
    from ..runs.result import Progress as Progress
    from ..runs.result import RunResult as RunResult
    from ..runs.run import Run as Run

_LATER = {
    "...saved.checkpoint": ("Checkpoints", "read_checkpoint"),
    "...saved.run_files": ("read_description", "read_result"),
    "..fine_tuning": ("FineTuning", "fine_tune"),
    "..runs.directory": ("RunDirectory", "load_model"),
    "..runs.log": ("read_metrics",),
    "..runs.loop": ("run_to_end", "resume", "train"),
    "..runs.result": ("Progress", "RunResult"),
    "..runs.run": ("Run",),
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}
_FORMER = {"carry_out": "run_to_end"}


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        warn(f"{name} is called {_FORMER[name]} now. Call it so.", DeprecationWarning)
        name = _FORMER[name]
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)
