"""Penn Treebank by characters: Table 4."""

from __future__ import annotations

from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Characters

from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Runs
from .common import paper_run

_TRAINING_LINES = 42_068


_UNIT, _TORCH = "oRNN 512, unit reflectors", "LSTM 184, torch's initial values"


@reproduces(
    "Table 4",
    section="5.4",
    published=tuple(
        Published(f"{model}, {ahead} ahead, {part} bpc", value, "{:.2f}")
        for model, ahead, validation, test in (
            ("oRNN 512", 1, 1.73, 1.68),
            (_UNIT, 1, 1.73, 1.68),
            ("LSTM 184", 1, 1.69, 1.68),
            (_TORCH, 1, 1.69, 1.68),
            ("oRNN 512", 5, 3.85, 3.85),
            ("LSTM 183", 5, 3.81, 3.80),
        )
        for part, value in (("validation", validation), ("test", test))
    ),
    hours=(1.0, 17.0),
    laptop=(
        "500 updates of 20 lines at rate 1e-3, a quarter of an epoch (full: 20 epochs, one line per update, rate 1e-4)",
        "without unit reflectors and without torch's initial values",
    ),
)
def table4(setting: Setting) -> Plan:
    """Penn Treebank by characters, lines as released, 1 and 5 ahead: oRNN n=512, m=510 (183K parameters), LSTM 184 and 183
    from uniform Glorot values; 1 ahead also an oRNN with unit reflectors and an LSTM from torch's values.
    """
    batch, lr, steps = setting.at((2, 1e-3, 2), (20, 1e-3, 500), (1, 1e-4, 20 * _TRAINING_LINES))
    folder, width = setting.folder("ptb"), setting.at(8, 512, 512)
    systems, names = {}, {}
    for ahead in (1, 5):
        lstm = 184 if ahead == 1 else 183
        ornn = model_named("ornn", hidden_size=width, reflections=width - 2)
        glorot = model_named("lstm", hidden_size=setting.at(4, lstm, lstm), init="glorot")
        models = {"ornn": ("oRNN 512", ornn), "lstm": (f"LSTM {lstm}", glorot)}
        if ahead == 1 and setting.budget != "laptop":
            models |= {"ornn-unit": (_UNIT, ornn.replace(unit=True)), "lstm-torch": (_TORCH, glorot.replace(init=None))}
        for key, (name, model) in models.items():
            names[f"{key}-{ahead}"] = f"{name}, {ahead} ahead"
            systems[f"{key}-{ahead}"] = paper_run(
                setting,
                Characters(data=folder, ahead=ahead, variant="mhammedi2017-code"),
                model,
                lr,
                steps,
                batch,
                setting.at(2, 250, _TRAINING_LINES // 2),
                evaluation_batch=50,
            )

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows(form="{:.2f}", names=names)
        # what the released code prints for validation
        rows += [row for row in runs.rows("bpc_line", form="{:.2f}", names=names) if "validation" in row.what]
        return ResultTable(rows)

    return Plan(systems, tabulate)
