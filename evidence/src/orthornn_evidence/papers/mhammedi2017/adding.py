"""Adding: Fig. 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding

from .. import charts
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs, Trained
from .common import BASELINE, paper_run

_LEARNT = 0.9 * BASELINE
_GLOROT = "LSTM from Glorot"
_KEYS = {"oRNN": "ornn", "sRNN": "srnn", "LSTM": "lstm", _GLOROT: "lstm-glorot"}
_COUNTED = "updates until below nine tenths of the baseline"


@reproduces(
    "Fig. 4",
    section="5.2",
    published=(
        Published(f"T=400, oRNN, {_COUNTED}", words="< 5000 in both runs"),
        Published(f"T=400, LSTM, {_COUNTED}", words="the baseline is not beaten"),
        Published(f"T=400, LSTM from Glorot, {_COUNTED}", words="the baseline is not beaten"),
        Published(f"T=400, sRNN, {_COUNTED}", words="the baseline is not beaten"),
        Published(f"T=800, oRNN, {_COUNTED}", words="< 5000 in both runs"),
        Published(f"T=800, LSTM, {_COUNTED}", words="the baseline is not beaten"),
        Published(f"T=800, sRNN, {_COUNTED}", words="the baseline is not beaten"),
    ),
    hours=(0.2, 0.9),
    laptop=("6000 updates (full: 15000); one seed of the LSTM and the sRNN",),
)
def fig4(setting: Setting) -> Plan:
    """Adding over 400 and 800 steps: oRNN n=128, m=16; LSTM 28 from torch's initial values (at T=400 also from uniform
    Glorot); sRNN 54; batches of 50, rate 0.01.
    """
    models = {
        "oRNN": model_named("ornn", hidden_size=setting.at(8, 128, 128), reflections=setting.at(3, 16, 16)),
        "sRNN": model_named("srnn", hidden_size=setting.at(6, 54, 54)),
        "LSTM": model_named("lstm", hidden_size=setting.at(4, 28, 28)),
    }
    models[_GLOROT] = models["LSTM"].replace(init="glorot")
    systems, seeds, names = {}, {}, {}
    held_out = {"validation_size": 4, "test_size": 4} if setting.budget == "smoke" else {}
    for T in setting.at((6,), (400, 800), (400, 800)):
        for name, model in models.items():
            if name == _GLOROT and (setting.budget == "laptop" or T == 800):
                continue
            key = f"{_KEYS[name]}-T{T}"
            names[key] = f"T={T}, {name}"
            task = Adding(T=T, **held_out)  # type: ignore[arg-type]
            systems[key] = paper_run(setting, task, model, 0.01, setting.at(2, 6000, 15_000), 50, 100, test=False)
            seeds[key] = setting.at(1, 2 if name == "oRNN" else 1, 2)

    def tabulate(runs: Runs) -> ResultTable:
        rows = [_first_below(runs.of(system), f"{names[system]}, {_COUNTED}") for system in systems]
        rows += runs.rows(names=names)

        def draw(figure: Any) -> None:
            lags = list(dict.fromkeys(system.split("-T")[1] for system in systems))
            for axes, T in zip(figure.subplots(1, len(lags), squeeze=False)[0], lags):
                lines = {
                    name: [run.curve("validation") for run in runs.of(key)]
                    for name in models
                    if (key := f"{_KEYS[name]}-T{T}") in systems and runs.of(key)
                }
                charts.curves(axes, lines, x="updates", y="MSE", title=f"T={T}", level=("baseline", BASELINE), log=True)

        return ResultTable([row for row in rows if row is not None], draw=draw, size=(10, 4))

    return Plan(systems, tabulate, seeds=seeds)


def _first_below(runs: Sequence[Trained], what: str) -> Row | None:
    """Return the update at which the slowest run's validation loss first is nine tenths of the baseline."""
    if not runs:
        return None
    firsts = []
    for run in runs:
        steps, losses = run.curve("validation")
        firsts.append(next((step for step, loss in zip(steps, losses) if loss < _LEARNT), None))
    reached = [first for first in firsts if first is not None]
    note = "each: " + ", ".join(
        f"not in {run.steps}" if first is None else f"{first:.0f}" for first, run in zip(firsts, runs)
    )
    value = float(max(reached)) if len(reached) == len(firsts) else None
    return Row(what, value, seeds=len(runs), selection="validation", form="{:.0f}", note=note)
