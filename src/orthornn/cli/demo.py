"""`orthornn demo`: train networks of equal size on copying, and show their gradients.

Four networks with one parameter count learn the copying task in turns, live, each for an equal share of the given time.
Then the demo shows how fast a step is compared with torch's layers of the same width, a table, and a figure with the
learning curves, the gradient's norm by step, and the eigenvalues of the recurrent matrices.

Everything runs on one thread. Several threads would wait for each other if other programs use the cores, and they would
round sums differently; with one thread the networks learn the same on any number of cores.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._shell_word import shell_word
from ..cores import limited_threads
from ..diagnostics import hidden_gradient_norms
from ..learn import compare
from ..learn.options import results_folder
from ..learn.report.figures import figure_note, or_a_warning, overview
from ..learn.report.table import Column, Table
from ..learn.systems import SequenceModel, model_named, parse_count
from ..learn.tasks import Copying, Task
from ..learn.training import OptimizerConfig, RunConfig
from ..modules import OrthogonalRNN
from .arguments import read_options
from .outputs import check_new_files
from .progress import Display

DESCRIPTION = (
    "Trains four networks with equally many parameters on copying, in turns, on one thread, and for at most the given time. "
    "Prints what they recall and the time of a pass next to torch's layers of the same width. Draws learning curves, the "
    "gradient's norm at each time step, and the eigenvalues of the recurrent matrices."
)
LEARNING_RATES = {"ornn-rotations": 3e-3, "ornn": 1e-2, "scornn": 3e-3, "lstm": 1e-2}
"""The best rate of each network on the demo's task, of 1e-3, 3e-3, 1e-2 and 3e-2 (results/demo/learning_rates.json)."""
_RATE = 1e-3  # of other models
_GRADIENT_BATCH = 20
_SPEED_ROUNDS = 5


@dataclass(frozen=True)
class DemoArguments:
    """The options of orthornn demo."""

    T: int = 200
    """Steps between the symbols and their recall."""
    parameters: str = "5k"
    """Parameter budget of each network."""
    reflections: int = 16
    """Householder reflections of ornn and ornn-rotations."""
    models: str = "ornn-rotations,ornn,scornn,lstm"
    """Names of the models, separated by commas."""
    seconds: float = 100.0
    """Seconds of training of all networks together, after which they stop, even if they have not finished learning.
    Each has an equal share; time that one does not use goes to the others.
    """
    steps: int = 1500
    """Updates of each network, if --seconds allows."""
    batch_size: int = 20
    """Sequences per update."""
    lr: float | None = None
    """Learning rate of all networks. Default: the best of each network in a sweep; 1e-3 for other models."""
    recurrent_lr: float | None = None
    """Learning rate of the parameters of the recurrent matrix. Default: a tenth of --lr."""
    seed: int = 0
    """Seed of the initial values and of the training data."""
    out: Path | None = None
    """Folder for the results. Default: a new one in runs/."""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(DemoArguments, "orthornn demo", DESCRIPTION, words)
    task = Copying(T=arguments.T)
    base = RunConfig(
        task=task,
        model=model_named(parameters=parse_count(arguments.parameters), reflections=arguments.reflections),
        optimizer=OptimizerConfig(lr=_RATE, recurrent_lr=arguments.recurrent_lr, clip_norm=1.0),
        steps=arguments.steps,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        log_every=10,
    )
    names = [name.strip() for name in arguments.models.split(",") if name.strip()]
    configs = {
        name: _with_rate(config, LEARNING_RATES.get(name, _RATE) if arguments.lr is None else arguments.lr)
        for name, config in compare.configs(dataclasses.replace(base, validate_every=base.steps), names).items()
    }
    with limited_threads(1):
        return _run(arguments, task, configs)


