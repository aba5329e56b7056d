"""Helfrich, Willmott and Ye, 2018: Orthogonal recurrent neural networks with scaled Cayley transform. Numbers are those of
the version of January 2018 (ICLR submission), which the tables of the later version change for TIMIT.

scoRNN: W = (I + A)^-1 (I - A) D, modReLU; RMSprop (decay 0.9, as the released code has it) at 1e-3, A at a tenth. rho is
rounded to the nearest integer, halves to even: n/10 of 170 is 17, n/2 is 85; where it is odd one 2 x 2 block of A is
split. LSTM: forget bias 1. Full-capacity uRNN: the update of Wisdom et al., 2016, with its rate 1e-6, and here with its
drift corrected but in Fig. 4. Baselines' rates are not in the paper: RMSprop 1e-3.

The findings of our own on this network are in helfrich2018_findings.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..models import SequenceModel
from ..report.figures import Curve
from ..report.instruments import GradientHistory, SpectrumHistory
from ..tasks import Adding, Copying, PixelMNIST, Speech, Task
from ..training import ModelConfig, OptimizerConfig, RecordConfig, RunConfig, load_model
from . import timing
from .data import pixel_mnist, speech
from .drawing import panels
from .experiment import Plan, Published, Setting, reproduces
from .outcome import Outcome, Row, Runs

PERCENT = "{:.1%}"
_NAMES = {"scornn": "scoRNN", "lstm": "LSTM", "urnn": "restricted-capacity uRNN", "full-urnn": "full-capacity uRNN"}


def scornn(n: int, rho: float) -> ModelConfig:
    """scoRNN with n units, a share `rho` of -1 in D."""
    return ModelConfig("scornn", hidden_size=n, negatives=round(rho * n))


def baseline(name: str, n: int) -> ModelConfig:
    """LSTM or a uRNN."""
    return ModelConfig(name, hidden_size=n, forget_bias=1.0 if name == "lstm" else None)


def rmsprop(recurrent_lr: float = 1e-4) -> OptimizerConfig:
    """scoRNN's, of sections 5.1 and 5.3."""
    return OptimizerConfig("rmsprop", lr=1e-3, recurrent_lr=recurrent_lr)


def of_baselines() -> OptimizerConfig:
    """RMSprop at one rate; the unitary matrix at 1e-6 (Wisdom et al., 2016, released code)."""
    return OptimizerConfig("rmsprop", lr=1e-3, recurrent_lr=1e-3, manifold_lr=1e-6)


