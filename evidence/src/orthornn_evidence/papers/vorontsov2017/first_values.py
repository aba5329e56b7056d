"""Table 1 of Vorontsov et al., 2017, with other initial values than those of its released code, and what they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthornn.diagnostics import hidden_gradient_norms
from orthornn.learn.systems import model_named
from orthornn.learn.systems.initial_values import lasagne_
from orthornn.learn.tasks import Batch
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, RecordConfig
from orthornn.modules import OrthogonalRNN
from orthornn.parametrizations import SpectralMargin

from ...tasks import PixelMNIST
from ..data import pixel_mnist
from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import PERCENT, curves, run

_NAMES = {
    f"{row}-{place}": f"{row.replace('-', ' ', 1).replace('-', ', ')}, {place}"
    for place in ("MNIST", "pMNIST")
    for row in ("margin-0", "margin-0.1", "no-margin-orthogonal")
}
_PUBLISHED = (77.18, 94.10, 93.24, 83.56, 91.44, 90.51)


@reproduces(
    "ours",
    section="3.1.2",
    published=tuple(
        Published(f"{name}, test accuracy", value / 100, PERCENT) for name, value in zip(_NAMES.values(), _PUBLISHED)
    ),
    hours=(0.4, 16.0),
    laptop=("3000 updates instead of 120 epochs of 1000; one seed",),
)
def first_values(setting: Setting) -> Plan:
    """Table 1's networks on pixel MNIST with the initial values of torch.nn.RNN and Linear, which are nine times larger
    at the input and include a bias; images in the order of the file, decay only on W, RMSprop with 1e-8 outside the
    root.
    """
    optimizer = OptimizerConfig(
        "rmsprop", lr=1e-4, recurrent_lr=1e-4, manifold="cayley-sgd", manifold_lr=1e-6, clip_norm=100.0
    )
    systems = {}
    for system, name in _NAMES.items():
        row, place = name.rsplit(", ", 1)
        margin = "none" if row.startswith("no ") else float(row.removeprefix("margin "))
        systems[system] = run(
            setting,
            pixel_mnist(setting, variant="vorontsov2017", permuted=place == "pMNIST"),
            model_named("spectral", hidden_size=128, margin=margin, init="orthogonal"),
            setting.at(2, 3000, 120_000),
            optimizer,
            record=RecordConfig(spectrum=50, test=True),
            validate_every=setting.at(1, 1000, 1000),
            penalties=PenaltyConfig(weight_decay=1e-4),
        )

    def tabulate(runs: Runs) -> ResultTable:
        rows = [row for row in runs.rows("accuracy", form=PERCENT, names=_NAMES) if ", test" in row.what]
        shown = {
            place: curves(runs, {s: n for s, n in _NAMES.items() if n.endswith(f", {place}")}, "validation", "loss")
            for place in ("MNIST", "pMNIST")
        }
        return ResultTable(rows, draw=panels(shown), size=(11, 4.2))

    return Plan(systems, tabulate)


def _unbiased(core: OrthogonalRNN) -> OrthogonalRNN:
    nn.init.zeros_(core.get_parameter("bias_ih_l0"))
    return core


_STARTS: dict[str, Callable[[OrthogonalRNN], OrthogonalRNN]] = {
    "torch.nn.RNN's values": lambda core: core,
    "the same with biases 0": _unbiased,
    "released values": lasagne_,
}
_BATCH = 500


@reproduces(
    "ours",
    section="3.1.2",
    published=(),
    hours=(0.1, 0.1),
)
def at_initialization(setting: Setting) -> Plan:
    """An untrained orthogonal network with tanh, n = 128, on MNIST in order: the ratio of the gradient at the first
    step to the gradient at the last, and the test accuracy of logistic regression on the last state.
    """

    def measure(runs: Runs) -> ResultTable:
        task = pixel_mnist(setting, variant="vorontsov2017")
        n, images = setting.at(6, 128, 128), setting.at(20, 50_000, 50_000)
        rows = []
        for name, start in _STARTS.items():
            torch.manual_seed(0)
            core = start(OrthogonalRNN(1, n, parametrization=SpectralMargin(0.0), nonlinearity="tanh"))
            norms = hidden_gradient_norms(core, next(task.problem().test(50)).inputs)[0]
            found = _readout_accuracy(core, task, images)
            what = f"{name}: gradient at t=0 over t={len(norms) - 1}"
            rows += [
                Row(what, float(norms[0] / norms[-1]), form="{:.1e}"),
                Row(f"{name}: accuracy of logistic regression on the last state", found, form=PERCENT),
            ]
        return ResultTable(rows)

    return Plan({}, measure)


def _readout_accuracy(core: OrthogonalRNN, task: PixelMNIST, images: int) -> float:
    """Return the share of the test images whose class logistic regression, fitted to the states of so many training images,
    reads off the last state.
    """
    training = (task.problem().train(step, min(_BATCH, images), 0) for step in range(-(-images // _BATCH)))
    states, classes = _last_states(core, training)
    mean, scale = states.mean(0), states.std(0) + 1e-9
    readout = nn.Linear(states.shape[1], task.problem().schema["output_size"], dtype=torch.float64)
    optimizer = torch.optim.LBFGS(readout.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(readout((states - mean) / scale), classes)
        loss.backward()
        return loss

    optimizer.step(closure)
    states, classes = _last_states(core, task.problem().test(_BATCH))
    with torch.no_grad():
        return float((readout((states - mean) / scale).argmax(-1) == classes).double().mean())


def _last_states(core: OrthogonalRNN, batches: Iterator[Batch]) -> tuple[Tensor, Tensor]:
    """Return the last states (images, N) float64 and the classes (images,)."""
    with torch.no_grad():
        made = [(core(batch.inputs, output="last")[0].double(), batch.targets) for batch in batches]
    return torch.cat([states for states, _ in made]), torch.cat([classes for _, classes in made])
