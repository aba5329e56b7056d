"""Penn Treebank by characters: Table 4."""

from __future__ import annotations

from orthornn.lab.systems import model_named
from orthornn.lab.tasks import Characters

from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Runs
from .common import paper_run

_TRAINING_LINES = 42_068


@reproduces(
    "Table 4",
    section="5.4",
    published=tuple(
        Published(f"{model}, {ahead} ahead, {part} bpc", value, "{:.2f}")
        for model, ahead, validation, test in (
            ("oRNN 512", 1, 1.73, 1.68),
            ("LSTM 184", 1, 1.69, 1.68),
            ("oRNN 512", 5, 3.85, 3.85),
            ("LSTM 183", 5, 3.81, 3.80),
        )
        for part, value in (("validation", validation), ("test", test))
    ),
    hours=(1.0, 12.0),
    laptop=(
        "500 updates of 20 lines at rate 1e-3, a quarter of an epoch; full: one line per update at 1e-4, 20 epochs",
    ),
)
def table4(setting: Setting) -> Plan:
    """Penn Treebank by characters, 1 and 5 ahead: oRNN n=512, m=510 (183K parameters) and LSTM 184 and 183."""
    batch, lr, steps = setting.at((2, 1e-3, 2), (20, 1e-3, 500), (1, 1e-4, 20 * _TRAINING_LINES))
    folder, width = setting.folder("ptb"), setting.at(8, 512, 512)
    systems = {}
    for ahead in (1, 5):
        lstm = setting.at(4, *(2 * (184 if ahead == 1 else 183,)))
        models = {
            f"ornn-{ahead}": model_named("ornn", hidden_size=width, reflections=width - 2),
            f"lstm-{ahead}": model_named("lstm", hidden_size=lstm),
        }
        for name, model in models.items():
            systems[name] = paper_run(
                setting,
                Characters(data=folder, ahead=ahead),
                model,
                lr,
                steps,
                batch,
                setting.at(2, 250, _TRAINING_LINES // 2),
                evaluation_batch=50,
            )
    names = {
        "ornn-1": "oRNN 512, 1 ahead",
        "lstm-1": "LSTM 184, 1 ahead",
        "ornn-5": "oRNN 512, 5 ahead",
        "lstm-5": "LSTM 183, 5 ahead",
    }

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows(form="{:.2f}", names=names)
        # what the released code prints for validation
        rows += [row for row in runs.rows("bpc_line", form="{:.2f}", names=names) if "validation" in row.what]
        return ResultTable(rows)

    return Plan(systems, tabulate)
