"""Pixel MNIST: Table 3, Figs. 5 and 6."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from orthornn.learn.report.figures import Curve
from orthornn.learn.systems import model_named
from orthornn.learn.training import RunConfig

from .. import charts
from ..data import pixel_mnist
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs, Trained
from .common import PERCENT, paper_run

_TRAINING_IMAGES = 55_000


def _mnist(setting: Setting, n: int, m: int, batch: int, lr: float, epochs: float) -> RunConfig:
    """Return pixel MNIST with n hidden units, m reflections, for this many epochs of 55000 images."""
    epoch = _TRAINING_IMAGES // batch
    model = model_named("ornn", hidden_size=n, reflections=m)
    return paper_run(setting, pixel_mnist(setting), model, lr, round(epochs * epoch), batch, max(1, epoch // 2))


_ORNN = "oRNN 256 (m=32)"
_TABLE3 = {"text": _ORNN, "code": f"{_ORNN}, unit reflectors as in the released code"}


@reproduces(
    "Table 3",
    section="5.3",
    published=(
        Published(f"{_ORNN}, validation accuracy", 0.970, PERCENT),
        Published(f"{_ORNN}, test accuracy", 0.972, PERCENT),
        Published(f"{_TABLE3['code']}, validation accuracy", 0.970, PERCENT),
        Published(f"{_TABLE3['code']}, test accuracy", 0.972, PERCENT),
        Published("RNN 128 (Vorontsov et al., 2017), test accuracy", 0.941, PERCENT, "(quoted there)"),
        Published("uRNN 512 (Arjovsky et al., 2016), test accuracy", 0.951, PERCENT, "(quoted there)"),
        Published("RC uRNN 512 (Wisdom et al., 2016), test accuracy", 0.975, PERCENT, "(quoted there)"),
        Published("FC uRNN 116 (Wisdom et al., 2016), test accuracy", 0.928, PERCENT, "(quoted there)"),
    ),
    hours=(1.1, 26.0),
    laptop=(
        "one seed; 12 epochs as in the text, 30 with unit reflectors (full: 100 epochs, 5 seeds); the paper states "
        "neither number",
    ),
)
def table3(setting: Setting) -> Plan:
    """Pixel MNIST: n=256, m=32, one image per update, learning rate 1e-4."""
    n, m = setting.at((8, 3), (256, 32), (256, 32))
    text = _mnist(setting, n, m, batch=1, lr=1e-4, epochs=setting.at(1, 12, 100))
    unit = text.model.replace(unit=True)
    code = dataclasses.replace(text, model=unit, steps=setting.at(text.steps, 30 * _TRAINING_IMAGES, text.steps))

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows(form=PERCENT, names=_TABLE3)
        rows += [
            Row(f"{_TABLE3[system]}, minutes per epoch", run.seconds / 60 * _TRAINING_IMAGES / run.steps, form="{:.2f}")
            for system in _TABLE3
            for run in runs.of(system)[:1]
            if run.steps
        ]
        return ResultTable(rows)

    return Plan({"code": code, "text": text}, tabulate, seeds=setting.at(1, 1, 5))


@reproduces(
    "Fig. 5",
    section="5.3",
    published=(Published(f"{_ORNN}, validation accuracy", 0.970, PERCENT, "at the end of the curve"),),
    hours=(0.0, 0.0),
    laptop=("the runs of table3, 12 and 30 epochs",),
    shares="table3",
)
def fig5(setting: Setting) -> Plan:
    """Validation accuracy of the oRNN of Table 3 against epochs."""
    plan = table3.make(setting)

    def tabulate(runs: Runs) -> ResultTable:
        rows = [row for row in runs.rows(form=PERCENT, names=_TABLE3) if "validation" in row.what]

        def draw(figure: Any) -> None:
            lines = {_TABLE3[system]: _accuracies(runs.of(system)) for system in runs.systems if runs.of(system)}
            charts.curves(figure.add_subplot(), lines, x="epochs", y="validation accuracy", title="mBS=1, LR=1e-4")

        return ResultTable(rows, draw=draw)

    return dataclasses.replace(plan, tabulate=tabulate)


def _accuracies(runs: Sequence[Trained]) -> list[Curve]:
    return [run.curve("validation", "accuracy", epochs=True) for run in runs]


@reproduces(
    "Fig. 6",
    section="5.3",
    published=(Published("effect of m", words="a figure; the text gives no numbers", statement=True),),
    hours=(0.05, 24.0),
    laptop=("n=128, batches of 50, only at rate 1e-3; 2 epochs of one seed",),
)
def fig6(setting: Setting) -> Plan:
    """Pixel MNIST: validation accuracy against epochs for m = 16, 32, 64."""
    widths, batches = setting.at((8,), (128,), (128, 256)), setting.at((2,), (50,), (50, 1))
    systems = {
        f"n{n}-m{m}-b{b}": _mnist(setting, n, m, b, 1e-4 if b == 1 else 1e-3, setting.at(1, 2, 100))
        for b in batches
        for n in widths
        for m in setting.at((2, 3), (16, 32, 64), (16, 32, 64))
    }

    def tabulate(runs: Runs) -> ResultTable:
        def draw(figure: Any) -> None:
            lines = {system: _accuracies(runs.of(system)) for system in runs.systems if runs.of(system)}
            charts.curves(figure.add_subplot(), lines, x="epochs", y="validation accuracy")

        return ResultTable(runs.rows(form=PERCENT), draw=draw)

    return Plan(systems, tabulate, seeds=1)
