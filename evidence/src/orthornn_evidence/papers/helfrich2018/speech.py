"""Section 5.4: speech."""

from __future__ import annotations

import dataclasses

from orthornn.learn.systems import SequenceModel
from orthornn.learn.tasks.abilities import baselines
from orthornn.learn.training import RecordConfig, load_model

from ...tasks import Speech
from ..data import speech
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import NAMES, adam_and_rmsprop, baseline, called, run, scornn

_SPEECH = {  # n: validation and test MSE on TIMIT
    "scornn": {224: (9.26, 8.50), 322: (8.48, 7.82), 425: (7.97, 7.36)},
    "lstm": {84: (18.43, 17.18), 120: (17.05, 15.91), 158: (16.33, 16.06)},
    "urnn": {158: (15.57, 18.51), 256: (15.90, 15.31), 378: (16.00, 15.15)},
    "full-urnn": {128: (15.07, 14.58), 192: (15.10, 14.50), 256: (14.96, 14.69)},
}
_SPEECH_LAPTOP = {"scornn": 600, "lstm": 400, "full-urnn": 300, "urnn": 0}
_SCORED = 20  # utterances of the test set that are made sound again


@reproduces(
    "Table 2",
    section="5.4",
    published=(
        *(
            Published(f"{NAMES[name]} {n}, {part} MSE", value, "{:.2f}", "(TIMIT)")
            for name, sizes in _SPEECH.items()
            for n, values in sizes.items()
            for part, value in zip(("validation", "test"), values)
        ),
        Published("scoRNN 224, SegSNR", words="better than the full-capacity uRNN's; no number"),
        Published("scoRNN 224, STOI", words="slightly worse than the full-capacity uRNN's; no number"),
        Published("scoRNN 224, PESQ", words="slightly worse than the full-capacity uRNN's; no number"),
    ),
    hours=(0.1, 3.0),
    laptop=(
        "LibriSpeech (598, 128 and 192 utterances at 8 kHz) instead of TIMIT, which is not free; the squared "
        "errors, in dB^2 of 10 log10, cannot be compared with the paper's, whose scale is not stated",
        "updates: scoRNN 600, LSTM 400, full-capacity uRNN 300; only the smallest network of each kind; without the"
        " restricted-capacity uRNN (FFT)",
        "batches of 32 utterances (not stated in the paper); SegSNR, STOI and PESQ of 20 test utterances",
    ),
)
def table2(setting: Setting) -> Plan:
    """Prediction of the next frame of speech; RMSprop for A, Adam for the rest; rho = n/10."""
    task = speech(setting)
    systems = {}
    for name, sizes in _SPEECH.items():
        for n in sizes if setting.budget == "full" else list(sizes)[:1]:
            steps = setting.at(2, _SPEECH_LAPTOP[name], 115 * 50)
            model = scornn(n, 1 / 10) if name == "scornn" else baseline(name, n)
            optimizer = adam_and_rmsprop(recurrent_lr=1e-3 if n == 224 else 1e-4) if name == "scornn" else None
            if steps:
                systems[f"{name}-{n}"] = run(
                    setting,
                    task,
                    model,
                    steps,
                    32,
                    50,
                    optimizer=optimizer,
                    evaluation_batch=32,
                    record=RecordConfig(test=True),
                )

    def tabulate(runs: Runs) -> ResultTable:
        rows = [
            dataclasses.replace(row, what=row.what.replace("loss", "MSE"))
            for row in runs.rows("loss", form="{:.2f}", names={name: called(name) for name in systems})
        ]
        numbers = {}
        for system in systems:
            for one in runs.of(system)[:1]:
                if one.finished:
                    found = _scores(task, load_model(one.saved.path)[1], setting.at(1, _SCORED, 192))
                    numbers["previous frame"] = found["previous frame"]
                    numbers[called(system)] = found["model"]
        rows += [
            Row(f"{name}, {score}", value, form="{:.3f}", note="not to be had" if value is None else "")
            for name, scores in numbers.items()
            for score, value in scores.items()
        ]
        said = [f"{name}: squared error {loss:.2f} dB^2 on the test set" for name, loss in baselines(task).items()]
        return ResultTable(rows, said)

    return Plan(systems, tabulate, beyond_records=True)


def _scores(task: Speech, model: SequenceModel, count: int) -> dict[str, dict[str, float | None]]:
    return task.scores(model, count)
