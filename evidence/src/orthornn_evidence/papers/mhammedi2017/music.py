"""Music: Figs. 2 and 3."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import numpy as np

from orthornn.learn.report.figures import Curve
from orthornn.learn.systems import model_named
from orthornn.learn.training import RunConfig, load_model

from ...tasks import Music
from .. import charts
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs, Trained
from .common import paper_run

_MUSIC = {
    "oRNN": ("ornn", {250: 18, 500: 28, 1000: 41}),
    "LSTM": ("lstm", {250: 7, 500: 10, 1000: 15}),
    "sRNN": ("srnn", {250: 14, 500: 20, 1000: 30}),
}


@reproduces(
    "Fig. 2",
    section="5.1",
    published=(
        Published("median NMSE of oRNN over that of sRNN, N_p ~ 1000", words="below 1: oRNN better (boxplots)"),
        Published("median NMSE of oRNN over that of LSTM, N_p ~ 1000", words="below 1 on average (boxplots)"),
    ),
    hours=(0.07, 0.4),
    laptop=(
        "one seed",
        "excerpts of a Hungarian Dance by Brahms, because the paper's recording is not free",
        "our LSTM does not train its initial states, and our sRNN has n^2 + 4n + 1 parameters, while the paper's "
        "counts fit n^2 + 5n + 1; both have a few dozen parameters fewer",
    ),
)
def fig2(setting: Setting) -> Plan:
    """Music: the lowest NMSE of networks that memorize 800 samples, by model and number of parameters."""
    folder, length = setting.folder("music"), setting.at(12, 800, 800)
    systems: dict[str, RunConfig] = {}
    for excerpt in range(setting.at(1, 5, 5)):
        for name, (model, widths) in _MUSIC.items():
            for size, n in widths.items():
                if setting.budget == "smoke" and size < 1000:
                    continue
                task = Music(data=folder, excerpt=excerpt, length=length)
                config = model_named(model, hidden_size=n, reflections=n if model == "ornn" else None)
                key = f"{name.lower()}-{size}-e{excerpt}"
                systems[key] = paper_run(setting, task, config, 1e-3, setting.at(2, 5000, 5000), 1, 10, test=False)
    excerpts = sorted({key[-1] for key in systems})

    def lowest(runs: Runs, name: str, size: int) -> list[float]:
        own = [run for e in excerpts for run in runs.of(f"{name.lower()}-{size}-e{e}") if run.finished]
        return [min(run.curve("validation")[1]) for run in own]

    def tabulate(runs: Runs) -> ResultTable:
        groups = {(name, size): lowest(runs, name, size) for size in (250, 500, 1000) for name in _MUSIC}
        groups = {key: values for key, values in groups.items() if values}
        medians = {key: statistics.median(values) for key, values in groups.items()}
        rows = [
            Row(
                f"median NMSE of oRNN over that of {other}, N_p ~ {size}",
                medians["oRNN", size] / medians[other, size],
                seeds=len(groups[other, size]),
                selection="lowest",
                form="{:.3f}",
            )
            for size in (1000, 500, 250)
            for other in ("sRNN", "LSTM")
            if ("oRNN", size) in medians and (other, size) in medians
        ]
        rows += [
            Row(f"{name}, N_p ~ {size}, median NMSE", medians[name, size], seeds=len(values), selection="lowest")
            for (name, size), values in groups.items()
        ]

        def draw(figure: Any) -> None:
            shown = {f"{name} {size}": values for (name, size), values in groups.items()}
            if shown:
                charts.boxes(figure.add_subplot(), shown, y="lowest NMSE")

        return ResultTable(rows, draw=draw)

    return Plan(systems, tabulate, seeds=setting.at(1, 1, 5))


@reproduces(
    "Fig. 3",
    section="5.1",
    published=(Published("oRNN, N_p ~ 1000, lowest NMSE", words="follows the sound most closely (curves)"),),
    hours=(0.0, 0.0),
    laptop=("the runs of fig2",),
    shares="fig2",
)
def fig3(setting: Setting) -> Plan:
    """Music: the first excerpt, and what the best network of each kind generates for it; about 1000 parameters."""
    plan = fig2.make(setting)

    def tabulate(runs: Runs) -> ResultTable:
        best: dict[str, Trained] = {}
        for name in _MUSIC:
            own = [run for run in runs.of(f"{name.lower()}-1000-e0") if run.finished]
            if own:
                best[name] = min(own, key=lambda run: min(run.curve("validation")[1]))
        rows = [
            Row(f"{name}, N_p ~ 1000, lowest NMSE", min(run.curve("validation")[1]), selection="lowest")
            for name, run in best.items()
        ]

        def draw(figure: Any) -> None:
            for axes, (name, run) in zip(figure.subplots(max(1, len(best)), 1, squeeze=False)[:, 0], best.items()):
                task = run.task
                assert isinstance(task, Music)
                said = task.generate(load_model(run.saved.path, "best")[1])
                at = (1000 * np.arange(task.length) / task.rate).tolist()
                lines: dict[str, list[Curve]] = {"true": [(at, task.samples.tolist())], name: [(at, said.tolist())]}
                charts.curves(axes, lines, x="milliseconds", y="")

        return ResultTable(rows, draw=draw, size=(7, 6))

    return dataclasses.replace(plan, tabulate=tabulate, beyond_records=True)
