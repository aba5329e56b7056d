"""Appendices B, C and D: loss of orthogonality, gradients, time."""

from __future__ import annotations

import dataclasses
from statistics import geometric_mean

from orthornn.learn.report.instruments import GradientHistory, SpectrumHistory
from orthornn.learn.systems import Model
from orthornn.learn.tasks import Adding
from orthornn.learn.training import OptimizerConfig, RecordConfig, RunConfig

from .. import timing
from ..data import pixel_mnist
from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import adam_and_rmsprop, baseline, called, of_baselines, rmsprop, run, scornn
from .pixel_mnist import EPOCH


@reproduces(
    "Fig. 4",
    section="appendix B",
    published=(
        Published("scoRNN, ||W'W - I|| at the end", words="flat"),
        Published("full-capacity uRNN, ||W'W - I|| at the end", words="grows from epoch to epoch"),
    ),
    hours=(0.03, 75.0),
    laptop=("n = 128 instead of 512, batches of 10 instead of 50, 1500 updates instead of 70 epochs; on a CPU",),
)
def figure4(setting: Setting) -> Plan:
    """Loss of orthogonality against updates on pixel MNIST, at equal n; a third curve corrects the drift."""
    n, batch = setting.at((6, 2), (128, 10), (512, 50))
    steps = setting.at(2, 1500, 70 * EPOCH)
    record = RecordConfig(spectrum=setting.at(1, 50, EPOCH))
    published = dataclasses.replace(of_baselines(), manifold_lr=1e-4, reorthogonalize_every=None)
    corrected = dataclasses.replace(published, reorthogonalize_every=10)
    given: dict[str, tuple[Model, OptimizerConfig]] = {
        "scornn": (scornn(n, 1 / 10), rmsprop(1e-5 if n == 512 else 1e-4)),
        "full-urnn": (baseline("full-urnn", n), published),
        "full-urnn-corrected": (baseline("full-urnn", n), corrected),
    }
    task = pixel_mnist(setting, validation_size=setting.at(10, 500, 500))
    systems = {
        name: run(setting, task, model, steps, batch, steps, optimizer=optimizer, record=record)
        for name, (model, optimizer) in given.items()
    }
    names = {
        "scornn": "scoRNN",
        "full-urnn": "full-capacity uRNN",
        "full-urnn-corrected": "full-capacity uRNN, corrected every 10 updates",
    }

    def tabulate(runs: Runs) -> ResultTable:
        rows, shown, said = [], {}, []
        for system in systems:
            for one in runs.of(system)[:1]:
                history = SpectrumHistory.of(one.saved.records)
                shown[names[system]] = (history.updates.tolist(), history.orthogonality_error.clip(1e-9).tolist())
                rows.append(
                    Row(
                        f"{names[system]}, ||W'W - I|| at the end",
                        float(history.orthogonality_error[-1]),
                        form="{:.1e}",
                    )
                )
                error, half = history.orthogonality_error, len(history.orthogonality_error) // 2
                said.append(
                    f"{names[system]}: {error[0]:.1e} at the beginning, {error[half]:.1e} after "
                    f"{history.updates[half]} updates, {error[-1]:.1e} after {history.updates[-1]}."
                )
        return ResultTable(rows, said, draw=panels({f"n = {n}": shown}, y="||W'W - I||", log=True))

    return Plan(systems, tabulate, beyond_records=True)