def run(
    setting: Setting, task: Task, model: ModelConfig, steps: int, batch: int, every: int, **options: Any
) -> RunConfig:
    """A run of the size of the budget: for smoke two updates of two sequences with six units."""
    optimizer = options.pop("optimizer", None) or (rmsprop() if model.name == "scornn" else of_baselines())
    if setting.budget == "smoke":
        small: dict[str, Any] = {"hidden_size": 6, **({"negatives": 3} if model.negatives is not None else {})}
        model, steps, batch, every = dataclasses.replace(model, **small), 2, 2, 1
        options["record"] = _often(options.get("record"))
    config = RunConfig(task, model, optimizer, steps=steps, batch_size=batch, validate_every=every, **options)
    return dataclasses.replace(config, log_every=max(1, min(20, steps // 50)), orthogonality_bound=1.0)


def _often(record: object) -> RecordConfig:
    assert record is None or isinstance(record, RecordConfig)
    record = record or RecordConfig()
    looked: dict[str, Any] = {name: 1 for name in ("gradients", "spectrum") if getattr(record, name) is not None}
    return dataclasses.replace(record, sequences=2, **looked)


def called(system: str) -> str:
    """ "scornn-170-T400" in the paper's words: "scoRNN 170 T=400"."""
    name = max((name for name in _NAMES if system.startswith(f"{name}-")), key=len)
    return f"{_NAMES[name]} {system.removeprefix(f'{name}-').replace('-T', ' T=')}"


def curves(
    runs: Runs, systems: Sequence[str], kind: str, metric: str = "loss", *, epochs: bool = False
) -> Mapping[str, Curve]:
    """The first seed's curve of each system that has begun."""
    found = {called(system.split("-T")[0]): runs.of(system) for system in systems}
    return {name: own[0].curve(kind, metric, epochs=epochs) for name, own in found.items() if own}


# ---- 5.1, copying

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
            "full-capacity uRNN 128 T=2000, test loss", words="at the baseline for some thousand updates, then to 0"
        ),
        Published("scoRNN 190 T=2000, test loss", words="smoothly to 0, more slowly than the full-capacity uRNN"),
    ),
    hours=(0.3, 60.0),
    laptop=(
        "updates: T=1000 scoRNN 1200, full-capacity uRNN 600, LSTM 300; T=2000 600, 150 and 100; in full 10000 each",
        "the restricted-capacity uRNN (470 units by FFT, some seconds an update) is left out",
        "test: 200 sequences after the last update; the figure's curves are of training batches, all fresh",
    ),
)
def figure1(setting: Setting) -> Plan:
    """Copying over T = 1000 and 2000 with about 22000 parameters, batches of 20, RMSprop."""
    laptop = {"scornn": (1200, 600), "full-urnn": (600, 150), "lstm": (300, 100), "urnn": (0, 0)}
    systems = {}
    for place, T in enumerate((1000, 2000)):
        task = Copying(T=setting.at(10 + place, T, T), validation_size=40, test_size=setting.at(4, 200, 1000))
        for name, n in _COPYING.items():
            model = scornn(n, 1 / 2) if name == "scornn" else baseline(name, n)
            steps = setting.at(2 * (place == 0), laptop[name][place], 10_000)
            if steps:
                systems[f"{name}-{n}-T{T}"] = run(setting, task, model, steps, 20, 50, evaluation_batch=40)

    def outcome(runs: Runs) -> Outcome:
        rows = runs.rows_at_end("loss", form="{:.2e}", names={name: called(name) for name in systems})
        shown = {f"T = {T}": curves(runs, [s for s in systems if s.endswith(f"T{T}")], "train") for T in (1000, 2000)}
        baselines = {f"T = {T}": Copying(T=T).trivial_loss for T in (1000, 2000)}
        return Outcome(rows, _against_baseline(runs), draw=panels(shown, log=True, baselines=baselines), size=(11, 4.2))

    return Plan(systems, outcome)


def _against_baseline(runs: Runs) -> list[str]:
    """By system: the first update whose running loss lies under a tenth of the baseline, or the ratio at the end."""
    said = []
    for system in runs.systems:
        for one in runs.of(system)[:1]:
            steps, losses = one.curve("train")
            trivial = one.task.trivial_loss
            under = [step for step, loss in zip(steps, losses) if loss < trivial / 10]
            if under:
                said.append(f"{called(system)}: below a tenth of the baseline from update {under[0]:.0f} on.")
            elif losses:
                said.append(
                    f"{called(system)}: {losses[-1] / trivial:.3f} of the baseline after {steps[-1]:.0f} updates."
                )
    return said


# ---- 5.2, adding

_ADDING = {"scornn": 170, "lstm": 60, "full-urnn": 120, "urnn": 950}


