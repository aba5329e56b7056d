"""The common parts of the experiments of Helfrich et al., 2018."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from orthornn.learn.report.figures import Curve
from orthornn.learn.systems import Model, Scornn, model_named
from orthornn.learn.tasks import Adding, Copying, Task
from orthornn.learn.training import OptimizerConfig, RecordConfig, RunConfig

from ..experiment import Setting
from ..result_table import Runs

PERCENT = "{:.1%}"
NAMES = {"scornn": "scoRNN", "lstm": "LSTM", "urnn": "restricted-capacity uRNN", "full-urnn": "full-capacity uRNN"}


def scornn(n: int, rho: float) -> Model:
    """Return scoRNN with n units, a share `rho` of -1 in D."""
    return Scornn(hidden_size=n, negatives=round(rho * n))


def baseline(name: str, n: int) -> Model:
    """Return an LSTM or a uRNN."""
    return model_named(name, hidden_size=n, forget_bias=1.0 if name == "lstm" else None)


def rmsprop(recurrent_lr: float = 1e-4) -> OptimizerConfig:
    """Return the optimizer of scoRNN in sections 5.1 and 5.3."""
    return OptimizerConfig("rmsprop", lr=1e-3, recurrent_lr=recurrent_lr)


def tensorflow_rmsprop(recurrent_lr: float = 1e-4) -> OptimizerConfig:
    """Return the same as the released code has it: TensorFlow's RMSprop."""
    return OptimizerConfig("rmsprop-tensorflow", lr=1e-3, recurrent_lr=recurrent_lr)


def adam_and_rmsprop(recurrent_lr: float = 1e-4) -> OptimizerConfig:
    """Return Adam, RMSprop for A: section 5.4, and the released code for the adding problem."""
    return OptimizerConfig("adam", recurrent="rmsprop", lr=1e-3, recurrent_lr=recurrent_lr)


def of_baselines() -> OptimizerConfig:
    """Return RMSprop at one rate; the unitary matrix at 1e-6 (Wisdom et al., 2016, released code)."""
    return OptimizerConfig("rmsprop", lr=1e-3, recurrent_lr=1e-3, manifold_lr=1e-6)


def run(setting: Setting, task: Task, model: Model, steps: int, batch: int, every: int, **options: Any) -> RunConfig:
    """Return a run of the size of the budget: for smoke two updates of two sequences with six units."""
    optimizer = options.pop("optimizer", None) or (rmsprop() if model.name == "scornn" else of_baselines())
    if setting.budget == "smoke":
        small: dict[str, Any] = {"hidden_size": 6, **({"negatives": 3} if "negatives" in model.given() else {})}
        model, steps, batch, every = model.replace(**small), 2, 2, 1
        options["record"] = _often(options.get("record"))
    config = RunConfig(task, model, optimizer, steps=steps, batch_size=batch, validate_every=every, **options)
    return dataclasses.replace(config, log_every=max(1, min(20, steps // 50)), orthogonality_bound=1.0)


def _often(record: object) -> RecordConfig:
    assert record is None or isinstance(record, RecordConfig)
    record = record or RecordConfig()
    looked: dict[str, Any] = {name: 1 for name in ("gradients", "spectrum") if getattr(record, name) is not None}
    return dataclasses.replace(record, sequences=2, **looked)


def copying_and_adding(setting: Setting) -> dict[str, tuple[Task, int, OptimizerConfig]]:
    """Return copying and adding: task, batch size, optimizer."""
    T = setting.at(8, 200, 1000), setting.at(8, 200, 750)
    copying = Copying(T=T[0], validation_size=setting.at(4, 100, 200), test_size=setting.at(4, 200, 1000))
    adding = Adding(
        T=T[1],
        variant="helfrich2018",
        train_size=setting.at(20, 100_000, 100_000),
        validation_size=setting.at(4, 500, 1000),
        test_size=setting.at(4, 1000, 10_000),
    )
    return {"copying": (copying, 20, rmsprop()), "adding": (adding, 50, adam_and_rmsprop())}


def called(system: str) -> str:
    """Return "scornn-170-T400" in the paper's words: "scoRNN 170 T=400"."""
    name = max((name for name in NAMES if system.startswith(f"{name}-")), key=len)
    return f"{NAMES[name]} {system.removeprefix(f'{name}-').replace('-T', ' T=')}"


def curves(
    runs: Runs, systems: Sequence[str], kind: str, metric: str = "loss", *, epochs: bool = False
) -> Mapping[str, Curve]:
    """Return the first seed's curve of each system that has begun."""
    found = {called(system.split("-T")[0]): runs.of(system) for system in systems}
    return {name: own[0].curve(kind, metric, epochs=epochs) for name, own in found.items() if own}


def against_baseline(runs: Runs) -> list[str]:
    """Return, by run, the first update at which the held-out loss is below a tenth of the baseline, or the ratio at the
    end.
    """
    said = []
    for system in runs.systems:
        own = runs.of(system)
        for one in own:
            name = called(system) if len(own) == 1 else f"{called(system)}, seed {one.seed}"
            steps, losses = one.curve("validation")
            trivial = one.task.objective().trivial_loss
            under = [step for step, loss in zip(steps, losses) if loss < trivial / 10]
            if under:
                said.append(f"{name}: held-out loss first below a tenth of the baseline at update {under[0]:.0f}.")
            elif losses:
                said.append(
                    f"{name}: held-out loss {losses[-1] / trivial:.3f} of the baseline at update {steps[-1]:.0f}."
                )
    return said
