"""The common parts of the experiments of Vorontsov et al., 2017."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from orthornn.learn.report.figures import Curve
from orthornn.learn.systems import Model, model_named
from orthornn.learn.tasks import Copying, Task
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, RecordConfig, RunConfig

from ..experiment import Setting
from ..result_table import Runs

PERCENT = "{:.2%}"
RELEASED: dict[str, Any] = {"initial_values": "lasagne", "learn_h0": True, "clip_backward": 100.0}
"""What every network has of the released code's recurrent layer."""
_NEVER_WARN = 1e9


def spectral(margin: str, n: int = 128, **options: Any) -> Model:
    """Return the factorized network with initial values and clipping of the released code; margin: in words, or "none"."""
    return model_named(
        "spectral",
        hidden_size=n,
        margin="none" if margin == "none" else float(margin),
        **{**RELEASED, "nonnegative": True, **options},
    )


def rmsprop(lr: float = 1e-4, bases_lr: float = 1e-6) -> OptimizerConfig:
    """Return Lasagne's RMSprop with geodesic SGD on the bases."""
    return OptimizerConfig("rmsprop-lasagne", lr=lr, recurrent_lr=lr, manifold="cayley-sgd", manifold_lr=bases_lr)


def decayed(**others: float) -> PenaltyConfig:
    """Return the decay of the released code, on the input weights, W and the readout, next to other penalties."""
    return PenaltyConfig(weight_decay=1e-4, input_decay=1e-4, readout_decay=1e-4, **others)


def run(
    setting: Setting,
    task: Task,
    model: Model,
    steps: int,
    optimizer: OptimizerConfig | None = None,
    **options: Any,
) -> RunConfig:
    """Return a run of the size of the budget: for smoke two updates of two sequences with six units."""
    options = {
        "penalties": decayed(),
        "record": RecordConfig(),
        "validate_every": 100,
        **options,
    }
    if setting.budget == "smoke":
        model, steps = model.replace(hidden_size=6), 2
        looked: dict[str, Any] = {
            name: 1 for name in ("gradients", "spectrum") if getattr(options["record"], name) is not None
        }
        record = dataclasses.replace(options["record"], sequences=2, **looked)
        options.update(batch_size=2, validate_every=1, record=record)
    return RunConfig(
        task,
        model,
        optimizer or rmsprop(),
        steps=steps,
        log_every=max(1, min(20, steps // 20)),
        orthogonality_bound=_NEVER_WARN,
        **options,
    )


def curves(runs: Runs, systems: dict[str, str], kind: str, metric: str) -> dict[str, Curve]:
    """Return the curve of the first seed of each system that has begun, by the name given for it."""
    found = {name: runs.of(system) for system, name in systems.items()}
    return {name: own[0].curve(kind, metric) for name, own in found.items() if own}


def copying(
    setting: Setting, T: int, variant: Literal["vorontsov2017", "vorontsov2017-code"] = "vorontsov2017"
) -> Copying:
    """Return copying over T steps; 8 in a smoke run."""
    size = setting.at(4, 100, 200)
    return Copying(T=setting.at(8, T, T), variant=variant, validation_size=size, test_size=setting.at(4, 200, 1000))