def adam_and_rmsprop(lr: float = 1e-3, recurrent_lr: float = 1e-4) -> OptimizerConfig:
    """Adam, RMSprop for A: section 5.4, and the released code for the adding problem."""
    return OptimizerConfig("adam", recurrent="rmsprop", lr=lr, recurrent_lr=recurrent_lr)


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
    hours=(0.25, 90.0),
    laptop=(
        "updates: scoRNN 3000, 1500 and 800 (T=200, 400, 750), LSTM 2000, 600, 300, full-capacity uRNN 1000, 300, 150; "
        "in full 20000 (10 epochs of 100000 sequences)",
        "the restricted-capacity uRNN (950 units by FFT) is left out",
        "curves are of 500 held-out sequences; the 10000 of the test set after the last update only",
    ),
)
def figure2(setting: Setting) -> Plan:
    """Adding over T = 200, 400, 750 with about 14000 parameters: squared error against updates, batches of 50."""
    laptop = {"scornn": (3000, 1500, 800), "lstm": (2000, 600, 300), "full-urnn": (1000, 300, 150), "urnn": (0, 0, 0)}
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

    def outcome(runs: Runs) -> Outcome:
        rows = runs.rows_at_end("loss", form="{:.2e}", names={name: called(name) for name in systems})
        shown = {
            f"T = {T}": curves(runs, [s for s in systems if s.endswith(f"T{T}")], "validation") for T in (200, 400, 750)
        }
        draw = panels(shown, y="squared error", log=True, baselines=dict.fromkeys(shown, 1 / 6))
        return Outcome(rows, _against_baseline(runs), draw=draw, size=(14, 4.2))

    return Plan(systems, outcome)


# ---- 5.3, pixel MNIST

_MNIST = {  # model, n, rate of A, published accuracies
    "scornn-170": (170, 1e-4, 0.973, 0.943),
    "scornn-360": (360, 1e-5, 0.983, 0.962),
    "scornn-512": (512, 1e-5, 0.985, 0.966),
    "lstm-128": (128, 0.0, 0.987, 0.920),
    "lstm-256": (256, 0.0, 0.989, 0.929),
    "lstm-512": (512, 0.0, 0.985, 0.920),
    "urnn-512": (512, 0.0, 0.976, 0.945),
    "urnn-2170": (2170, 0.0, 0.984, 0.953),
    "full-urnn-116": (116, 0.0, 0.947, 0.925),
    "full-urnn-512": (512, 0.0, 0.974, 0.947),
}
_EPOCH = 1100  # updates: 55000 images in batches of 50
_MNIST_SMOKE = ("scornn-170", "lstm-128")
_MNIST_LAPTOP = {"scornn-170": 10, "full-urnn-116": 2, "lstm-128": 1}  # epochs


def _mnist_run(setting: Setting, system: str, permuted: bool, epochs: float, task: PixelMNIST) -> RunConfig:
    n, recurrent_lr = _MNIST[system][:2]
    name = system.rsplit("-", 1)[0]
    if name == "scornn":
        model, optimizer = scornn(n, 1 / 2 if permuted else 1 / 10), rmsprop(recurrent_lr)
    else:
        model, optimizer = baseline(name, n), of_baselines()
    every = _EPOCH if epochs >= 1 else _EPOCH // 4
    record = RecordConfig(test=True)
    return run(setting, task, model, round(epochs * _EPOCH), 50, every, optimizer=optimizer, record=record)


def _mnist(setting: Setting) -> dict[str, RunConfig]:
    """Ten systems on both tasks; at laptop size three."""
    systems = {}
    for permuted, place in ((False, "MNIST"), (True, "permuted MNIST")):
        task = pixel_mnist(setting, permuted=permuted)
        for system in _MNIST:
            epochs = setting.at(int(system in _MNIST_SMOKE), _MNIST_LAPTOP.get(system, 0), 70)
            if epochs:
                systems[f"{system} {place}".replace(" ", "-")] = _mnist_run(setting, system, permuted, epochs, task)
    return systems


def _mnist_name(system: str) -> str:
    for place in ("permuted-MNIST", "MNIST"):
        if system.endswith(place):
            return f"{called(system.removesuffix(f'-{place}'))}, {place.replace('-', ' ')}"
    raise AssertionError(system)


_LAPTOP_MNIST = (
    "epochs: scoRNN 170 10, full-capacity uRNN 116 2, LSTM 128 1, in place of 70; one seed, as in the paper",
    "the wider networks and the restricted-capacity uRNN (2 s an update) are left out",
    "55000 images for training as in the text; the other 5000 select the epoch. The paper reports the best test epoch: "
    "the column beside",
)


