"""The training loop: updates, validations and the test, and their records.

It writes and prints nothing. Observers do everything else during training: runs/ contains those that store a run and
resume it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._recording import recording
from ..kernels import denormals_as_zero
from .systems import SequenceModel
from .tasks import Batch, Objective, Problem
from .training.config import RunConfig
from .training.learner import Learner

Record = dict[str, Any]
_TIMED = ("kind", "step", "seconds", "cpu_seconds")  # of a test record, what is no metric


class Observer:
    """An observer of a fit, which may request its end. Each method is called at its time and does nothing by
    default.
    """

    def look(self, fit: Fit) -> None:
        """Inspect the network before an update, and after the last; it may be called twice for one step."""

    def recorded(self, record: Record) -> None:
        """Receive a record."""

    def validated(self, fit: Fit) -> None:
        """Inspect the network after a validation, the last of the records."""

    def updated(self, fit: Fit) -> None:
        """Run tasks that are due after an update and its records; their time does not count."""

    def started_well(self, fit: Fit) -> None:
        """Run tasks that are due before the first update of a network initialized from the data."""

    def wants_end(self) -> bool:
        """Return whether the fit should stop."""
        return False


@dataclass
class Clock:
    """Seconds of a run so far, including validation, test and records, and processor seconds."""

    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    _cpu_before: float = dataclasses.field(default_factory=lambda: -time.process_time())  # of earlier processes

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, of all threads of this process and earlier processes."""
        return self._cpu_before + time.process_time()

    @property
    def update_seconds(self) -> float:
        """Seconds so far without validation, test and records."""
        return self.seconds - self.evaluation_seconds

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count the time inside the context as validation, test and records."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.evaluation_seconds += time.perf_counter() - start

    def restore(self, seconds: float, evaluation_seconds: float, cpu_seconds: float) -> None:
        """Continue from the times of earlier processes."""
        self.seconds, self.evaluation_seconds = seconds, evaluation_seconds
        self._cpu_before += cpu_seconds


@dataclass(frozen=True)
class Result:
    """The outcome of a fit: the metrics after the last update, the records, and the model."""

    model: SequenceModel
    steps: int
    validation: dict[str, float]
    test: dict[str, float]
    records: list[Record]


@recording()
def fit(
    problem: Problem,
    objective: Objective,
    model: SequenceModel,
    config: RunConfig,
    *,
    observers: Sequence[Observer] = (),
) -> Result:
    """Train a model, in place.

    Args:
        problem: The data.
        objective: Loss and metrics.
        model: The network with its initial values. Dropout continues with torch's current random state.
        config: Optimizer, schedule, penalties, number of updates and batch size; its task and model are ignored.
        observers: Observers of the fit.

    Raises:
        NonFiniteError: If the loss becomes NaN or infinite.
    """
    made = Fit(Learner(problem, objective, model, config), observers)
    made.advance(lambda seconds: False)
    return made.finish()


