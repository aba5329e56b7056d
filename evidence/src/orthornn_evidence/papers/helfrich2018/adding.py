"""Section 5.2: adding."""

from __future__ import annotations

from orthornn.learn.tasks import Adding

from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Runs
from .common import adam_and_rmsprop, against_baseline, baseline, called, curves, run, scornn

_ADDING = {"scornn": 170, "lstm": 60, "full-urnn": 120, "urnn": 950}


@reproduces(
    "Fig. 2",
    section="5.2",
    published=tuple(
        Published(f"{model} T={T}, test loss", words=f"near 0 after some epochs; trivial .167{note}")
        for T in (200, 400, 750)
        for model, note in (
            ("scoRNN 170", "; descends smoothly"),
            ("LSTM 60", "; drops first"),
            ("full-capacity uRNN 120", "; more irregular than scoRNN"),
            ("restricted-capacity uRNN 950", ""),
        )
    ),
    hours=(0.5, 120.0),
    laptop=(
        "updates for T=200, 400, 750: scoRNN 20000 (as in full, 10 epochs of 100000 sequences), 12000, 6000; LSTM "
        "and full-capacity uRNN 6000, 2000, 800",
        "without the restricted-capacity uRNN (950 units by FFT)",
        "the curves show 500 held-out sequences; the test set of 10000 is used only after the last update",
    ),
)
def figure2(setting: Setting) -> Plan:
    """Adding over T = 200, 400, 750 with about 15000 parameters (the paper: 14000), batches of 50: squared error."""
    laptop = {
        "scornn": (20_000, 12_000, 6000),
        "lstm": (6000, 2000, 800),
        "full-urnn": (6000, 2000, 800),
        "urnn": (0, 0, 0),
    }
    systems = {}
    for place, T in enumerate((200, 400, 750)):
        task = Adding(
            T=setting.at(6 + place, T, T),
            variant="helfrich2018",
            train_size=setting.at(20, 100_000, 100_000),
            validation_size=setting.at(4, 500, 500),
            test_size=setting.at(4, 10_000, 10_000),
        )
        for name, n in _ADDING.items():
            model = scornn(n, 1 / 2 if T == 200 else 7 / 10) if name == "scornn" else baseline(name, n)
            optimizer = adam_and_rmsprop() if name == "scornn" else None
            steps = setting.at(2 * (place == 0 and "urnn" not in name), laptop[name][place], 20_000)
            if steps:
                systems[f"{name}-{n}-T{T}"] = run(setting, task, model, steps, 50, 100, optimizer=optimizer)

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows_at_end("loss", form="{:.1e}", names={name: called(name) for name in systems})
        shown = {
            f"T = {T}": curves(runs, [s for s in systems if s.endswith(f"T{T}")], "validation") for T in (200, 400, 750)
        }
        draw = panels(shown, y="squared error", log=True, baselines=dict.fromkeys(shown, 1 / 6))
        return ResultTable(rows, against_baseline(runs), draw=draw, size=(14, 4.2))

    return Plan(systems, tabulate)