@reproduces(
    "Table 1",
    section="5.3",
    published=tuple(
        Published(f"{called(system)}, {place}, test accuracy", values[2 + permuted], PERCENT)
        for permuted, place in enumerate(("MNIST", "permuted MNIST"))
        for system, values in _MNIST.items()
    ),
    hours=(1.2, 900.0),
    laptop=_LAPTOP_MNIST,
)
def table1(setting: Setting) -> Plan:
    """Pixel MNIST in order (rho = n/10) and permuted (rho = n/2): best test accuracy of 70 epochs, batches of 50."""
    systems = _mnist(setting)

    def outcome(runs: Runs) -> Outcome:
        rows = runs.rows("accuracy", form=PERCENT, names={name: _mnist_name(name) for name in systems})
        return Outcome(rows)

    return Plan(systems, outcome)


@reproduces(
    "Fig. 3",
    section="5.3",
    published=(
        Published(
            "test accuracy over epochs",
            words="scoRNN 360 and 512 above the uRNNs on both, all above the LSTM on permuted MNIST",
        ),
    ),
    hours=(0.0, 0.0),
    laptop=_LAPTOP_MNIST,
    shares="table1",
)
def figure3(setting: Setting) -> Plan:
    """The test accuracy of Table 1's runs against epochs."""
    systems = _mnist(setting)

    def outcome(runs: Runs) -> Outcome:
        shown = {}
        for place in ("MNIST", "permuted-MNIST"):
            own = [s for s in systems if s.removesuffix(f"-{place}") in _MNIST]
            found = {s: runs.of(s) for s in own}
            shown[place.replace("-", " ")] = {
                called(s.removesuffix(f"-{place}")): one[0].curve("test", "accuracy", epochs=True)
                for s, one in found.items()
                if one
            }
        best = [(max(c[1]), name, place) for place, all_ in shown.items() for name, c in all_.items() if c[1]]
        rows = [Row(f"{name}, {place}, best test accuracy so far", value, form=PERCENT) for value, name, place in best]
        return Outcome(rows, draw=panels(shown, x="epochs", y="test accuracy"), size=(11, 4.2))

    return Plan(systems, outcome)


