"""Mhammedi, Hellicar, Rahman and Bailey, 2017: Efficient orthogonal parametrisation of recurrent neural networks using
Householder reflections. Published numbers are those of the ICML version.

Everywhere: Adam at one rate for all parameters, leaky ReLU, first values as in Arjovsky et al., 2016, biases 0, a forget
bias of 5, h_0 learned (cores.py: ornn, lstm). Where the text and the released code differ the text is followed.
"""

from __future__ import annotations

from ..training import ModelConfig, OptimizerConfig, RecordConfig, RunConfig
from .data import pixel_mnist
from .experiment import Plan, Published, Setting, reproduces
from .outcome import Outcome, Row, Runs

_TRAINING_IMAGES = 55_000
_PERCENT = "{:.1%}"


def _adam(lr: float) -> OptimizerConfig:
    return OptimizerConfig(name="adam", lr=lr, recurrent_lr=lr)


def _mnist(setting: Setting, n: int, m: int, batch: int, lr: float, epochs: float) -> RunConfig:
    """Pixel MNIST with n hidden units, m reflections, for this many epochs of 55000 images."""
    smoke = setting.budget == "smoke"
    epoch = _TRAINING_IMAGES // batch
    return RunConfig(
        task=pixel_mnist(setting),
        model=ModelConfig("ornn", hidden_size=n, reflections=m),
        optimizer=_adam(lr),
        record=RecordConfig(test=True),
        steps=2 if smoke else round(epochs * epoch),
        batch_size=batch,
        validate_every=2 if smoke else max(1, epoch // 2),
        log_every=1 if smoke else max(1, epoch // 100),
    )


@reproduces(
    "Table 3",
    section="5.3",
    published=(
        Published("oRNN 256 (m=32), validation accuracy", 0.970, _PERCENT),
        Published("oRNN 256 (m=32), test accuracy", 0.972, _PERCENT),
        Published("RNN 128 (Vorontsov et al., 2017), test accuracy", 0.941, _PERCENT, "(quoted there)"),
        Published("uRNN 512 (Arjovsky et al., 2016), test accuracy", 0.951, _PERCENT, "(quoted there)"),
        Published("RC uRNN 512 (Wisdom et al., 2016), test accuracy", 0.975, _PERCENT, "(quoted there)"),
        Published("FC uRNN 116 (Wisdom et al., 2016), test accuracy", 0.928, _PERCENT, "(quoted there)"),
    ),
    hours=(0.6, 20.0),
    laptop=(
        "15 epochs of one seed; the paper does not say how many epochs it trained (its Fig. 5 has an axis that the text "
        "does not name) nor how many seeds",
    ),
)
def table3(setting: Setting) -> Plan:
    """Pixel MNIST: n=256, m=32, one image an update, learning rate 1e-4."""
    n, m = setting.at((8, 3), (256, 32), (256, 32))
    config = _mnist(setting, n, m, batch=1, lr=1e-4, epochs=setting.at(1, 15, 100))

    def outcome(runs: Runs) -> Outcome:
        rows = runs.rows(form=_PERCENT, names={"ornn-256-32": "oRNN 256 (m=32)"})
        runs_of = runs.of("ornn-256-32")
        rows += [
            Row("oRNN 256 (m=32), minutes an epoch", run.seconds / 60 / (run.steps / _TRAINING_IMAGES), form="{:.2f}")
            for run in runs_of[:1]
            if run.steps
        ]
        return Outcome(rows)

    return Plan({"ornn-256-32": config}, outcome, seeds=setting.at(1, 1, 5))