def _run(arguments: DemoArguments, task: Copying, configs: dict[str, RunConfig]) -> int:
    folder = arguments.out or results_folder("demo")
    figure = folder / "demo.png"
    if not compare.is_begun(folder):
        check_new_files([figure])
    print(
        f"Copying: {task.items} symbols are shown, {task.T} steps later they are to be repeated. "
        f"Networks of {arguments.parameters} parameters.\nA network that remembers nothing has a loss of "
        f"{task.objective().trivial_loss:.4f} (1 x baseline); one that remembers all of it, 0.\n",
        flush=True,
    )
    with compare.Comparison(configs, folder, arguments.seconds) as comparison:
        with Display(task.objective().trivial_loss, arguments.seconds) as display:
            comparison.train(display)
        results = comparison.finish()
        models = {name: run.trainer.model for name, run in comparison.runs.items()}
        with or_a_warning(figure):
            overview(
                figure,
                f"Copying across {task.T} steps, {arguments.parameters} parameters each",
                compare.curves(results),
                task.objective().trivial_loss,
                _gradients(models, task),
                _eigenvalues(models),
            )
    print()  # after the figure: whoever reads this may be gone
    compare.table(results, comparison.diverged).show()
    early = [f"{name} {one.steps} of {one.config.steps}" for name, one in results.items() if not one.finished]
    if early:
        print(
            f"\nThe time, --seconds {arguments.seconds:g}, ended before the updates did ({', '.join(early)}): these networks "
            f"have not learned what they can. To continue, run the same command with more --seconds and --out "
            f"{shell_word(str(folder))}"
        )
    speed = _speed(models, task, arguments.batch_size)
    if speed.rows:
        print()
        speed.show()
    print(f"\nrun directories: {folder}{figure_note(figure)}")
    return 2 if comparison.diverged else 0


def _with_rate(config: RunConfig, lr: float) -> RunConfig:
    return dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr=lr))


def _speed(models: dict[str, SequenceModel], task: Task, batch_size: int) -> Table:
    """Time forward and backward of every orthogonal model next to nn.RNN and nn.LSTM of its width, on the task's
    input.
    """
    columns = [
        Column("model", left=True),
        Column("width"),
        Column("ms"),
        Column("nn.RNN ms"),
        Column("nn.LSTM ms"),
        Column("nn.RNN / model"),
        Column("nn.LSTM / model"),
    ]
    table = Table(
        f"forward and backward, T={task.steps}, B={batch_size}, {torch.get_num_threads()} thread(s), "
        f"next to torch's layers of the same width",
        columns,
    )
    problem = task.problem()
    tokens, classes = problem.train(0, batch_size, 0).inputs, problem.schema["input_size"]
    one_hot = F.one_hot(tokens, classes).float()
    for name, model in models.items():
        if isinstance(model.core, OrthogonalRNN):
            width = model.core.hidden_size
            timed = [(model.core, tokens), (nn.RNN(classes, width), one_hot), (nn.LSTM(classes, width), one_hot)]
            ours, rnn, lstm = _medians([_pass(*pair) for pair in timed])
            table.rows.append(
                [
                    name,
                    str(width),
                    f"{1e3 * ours:.1f}",
                    f"{1e3 * rnn:.1f}",
                    f"{1e3 * lstm:.1f}",
                    f"{rnn / ours:.2f}",
                    f"{lstm / ours:.2f}",
                ]
            )
    return table


def _pass(core: nn.Module, inputs: Tensor) -> Callable[[], object]:
    """Return a function that runs forward, and backward from a gradient of every output to all parameters."""
    with torch.no_grad():
        grad = torch.randn_like(core(inputs)[0])

    def run() -> None:
        core.zero_grad(set_to_none=True)
        core(inputs)[0].backward(grad)

    return run


def _medians(functions: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each function; they take turns, which spreads a slow phase of the machine over all."""
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(_SPEED_ROUNDS):
        for run, own in zip(functions, seconds):
            run()  # the caches are its own by then
            start = time.perf_counter()
            run()
            own.append(time.perf_counter() - start)
    return list(map(statistics.median, seconds))


def _gradients(models: dict[str, SequenceModel], task: Task) -> dict[str, list[float]]:
    """Return ||dL/dh_t|| of every model, as trained, on validation sequences."""
    batch, loss = next(task.problem().validation(_GRADIENT_BATCH)), task.objective().loss
    norms = {}
    for name, model in models.items():
        rows = hidden_gradient_norms(model, batch.inputs, lambda prediction: loss(prediction, batch.targets))
        norms[name] = rows[0].tolist()
    return norms


def _eigenvalues(models: dict[str, SequenceModel]) -> dict[str, np.ndarray]:
    return {
        name: torch.linalg.eigvals(model.core.weight_hh_l0.detach().double()).numpy()
        for name, model in models.items()
        if isinstance(model.core, OrthogonalRNN)
    }