class Fit:
    """A training that advances in parts, which lets several take turns.

    validate_first: Whether to validate before the first update as well.

    Attributes:
        validation: The last validation; None before the first.
        stop_wanted: Set it to stop after the next update, on which several processes agree.
        interrupted: Whether that stop has happened.
        torn: Whether an update, or its records, did not complete because of an error or a signal.
    """

    def __init__(self, learner: Learner, observers: Sequence[Observer] = (), validate_first: bool = False) -> None:
        self.learner, self._observers, self._validate_first = learner, observers, validate_first
        self.records: list[Record] = []
        self.clock = Clock()
        self._loss = math.nan
        self.validation: dict[str, float] | None = None
        self.stop_wanted = self.interrupted = self.torn = False
        self._out_of_time = False
        self._recent: list[float] = []
        self._uncounted = 0.0

    @property
    def done(self) -> bool:
        """Whether no update is left: by number, by time, or because of a request to stop."""
        if self.interrupted or self.learner.step >= self.learner.config.steps:
            return True
        late = self._out_of_time if self.learner.processes.count > 1 else self._late
        return late or any(observer.wants_end() for observer in self._observers)

    @property
    def loss(self) -> float:
        """The last recorded mean loss; before the first record, the mean over the updates so far."""
        first = math.isnan(self._loss) and self._recent
        return sum(self._recent) / len(self._recent) if first else self._loss

    def advance(self, enough: Callable[[float], bool]) -> None:
        """Run updates until none is left or `enough` returns True for the seconds they took; run at least one."""
        start = time.perf_counter() - self._uncounted
        before = self.clock.seconds
        with self.learner.own_random(), denormals_as_zero():
            while not self.done:
                self._update()
                elapsed = time.perf_counter() - start
                self.clock.seconds = before + elapsed
                for observer in self._observers:
                    observer.updated(self)
                self._uncounted = time.perf_counter() - start - elapsed  # of the observers, for the next call
                if enough(elapsed):
                    return

    def finish(self, test: bool = True) -> Result:
        """Validate, unless the last update was followed by a validation, and test, unless this is not wanted."""
        step, before, start = self.learner.step, self.clock.seconds, time.perf_counter()
        if self._recent:
            self._record_training()
        if not any(record["kind"] == "validation" and record["step"] == step for record in reversed(self.records)):
            self._validate()
        self._look()
        found = tested(self.records, step) if test else {}
        recorded = found is not None
        if found is None:
            found = self._evaluate(self.learner.problem.test(self.learner.config.evaluation_batch))
        self.clock.seconds = before + time.perf_counter() - start
        if not recorded:
            self.record("test", found)
        assert self.validation is not None
        return Result(self.learner.model, step, self.validation, found, self.records)

    def _evaluate(self, batches: Iterator[Batch]) -> dict[str, float]:
        with self.clock.evaluating():
            return self.learner.evaluate(batches)

    def record(self, kind: str, numbers: Record) -> None:
        """Add a record and pass it to the observers."""
        spent = {"seconds": round(self.clock.seconds, 3), "cpu_seconds": round(self.clock.cpu_seconds, 3)}
        self.records.append({"kind": kind, "step": self.learner.step, **spent, **numbers})
        for observer in self._observers:
            observer.recorded(self.records[-1])

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` needs in addition to the state of the learner and the records."""
        return {
            "seconds": self.clock.seconds,
            "evaluation_seconds": self.clock.evaluation_seconds,
            "cpu_seconds": self.clock.cpu_seconds,
            "loss": self._loss,
            "recent": self._recent,
            "validation": self.validation,
            "records": len(self.records),
        }

    def load_state_dict(self, state: dict[str, Any], records: list[Record]) -> None:
        """Continue from a `state_dict`. records: The records so far."""
        self.clock.restore(state["seconds"], state["evaluation_seconds"], state["cpu_seconds"])
        self._loss, self._recent, self.validation = state["loss"], state["recent"], state["validation"]
        self.records = records

    @property
    def _late(self) -> bool:
        limit = self.learner.config.max_seconds
        return limit is not None and self.clock.seconds >= limit

    def _update(self) -> None:
        learner, config = self.learner, self.learner.config
        self._look()
        if self._validate_first and learner.step == 0 and self.validation is None:
            self._validate()  # initial values from the data may be the best ones
            for observer in self._observers:
                observer.started_well(self)
        self.torn = True
        self._recent.append(learner.update(2 if self.stop_wanted else int(self._late)))
        self.interrupted = self.stop_wanted if learner.processes.count == 1 else learner.stop == 2
        self._out_of_time = learner.stop == 1
        if learner.step % config.log_every == 0:
            self._record_training()
        if learner.step % config.validate_every == 0:
            self._validate()
            if config.record.test:
                self.record("test", self._evaluate(learner.problem.test(config.evaluation_batch)))
        self.torn = False

    def _record_training(self) -> None:
        self._loss = sum(self._recent) / len(self._recent)
        self._recent.clear()
        self.record("train", {"loss": self._loss})

    def _look(self) -> None:
        with self.clock.evaluating():
            for observer in self._observers:
                observer.look(self)

    def _validate(self) -> None:
        learner = self.learner
        self.validation = self._evaluate(learner.problem.validation(learner.config.evaluation_batch))
        if not self.validation:  # some problems hold nothing back for it
            return
        learner.validated(self.validation)
        self.record("validation", self.validation)
        for observer in self._observers:
            observer.validated(self)


def tested(records: list[Record], step: int) -> dict[str, float] | None:
    """Return the test metrics after this update, if they are among the records."""
    for record in reversed(records):
        if record["kind"] == "test" and record["step"] == step:
            return {key: value for key, value in record.items() if key not in _TIMED}
    return None
