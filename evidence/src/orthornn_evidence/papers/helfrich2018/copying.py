"""Section 5.1: copying."""

from __future__ import annotations

from orthornn.learn.tasks import Copying

from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Runs
from .common import against_baseline, baseline, called, curves, run, scornn

_COPYING = {"scornn": 190, "full-urnn": 128, "lstm": 68, "urnn": 470}


@reproduces(
    "Fig. 1",
    section="5.1",
    published=(
        Published("LSTM 68 T=1000, test loss", words="never below the baseline .02039"),
        Published("restricted-capacity uRNN 470 T=1000, test loss", words="never below the baseline .02039"),
        Published("full-capacity uRNN 128 T=1000, test loss", words="immediately to 0, slightly faster than scoRNN"),
        Published("scoRNN 190 T=1000, test loss", words="immediately to 0"),
        Published("LSTM 68 T=2000, test loss", words="never below the baseline .01029"),
        Published("restricted-capacity uRNN 470 T=2000, test loss", words="never below the baseline .01029"),
        Published(
            "full-capacity uRNN 128 T=2000, test loss", words="at the baseline for several thousand updates, then to 0"
        ),
        Published("scoRNN 190 T=2000, test loss", words="smoothly to 0, more slowly than the full-capacity uRNN"),
    ),
    hours=(0.07, 13.0),
    laptop=(
        "updates: scoRNN 1200, full-capacity uRNN 600, LSTM 300 at T=1000; 600, 150 and 100 at T=2000; in full "
        "10000 each",
        "without the restricted-capacity uRNN (470 units by FFT, some seconds per update)",
        "tested on 200 sequences after the last update; the figure shows the loss of fresh training batches",
    ),
)
def figure1(setting: Setting) -> Plan:
    """Copying over T = 1000 and 2000 with about 22000 parameters, batches of 20, RMSprop; training loss of the first seed."""
    laptop = {"scornn": (1200, 600), "full-urnn": (600, 150), "lstm": (300, 100), "urnn": (0, 0)}
    systems = {}
    for place, T in enumerate((1000, 2000)):
        task = Copying(T=setting.at(10 + place, T, T), validation_size=40, test_size=setting.at(4, 200, 1000))
        for name, n in _COPYING.items():
            model = scornn(n, 1 / 2) if name == "scornn" else baseline(name, n)
            steps = setting.at(2 * (place == 0), laptop[name][place], 10_000)
            if steps:
                systems[f"{name}-{n}-T{T}"] = run(setting, task, model, steps, 20, 50, evaluation_batch=40)

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows_at_end("loss", form="{:.1e}", names={name: called(name) for name in systems})
        shown = {f"T = {T}": curves(runs, [s for s in systems if s.endswith(f"T{T}")], "train") for T in (1000, 2000)}
        baselines = {f"T = {T}": Copying(T=T).objective().trivial_loss for T in (1000, 2000)}
        return ResultTable(
            rows, against_baseline(runs), draw=panels(shown, log=True, baselines=baselines), size=(11, 4.2)
        )

    seeds = {name: setting.at(1, 1, 3 if name.startswith(("scornn-", "lstm-")) else 1) for name in systems}
    return Plan(systems, tabulate, seeds=seeds)