# ---- 5.4, speech

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
            Published(f"{_NAMES[name]} {n}, {part} MSE", value, "{:.2f}", "(TIMIT)")
            for name, sizes in _SPEECH.items()
            for n, values in sizes.items()
            for part, value in zip(("validation", "test"), values)
        ),
        Published("scoRNN 224, SegSNR", words="better than the full-capacity uRNN's; no number"),
        Published("scoRNN 224, STOI", words="slightly worse than the full-capacity uRNN's; no number"),
        Published("scoRNN 224, PESQ", words="slightly worse than the full-capacity uRNN's; no number"),
    ),
    hours=(0.1, 40.0),
    laptop=(
        "LibriSpeech (598, 128 and 192 utterances at 8 kHz) in place of TIMIT, which is sold: its squared errors, in dB^2 "
        "of 10 log10, cannot be compared with the paper's, whose scale is not stated",
        "updates: scoRNN 600, LSTM 400, full-capacity uRNN 300; only the smallest network of each kind, without the "
        "restricted-capacity uRNN (FFT)",
        "batches of 32 utterances: the paper does not say; SegSNR, STOI and PESQ of 20 test utterances",
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

    def outcome(runs: Runs) -> Outcome:
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
        said = [f"{name}: squared error {loss:.2f} dB^2 on the test set" for name, loss in task.baselines().items()]
        return Outcome(rows, said)

    return Plan(systems, outcome)


def _scores(task: Speech, model: SequenceModel, count: int) -> dict[str, dict[str, float | None]]:
    return task.scores(model, count)


# ---- appendices B, C, D


@reproduces(
    "Fig. 4",
    section="appendix B",
    published=(
        Published("scoRNN, ||W'W - I|| at the end", words="flat"),
        Published("full-capacity uRNN, ||W'W - I|| at the end", words="grows from epoch to epoch"),
    ),
    hours=(0.1, 120.0),
    laptop=("n = 128 in place of 512, batches of 10 in place of 50, 1500 updates in place of 70 epochs; on a CPU",),
)
def figure4(setting: Setting) -> Plan:
    """Loss of orthogonality over the updates of pixel MNIST at equal n; a third curve with the drift corrected."""
    n, batch = setting.at((6, 2), (128, 10), (512, 50))
    steps = setting.at(2, 1500, 70 * _EPOCH)
    record = RecordConfig(spectrum=setting.at(1, 50, _EPOCH))
    published = dataclasses.replace(of_baselines(), manifold_lr=1e-4, reorthogonalize_every=None)
    corrected = dataclasses.replace(published, reorthogonalize_every=10)
    given: dict[str, tuple[ModelConfig, OptimizerConfig]] = {
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

    def outcome(runs: Runs) -> Outcome:
        rows, shown, said = [], {}, []
        for system in systems:
            for one in runs.of(system)[:1]:
                history = SpectrumHistory.of(one.saved.records)
                shown[names[system]] = (history.updates.tolist(), history.error.clip(1e-9).tolist())
                rows.append(Row(f"{names[system]}, ||W'W - I|| at the end", float(history.error[-1]), form="{:.1e}"))
                half = len(history.error) // 2
                said.append(
                    f"{names[system]}: {history.error[0]:.1e} at the beginning, {history.error[half]:.1e} after "
                    f"{history.updates[half]} updates, {history.error[-1]:.1e} after {history.updates[-1]}."
                )
        return Outcome(rows, said, draw=panels({f"n = {n}": shown}, y="||W'W - I||", log=True))

    return Plan(systems, outcome)


@reproduces(
    "Fig. 5",
    section="appendix C",
    published=(
        Published(
            "LSTM 60, gradient at t=0 over t=T, update 0", words="decays steadily with the distance from the end"
        ),
        Published("LSTM 60, gradient at t=0 over t=T, update 300", words="decays more than before training"),
        Published("scoRNN 170, gradient at t=0 over t=T, update 0", words="less than an order of magnitude, near 1e-2"),
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

    def outcome(runs: Runs) -> Outcome:
        rows: list[Row] = []
        shown: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        for system in systems:
            for one in runs.of(system)[:1]:
                history = GradientHistory.of(one.saved.records)
                for place in (0, -1):
                    update, norms = history.updates[place], history.norms[place].clip(1e-44)
                    ratio = float(norms[0] / norms[-1])
                    rows.append(
                        Row(f"{called(system)}, gradient at t=0 over t=T, update {update}", ratio, form="{:.2g}")
                    )
                    shown.setdefault(f"update {update}", {})[called(system)] = (list(range(len(norms))), norms.tolist())
        return Outcome(rows, draw=panels(shown, x="t", y="norm of the gradient at h(t)", log=True), size=(10.5, 4.2))

    return Plan(systems, outcome)


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
        Published(f"{called(system)}, minutes an epoch", minutes, "{:.1f}", "(i5-7400, GTX 1080)")
        for system, minutes in _MINUTES.items()
    ),
    hours=(0.03, 0.1),
    laptop=(
        "each is timed over one update of 50 images after one to warm up (in full: 20), times 1100; evaluation is "
        "not in it; the paper does not say whether it is in its own",
        "a CPU, with the threads that the results name; with one thread, processor time",
    ),
)
def table3(setting: Setting) -> Plan:
    """Minutes an epoch of pixel MNIST: the median time of an update, times 1100."""
    task = pixel_mnist(setting)

    def outcome(runs: Runs) -> Outcome:
        rows = []
        for system in _MINUTES:
            name, width = system.rsplit("-", 1)
            n = setting.at(6, int(width), int(width))
            model = scornn(n, 1 / 10) if name == "scornn" else baseline(name, n)
            config = RunConfig(task, model, rmsprop(), batch_size=setting.at(2, 50, 50))
            seconds = timing.seconds_an_update(config, updates=setting.at(1, 1, 20))
            rows.append(Row(f"{called(system)}, minutes an epoch", _EPOCH * seconds / 60, form="{:.1f}"))
        return Outcome(rows)

    return Plan({}, outcome)
