"""The common parts of the experiments of Mhammedi et al., 2017, and of our own about them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from orthornn.learn.systems import Model
from orthornn.learn.tasks import Copying, Task
from orthornn.learn.training import OptimizerConfig, RecordConfig, RunConfig

from .. import charts
from ..experiment import Setting
from ..result_table import ResultTable, Row, Runs, Trained

PERCENT = "{:.1%}"
BASELINE = 1 / 6  # of adding


def adam(lr: float) -> OptimizerConfig:
    """Return Adam with one rate for all parameters."""
    return OptimizerConfig(name="adam", lr=lr, recurrent_lr=lr)


def paper_run(
    setting: Setting, task: Task, model: Model, lr: float, steps: int, batch: int, every: int, **more: Any
) -> RunConfig:
    """Return a run; validated, and tested, after every `every` updates. The smoke budget makes two updates."""
    smoke = setting.budget == "smoke"
    return RunConfig(
        task=task,
        model=model,
        optimizer=adam(lr),
        record=RecordConfig(test=more.pop("test", True)),
        steps=2 if smoke else steps,
        batch_size=min(2, batch) if smoke else batch,
        validate_every=2 if smoke else every,
        log_every=1 if smoke else max(1, min(every, steps // 200)),
        **more,
    )


def copying_run(setting: Setting, model: Model, steps: int, T: int, lr: float = 1e-3) -> RunConfig:
    """Return copying across T steps in batches of 50."""
    smoke = setting.budget == "smoke"
    held_out = {"validation_size": 4, "test_size": 4} if smoke else {}
    task = Copying(T=4 if smoke else T, **held_out)  # type: ignore[arg-type]
    if smoke:
        model = model.replace(hidden_size=6)
        if "reflections" in model.given():
            model = model.replace(reflections=min(model.given()["reflections"], 2))
    return paper_run(setting, task, model, lr, steps, 50, 50)


def tabulate_copying(names: Mapping[str, str]) -> Callable[[Runs], ResultTable]:
    """Return a function that tabulates the test loss over the trivial baseline and the recall, and draws the training
    losses.
    """

    def tabulate(runs: Runs) -> ResultTable:
        rows = []
        for system in runs.systems:
            own = runs.of(system)
            if not own:
                continue
            losses = [_last_test(run, "loss") / run.task.objective().trivial_loss for run in own]
            recalls = [_last_test(run, "recall") for run in own]
            minutes = statistics.fmean(run.minutes for run in own)
            note = "each: " + ", ".join(f"{loss:.3f}" for loss in losses)
            for what, values, form in (("loss over baseline", losses, "{:.3f}"), ("recall", recalls, PERCENT)):
                spread = statistics.stdev(values) if len(values) > 1 else None
                words = f"{names.get(system, system)}, {what}"
                rows.append(
                    Row(
                        words,
                        statistics.fmean(values),
                        spread,
                        len(values),
                        "last",
                        minutes=minutes,
                        form=form,
                        note=note if what != "recall" else "",
                    )
                )

        def draw(figure: Any) -> None:
            lines = {
                names.get(system, system): [run.curve("train") for run in runs.of(system)]
                for system in runs.systems
                if runs.of(system)
            }
            if lines:
                trivial = runs.of(next(s for s in runs.systems if runs.of(s)))[0].task.objective().trivial_loss
                charts.curves(
                    figure.add_subplot(), lines, x="updates", y="loss", level=("trivial baseline", trivial), log=True
                )

        return ResultTable(rows, draw=draw, size=(7.5, 4.8))

    return tabulate


def _last_test(run: Trained, metric: str) -> float:
    return float((run.saved.of_kind("test") or run.saved.of_kind("validation") or [{metric: float("nan")}])[-1][metric])
