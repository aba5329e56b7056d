"""Learning-rate schedules: torch.optim.lr_scheduler's, from their description."""

from __future__ import annotations

import math
import warnings
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from ...errors import ArgumentError
from .config import RunConfig, ScheduleConfig

_WARMUP_START = 0.01
_PLATEAU_VALIDATIONS = 10
_PLATEAU_THRESHOLD = 1e-4  # torch's default, relative to the best metric


class _Plateau(ReduceLROnPlateau):
    """ReduceLROnPlateau for metrics of either sign: better is what is better by a part of the best metric's size.

    torch multiplies the metric itself, so a negative metric that does not change, or gets slightly worse, counts as
    better.
    """

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count a validation, and lower the rates if there were too many without an improvement."""
        known = math.isfinite(self.best)  # infinite before the first
        self.threshold_mode, self.threshold = "abs", _PLATEAU_THRESHOLD * abs(self.best) if known else 0.0
        super().step(metrics, epoch)


def check_warmup(config: RunConfig) -> None:
    """Raise ArgumentError if a run ends before its warmup does."""
    warmup, steps = config.schedule.warmup, config.steps
    if warmup >= steps:
        raise ArgumentError(
            f"Expected warmup to be shorter than the training of {steps} update{'s' * (steps != 1)}, but got {warmup}, with "
            f"which no update has the whole learning rate. Lower the warmup, or train longer."
        )


def make_scheduler(
    optimizer: Optimizer, config: ScheduleConfig, steps: int, higher_is_better: bool
) -> LRScheduler | None:
    """Return the scheduler, or None for a constant rate.

    ReduceLROnPlateau is stepped with the task's metric after every validation, all others after every update.
    """
    if config.name == "plateau":
        return _Plateau(
            optimizer,
            mode="max" if higher_is_better else "min",
            factor=0.1 if config.factor is None else config.factor,
            patience=_PLATEAU_VALIDATIONS if config.every is None else config.every,
        )
    main = _main(optimizer, config, max(1, steps - config.warmup))
    if not config.warmup:
        return main
    rise = LinearLR(optimizer, start_factor=_WARMUP_START, total_iters=config.warmup)
    return rise if main is None else SequentialLR(optimizer, [rise, main], milestones=[config.warmup])


def rates_after(updates: int, optimizer: Optimizer, scheduler: LRScheduler | None) -> list[float]:
    """Return the rate of each group after so many updates, to which a scheduler that was just made is brought."""
    if scheduler is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch expects a step of the optimizer before each of the scheduler
            for _ in range(updates):
                scheduler.step()
    return [group["lr"] for group in optimizer.param_groups]


def _main(optimizer: Optimizer, config: ScheduleConfig, steps: int) -> LRScheduler | None:
    if config.name == "constant":
        return None
    if config.name in ("step", "exponential"):
        factor = 0.1 if config.factor is None else config.factor
        every = max(1, steps // 3) if config.every is None else config.every
        if config.name == "step":
            return StepLR(optimizer, every, factor)
        return ExponentialLR(optimizer, factor ** (1 / every))
    end = 0.0 if config.factor is None else config.factor
    if config.name == "cosine":
        # CosineAnnealingLR's floor is one rate for all groups; here it is one factor
        return LambdaLR(optimizer, lambda step: end + (1 - end) * (1 + math.cos(math.pi * min(step / steps, 1.0))) / 2)
    return LinearLR(optimizer, 1.0, end, steps)
