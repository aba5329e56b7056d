"""Copying: the claims of section 5.5."""

from __future__ import annotations

from orthornn.learn.systems import model_named

from ..experiment import Plan, Published, Setting, reproduces
from .common import copying_run, tabulate_copying

_ACTIVATIONS = {
    "leaky_relu": ("leaky ReLU", "does not reach the uRNN"),
    "oplu": ("OPLU", "comparable to the uRNN"),
    "complex_modrelu": ("modReLU on pairs", "no better than leaky ReLU"),
}


@reproduces(
    "text of section 5.5",
    section="5.5",
    published=(
        *(
            Published(f"oRNN, {name}, m={m}, loss over baseline", words=f"{claim} (m not given)")
            for name, claim in _ACTIVATIONS.values()
            for m in (16, 128)
        ),
        Published("uRNN, loss over baseline", words="solves it (Arjovsky et al., 2016)"),
    ),
    hours=(0.03, 7.0),
    laptop=(
        "T=100, n=128, 1000 updates, two seeds (full: T=500, 20000 updates, five seeds); the paper states none "
        "of these",
    ),
)
def copying(setting: Setting) -> Plan:
    """Copying with leaky ReLU, OPLU and the real form of modReLU, compared with a uRNN of equal real width."""
    steps, T = setting.at(2, 1000, 20_000), setting.at(4, 100, 500)
    systems, names = {}, {"urnn": "uRNN"}
    for m in setting.at((16,), (16, 128), (16, 128)):
        for activation, (name, _) in _ACTIVATIONS.items():
            model = model_named("ornn", hidden_size=128, reflections=m, nonlinearity=activation)
            key = f"{activation.replace('_', '-')}-m{m}"
            systems[key] = copying_run(setting, model, steps, T)
            names[key] = f"oRNN, {name}, m={m}"
    systems["urnn"] = copying_run(setting, model_named("urnn", hidden_size=64), steps, T)
    return Plan(systems, tabulate_copying(names), seeds=setting.at(1, 2, 5))
