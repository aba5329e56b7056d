"""The gated and plain baselines of Helfrich et al., 2018, at rates of their own, which the paper does not give."""

from __future__ import annotations

from orthornn.learn.systems import model_named
from orthornn.learn.training import OptimizerConfig

from ..drawing import panels
from ..experiment import Plan, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import copying_and_adding, run, scornn

_WIDTHS = {"lstm": 60, "gru": 68, "rnn": 118}  # about 14000 parameters each on adding, as scoRNN with 170 units
_RATES = (1e-3, 3e-3, 1e-2)


@reproduces(
    "ours",
    section="5",
    published=(),
    hours=(0.4, 10.0),
    laptop=("copying and adding over 200 steps, 2000 updates of 20 and 4000 of 50 sequences; one seed",),
)
def baseline_rates(setting: Setting) -> Plan:
    """Adam with clipping at three rates for the LSTM, the GRU, the tanh RNN and scoRNN, compared with scoRNN at the
    paper's rates.
    """
    tasks = copying_and_adding(setting)
    updates = {"copying": setting.at(2, 2000, 10_000), "adding": setting.at(2, 4000, 20_000)}
    tuned = {
        name: model_named(name, hidden_size=width, forget_bias=1.0 if name == "lstm" else None)
        for name, width in _WIDTHS.items()
    }
    tuned["scornn"] = scornn(170, 1 / 2)
    systems = {}
    for where, (task, batch, optimizer) in tasks.items():
        steps = updates[where]
        systems[f"scornn-{where}"] = run(setting, task, tuned["scornn"], steps, batch, 100, optimizer=optimizer)
        for name, model in tuned.items():
            for rate in _RATES:
                systems[f"{name}-{rate:g}-{where}"] = run(
                    setting,
                    task,
                    model,
                    steps,
                    batch,
                    100,
                    optimizer=OptimizerConfig("adam", lr=rate, clip_norm=1.0),
                )

    def tabulate(runs: Runs) -> ResultTable:
        rows, findings, shown = [], [], {}
        for where, (task, _, _) in tasks.items():
            found = {name: runs.of(name) for name in systems if name.endswith(f"-{where}")}
            curves = {name.removesuffix(f"-{where}"): own[0].curve("validation") for name, own in found.items() if own}
            shown[where] = curves
            ends = {name: curve[1][-1] / task.objective().trivial_loss for name, curve in curves.items() if curve[1]}
            finished = {name for name in ends if all(one.finished for one in found[f"{name}-{where}"])}
            for name, ratio in ends.items():
                what = f"{name.replace('-', ', rate ')}, {where}, validation loss over baseline"
                note = "" if name in finished else "unfinished"
                rows.append(Row(what, ratio, selection="last", form="{:.2g}", note=note))
            for name in tuned:
                own = {run: ends[run] for run in finished if run.startswith(f"{name}-")}
                if len(own) == len(_RATES):
                    best = min(own, key=lambda run: own[run])
                    findings.append(f"{where}: the rate of the {name} is {best.removeprefix(f'{name}-')}.")
        baselines = {where: task.objective().trivial_loss for where, (task, _, _) in tasks.items()}
        return ResultTable(rows, findings, draw=panels(shown, log=True, baselines=baselines), size=(11, 4.2))

    return Plan(systems, tabulate)