@reproduces(
    "Fig. 5",
    section="appendix C",
    published=(
        Published(
            "LSTM 60, gradient at t=0 over t=T, update 0", words="decays steadily with the distance from the end"
        ),
        Published("LSTM 60, gradient at t=0 over t=T, update 300", words="decays more than before training"),
        Published(
            "scoRNN 170, gradient at t=0 over t=T, update 0",
            words="decays by less than an order of magnitude, near 1e-2 throughout",
        ),
        Published("scoRNN 170, gradient at t=0 over t=T, update 300", 0.1, "{:.2g}", "(1e-3 at t=500, 1e-4 at t=0)"),
    ),
    hours=(0.02, 0.02),
)
def figure5(setting: Setting) -> Plan:
    """Adding, T = 500: norms of the loss's gradient at h(t) before training and after 300 updates, batches of 50."""
    task = Adding(
        T=setting.at(8, 500, 500),
        variant="helfrich2018",
        train_size=setting.at(20, 100_000, 100_000),
        validation_size=setting.at(4, 200, 200),
        test_size=setting.at(4, 1000, 10_000),
    )
    steps = setting.at(2, 300, 300)
    record = RecordConfig(gradients=setting.at(1, 100, 100), sequences=50)
    systems = {
        "scornn-170": run(
            setting, task, scornn(170, 7 / 10), steps, 50, 100, optimizer=adam_and_rmsprop(), record=record
        ),
        "lstm-60": run(setting, task, baseline("lstm", 60), steps, 50, 100, record=record),
    }

    def tabulate(runs: Runs) -> ResultTable:
        rows: list[Row] = []
        shown: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        for system in systems:
            histories = [GradientHistory.of(one.saved.records) for one in runs.of(system)]
            for place in (0, -1) if histories else ():
                update = histories[0].updates[place]
                norms = [history.norms[place].clip(1e-44) for history in histories]
                ratios = [float(one[0] / one[-1]) for one in norms]
                note = f"geometric mean of {', '.join(f'{ratio:.1g}' for ratio in ratios)}" if len(ratios) > 1 else ""
                what, mean = f"{called(system)}, gradient at t=0 over t=T, update {update}", geometric_mean(ratios)
                rows.append(Row(what, mean, seeds=len(ratios), form="{:.1g}", note=note))
                first = norms[0]
                shown.setdefault(f"update {update}", {})[called(system)] = (list(range(len(first))), first.tolist())
        return ResultTable(
            rows, draw=panels(shown, x="t", y="norm of the gradient at h(t)", log=True), size=(10.5, 4.2)
        )

    return Plan(systems, tabulate, seeds=setting.at(1, 3, 3), beyond_records=True)


_MINUTES = {
    "scornn-170": 5.3,
    "urnn-512": 8.2,
    "full-urnn-116": 10.8,
    "lstm-128": 5.0,
    "scornn-360": 7.4,
    "urnn-2170": 50.1,
    "scornn-512": 11.2,
    "full-urnn-360": 25.8,
    "lstm-256": 5.2,
    "full-urnn-512": 27.9,
    "lstm-512": 5.6,
}


@reproduces(
    "Table 3",
    section="appendix D",
    published=tuple(
        Published(f"{called(system)}, minutes per epoch", minutes, "{:.1f}", "(i5-7400, GTX 1080)")
        for system, minutes in _MINUTES.items()
    ),
    hours=(0.03, 0.1),
    laptop=(
        "one timed update of 50 images (in full: 20) after a warm-up update, times 1100, without evaluation; the "
        "paper does not say whether it includes evaluation",
        "on a CPU, with the number of threads in the results; processor time for one thread",
    ),
)
def table3(setting: Setting) -> Plan:
    """Minutes per epoch of pixel MNIST: the median time of an update, times 1100."""
    task = pixel_mnist(setting)

    def tabulate(runs: Runs) -> ResultTable:
        rows = []
        for system in _MINUTES:
            name, width = system.rsplit("-", 1)
            n = setting.at(6, int(width), int(width))
            model = scornn(n, 1 / 10) if name == "scornn" else baseline(name, n)
            config = RunConfig(task, model, rmsprop(), batch_size=setting.at(2, 50, 50))
            seconds = timing.seconds_an_update(config, updates=setting.at(1, 1, 20))
            rows.append(Row(f"{called(system)}, minutes per epoch", EPOCH * seconds / 60, form="{:.1f}"))
        return ResultTable(rows)

    return Plan({}, tabulate)
