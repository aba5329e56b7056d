"""Section 3.2: soft constraints."""

from __future__ import annotations

from orthornn.learn.systems import Model, model_named
from orthornn.learn.training import OptimizerConfig

from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Runs
from .common import PERCENT, RELEASED, copying, curves, decayed, rmsprop, run, spectral

_SOFT_DIFFERENCES = (
    "400 updates (B: 200); the paper's curves have thousands of updates",
    "RMSprop at 1e-4 in A and SGD at 1e-2 in C and D instead of 1e-5, at which so few updates would change nothing",
)


@reproduces(
    "Fig. 6",
    section="3.2",
    published=(
        Published("A: ||W'W - I||^2 on a plain network, T=200", words="weaker is faster", statement=True),
        Published("B: the same on a factorized one, T=500", words="weaker is faster", statement=True),
        Published("C: Gaussian prior, no sigmoid", words="weaker is faster; soon unstable", statement=True),
        Published("D: Gaussian prior, sigmoid of margin 1", words="weaker is faster; none is unstable", statement=True),
    ),
    hours=(0.02, 7.0),
    laptop=_SOFT_DIFFERENCES,
)
def figure6(setting: Setting) -> Plan:
    """Copying with soft constraints of several strengths (0, .01, 1; the paper does not state its own): accuracy."""
    strengths = setting.at((0.01,), (0.0, 0.01, 1.0), (0.0, 1e-4, 1e-3, 0.01, 0.1, 1.0))
    steps, long = setting.at((2, 2), (400, 200), (50_000, 50_000))
    plain = rmsprop(lr=setting.at(1e-4, 1e-4, 1e-5))
    rate = setting.at(1e-2, 1e-2, 1e-5)
    sgd = OptimizerConfig("sgd", lr=rate, recurrent_lr=rate, manifold="cayley-sgd", manifold_lr=1e-6, momentum=0.9)
    elman = model_named("elman", hidden_size=128, nonlinearity="identity", **RELEASED)
    panels_of: dict[str, tuple[Model, int, int, OptimizerConfig, str]] = {
        "A": (elman, 200, steps, plain, "soft_orthogonality"),
        "B": (spectral("none", nonlinearity="identity"), 500, long, rmsprop(), "soft_orthogonality"),
        "C": (spectral("none", nonlinearity="identity"), 200, steps, sgd, "spectrum_prior"),
        "D": (spectral("1", nonlinearity="identity"), 200, steps, sgd, "spectrum_prior"),
    }
    systems = {}
    for panel, (model, T, updates, optimizer, penalty) in panels_of.items():
        for strength in strengths:
            penalties = decayed(**{penalty: strength})
            systems[f"{panel}-{strength:g}"] = run(
                setting, copying(setting, T), model, updates, optimizer, penalties=penalties, validate_every=50
            )
    names = {name: name.replace("-", ": strength ") for name in systems}

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows_at_end("recall", form=PERCENT, names=names) + runs.rows_at_end("loss", names=names)
        shown = {
            panel: curves(
                runs, {n: n.removeprefix(f"{panel}-") for n in systems if n.startswith(panel)}, "validation", "loss"
            )
            for panel in panels_of
        }
        return ResultTable(rows, draw=panels(shown), size=(16, 4.0))

    return Plan(systems, tabulate)
