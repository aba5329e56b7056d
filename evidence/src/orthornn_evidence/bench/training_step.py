"""The cost of a training step inside and outside the compiled kernels: autograd, the optimizer, the readout, the loss,
Python.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from orthornn.activations import Name
from orthornn.errors import ArgumentError, BackendError
from orthornn.kernels.backends.cpp import extension
from orthornn.learn.systems import Model, model_named
from orthornn.learn.tasks import Batch, Objective, Problem, Task
from orthornn.learn.tasks.task import judged
from orthornn.learn.training import OptimizerConfig, RunConfig, Trainer

from .cases import Case
from .timing import Timing

STEP_MODELS: Final = {"wy": "ornn", "rotations": "ornn-rotations", "cayley": "scornn"}
_CLASSES = 10
_ROUNDS_OF = 20  # updates


@dataclass(frozen=True)
class _OneBatch(Task):
    """Classify sequences; every batch is the same, so generating data takes no time."""

    name: ClassVar[str] = "one-batch"
    output = "last"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    batch: Batch

    @property
    def steps(self) -> int:
        return self.batch.inputs.shape[0]

    def problem(self) -> Problem:
        schema = {"input_size": 1, "output_size": _CLASSES, "input": "real", "output": "last", "says": "classes"}
        return Problem(schema, lambda *which: self.batch, self._held_out, self._held_out)

    def objective(self) -> Objective:
        return _CrossEntropy(trivial=float(torch.tensor(_CLASSES).log()), **judged(self))

    def _held_out(self, batch_size: int) -> Iterator[Batch]:
        yield self.batch


@dataclass(frozen=True)
class _CrossEntropy(Objective):
    trivial_formula: ClassVar[str] = "the logarithm of the number of classes"

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, int]]:
        return {"loss": (float(self.loss(prediction, targets)) * len(targets), len(targets))}


class _Stopwatch:
    """A stand-in for the compiled module that adds up the seconds spent in its functions."""

    def __init__(self, compiled: Any, clock: Callable[[], float]) -> None:
        self._compiled, self._clock = compiled, clock
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._compiled, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            start = self._clock()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += self._clock() - start

        setattr(self, name, timed)  # found without __getattr__ from now on
        return timed


@contextmanager
def _watched(clock: Callable[[], float]) -> Iterator[_Stopwatch]:
    compiled = extension.native
    stopwatch = _Stopwatch(compiled, clock)
    extension.native = stopwatch
    try:
        yield stopwatch
    finally:
        extension.native = compiled


@dataclass(frozen=True)
class StepCost:
    """Seconds of an update of the training loop: all of it, inside the compiled kernels, and the rest."""

    case: Case
    T: int
    update: Timing
    inside: Timing
    outside: Timing


def step_model(case: Case) -> Model:
    """Return the model of a case: ornn or ornn-rotations with its reflections, or scornn."""
    if case.form == "linear":
        raise ArgumentError(
            f"Expected a case wy-N-M-bB, rotations-N-M-bB or cayley-N-bB for a training step, but got {case.name}."
        )
    reflections = {"reflections": case.m} if case.has_reflections else {}
    return model_named(STEP_MODELS[case.form], hidden_size=case.n, **reflections)


def step_nonlinearity(case: Case) -> Name:
    """Return the nonlinearity that the model of a case has by default."""
    return "leaky_relu" if case.form == "wy" else "modrelu"


def training_step(T: int, rounds: int, case: Case, clock: Callable[[], float] = time.perf_counter) -> StepCost:
    """Time updates of `orthornn train`'s loop: ornn or scornn, a readout of 10 classes, cross entropy, fused Adam.

    Inside is the time in functions of the compiled module, measured in the same updates; outside is the rest of an update,
    including the clock calls. The clock is wall time unless another is given. Raise BackendError without the compiled
    kernels.

    The learning rate is 0. Otherwise the single batch would be learned, and Adam's squares of vanishing gradients would
    become denormal numbers, which are many times slower.
    """
    reason = extension.missing()
    if reason is not None:
        raise BackendError(f"a step is divided at the compiled kernels: {reason}.")
    generator = torch.Generator().manual_seed(0)
    model, batch = step_model(case), case.batch
    data = Batch(torch.rand(T, batch, 1, generator=generator), torch.randint(_CLASSES, (batch,), generator=generator))
    optimizer = OptimizerConfig(lr=0.0)
    trainer = Trainer(RunConfig(task=_OneBatch(data), model=model, optimizer=optimizer, batch_size=batch))
    update: list[list[float]] = []
    inside: list[list[float]] = []
    with _watched(clock) as stopwatch:
        for _ in range(rounds + 1):
            update.append([])
            inside.append([])
            for _ in range(_ROUNDS_OF):
                stopwatch.seconds = 0.0
                start = clock()
                trainer.update()
                update[-1].append(clock() - start)
                inside[-1].append(stopwatch.seconds)
    update, inside = update[1:], inside[1:]  # the first round does not count
    outside = [[u - i for u, i in zip(us, ins)] for us, ins in zip(update, inside)]
    return StepCost(case, T, Timing(update), Timing(inside), Timing(outside))


def medians_by_round(timing: Timing) -> list[float]:
    """Return the median seconds of every round."""
    return [statistics.median(turn) for turn in timing.rounds]
