"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import NonFiniteError
from ..models import SequenceModel, build, count_parameters
from ..modules import Transition
from ..tasks import Batch
from .config import RunConfig
from .directory import RunDirectory
from .optimizer import make_optimizer
from .penalised import penalised_loss
from .recording import Recorder

_PROGRESS_SECONDS = 0.25  # at most one report in this long


@dataclass(frozen=True)
class Progress:
    """Where a run is.

    loss: the mean over the last updates; seconds: since the run began; update_seconds: without validation.
    """

    step: int
    steps: int
    loss: float
    seconds: float
    update_seconds: float
    validation: dict[str, float] | None


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    seconds: all of it; update_seconds: without validation, test and what is recorded beside them.
    validation, test: the metrics after the last update. best: of all validations, by the task's metric, with
        "step"; empty, like validation, for a task without validation data.
    records: what metrics.jsonl holds. model: as the last update left it.
    finished: False if max_seconds ended it before `steps`.
    orthogonality_error: the largest ||W^H W - I||_F of the recurrent matrices at the end; None if the model has none.
    """

    config: RunConfig
    steps: int
    seconds: float
    update_seconds: float
    parameters: int
    hidden_size: int
    trivial_loss: float
    validation: dict[str, float]
    test: dict[str, float]
    best: dict[str, float]
    records: list[dict[str, Any]]
    model: SequenceModel
    finished: bool
    orthogonality_error: float | None = None


class Trainer:
    """A model, its optimiser and the number of updates done: all the state that a run has.

    The data are functions of (seed, step), so `state_dict` and `load_state_dict` are enough to go on from any
    step.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.task = task = config.task
        torch.manual_seed(config.seed)
        self.model: SequenceModel = build(
            config.model.name,
            task.input_size,
            task.output_size,
            hidden_size=config.model.hidden_size,
            parameters=config.model.parameters,
            reflections=config.model.reflections,
            angles=config.model.angles,
            margin=config.model.margin,
            nonlinearity=config.model.nonlinearity,
            gain=config.model.gain,
            clip_backward=config.model.clip_backward,
            layers=config.model.layers,
            rebase_every=config.model.rebase_every,
            forget_bias=config.model.forget_bias,
            output=task.output,
            tokens=task.input == "tokens",
        )
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.step = 0
        self._trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._transitions = [module for module in self.model.modules() if isinstance(module, Transition)]

    def update(self) -> float:
        """One update; the loss before it, without penalties. NonFiniteError, with the parameters untouched, if that is NaN or
        infinite."""
        config = self.config
        batch = self.task.train_batch(self.step, config.batch_size, config.seed)
        loss, extra = penalised_loss(self.model, self.task, batch, config.penalties)
        value = loss.item()
        if not math.isfinite(value):
            raise NonFiniteError(
                f"the training loss is {value} at step {self.step} (seed {config.seed}); needed a finite "
                f"number. "
                f"Lower --lr and --recurrent-lr, or set --clip-norm 1."
            )
        self.optimizer.zero_grad()
        (loss if extra is None else loss + extra).backward()
        if config.optimizer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._trained, config.optimizer.clip_norm)
        self.optimizer.step()
        self.step += 1
        return value

    def orthogonality_error(self) -> float | None:
        """The largest ||W^H W - I||_F of the model's transitions; None if it has none."""
        with torch.no_grad():
            return max((transition.method.error(transition.matrix()) for transition in self._transitions), default=None)

    def evaluate(self, batches: Iterator[Batch]) -> dict[str, float]:
        """The task's metrics over these batches."""
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        self.model.eval()
        with torch.no_grad():
            for batch in batches:
                for name, (total, count) in self.task.metrics(self.model(batch.inputs), batch.targets).items():
                    sums[name] = sums.get(name, 0.0) + total
                    counts[name] = counts.get(name, 0.0) + count
        self.model.train()
        return {name: sums[name] / counts[name] for name in sums}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a run needs to go on from here."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])


class Run:
    """A trainer with its log, advanced in parts so that several runs can take turns."""

    def __init__(self, config: RunConfig, directory: Path | None = None) -> None:
        self.config = config
        self.trainer = Trainer(config)
        self.trivial_loss = config.task.trivial_loss  # reads the data: what is wrong with them shows before the run
        self.directory = None if directory is None else RunDirectory.create(directory, config)
        self.recorder = Recorder(self.trainer.model, config.task, config.record)
        self.records: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.loss = math.nan
        self.validation: dict[str, float] | None = None
        self._recent: list[float] = []
        self._evaluation_seconds = 0.0

    @property
    def done(self) -> bool:
        """No update is left to do, by number or by time."""
        late = self.config.max_seconds is not None and self.seconds >= self.config.max_seconds
        return late or self.trainer.step >= self.config.steps

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        first = math.isnan(self.loss) and self._recent  # before the first record
        return Progress(
            step=self.trainer.step,
            steps=self.config.steps,
            loss=sum(self._recent) / len(self._recent) if first else self.loss,
            seconds=self.seconds,
            update_seconds=self.update_seconds,
            validation=self.validation,
        )

    @property
    def update_seconds(self) -> float:
        """Seconds so far without validation and test."""
        return self.seconds - self._evaluation_seconds

    def advance(self, seconds: float) -> None:
        """Make updates, at least one, for about this long."""
        start = time.perf_counter()
        before = self.seconds
        while not self.done:
            self._update()
            elapsed = time.perf_counter() - start
            self.seconds = before + elapsed
            if elapsed >= seconds:
                return

    def advance_to(self, step: int) -> None:
        """Make updates until this many are done in all."""
        start = time.perf_counter()
        before = self.seconds
        while not self.done and self.trainer.step < step:
            self._update()
            self.seconds = before + time.perf_counter() - start

    def finish(self) -> RunResult:
        """Validate, if the last update was not followed by a validation, test, write the weights, close the
        log."""
        trainer, config = self.trainer, self.config
        before, start = self.seconds, time.perf_counter()
        if self._recent:
            self._record_training()
        if not any(r["kind"] == "validation" and r["step"] == trainer.step for r in reversed(self.records)):
            self._validate()
        self._look()
        test = self._evaluate(config.task.test(config.evaluation_batch))
        self.seconds = before + time.perf_counter() - start
        self._record("test", test)
        if self.directory is not None:
            self.directory.write_weights(trainer.model.state_dict())
        self.close()
        validations = [record for record in self.records if record["kind"] == "validation"]
        choose = max if config.task.higher_is_better else min
        best = choose(validations, key=lambda record: record[config.task.metric]) if validations else {}
        assert self.validation is not None
        return RunResult(
            config=config,
            steps=trainer.step,
            seconds=self.seconds,
            update_seconds=self.update_seconds,
            parameters=count_parameters(trainer.model),
            hidden_size=trainer.model.core.hidden_size,
            trivial_loss=self.trivial_loss,
            validation=self.validation,
            test=test,
            best={name: value for name, value in best.items() if name != "kind"},
            records=self.records,
            model=trainer.model,
            finished=trainer.step >= config.steps,
            orthogonality_error=trainer.orthogonality_error(),
        )

    def close(self) -> None:
        """Close the log."""
        if self.directory is not None:
            self.directory.close()

    def _update(self) -> None:
        self._look()
        self._recent.append(self.trainer.update())
        if self.trainer.step % self.config.log_every == 0:
            self._record_training()
        if self.trainer.step % self.config.validate_every == 0:
            self._validate()

    def _record_training(self) -> None:
        self.loss = sum(self._recent) / len(self._recent)
        self._recent.clear()
        self._record("train", {"loss": self.loss})

    def _look(self) -> None:
        start = time.perf_counter()
        for kind, numbers in self.recorder.at(self.trainer.step):
            self._record(kind, numbers)
        self._evaluation_seconds += time.perf_counter() - start

    def _validate(self) -> None:
        self.validation = self._evaluate(self.config.task.validation(self.config.evaluation_batch))
        if self.validation:  # some tasks hold nothing back for it
            self._record("validation", self.validation)

    def _evaluate(self, batches: Iterator[Batch]) -> dict[str, float]:
        start = time.perf_counter()
        metrics = self.trainer.evaluate(batches)
        self._evaluation_seconds += time.perf_counter() - start
        return metrics

    def _record(self, kind: str, numbers: dict[str, Any]) -> None:
        record = {"kind": kind, "step": self.trainer.step, "seconds": round(self.seconds, 3), **numbers}
        self.records.append(record)
        if self.directory is not None:
            self.directory.log.append(record)


def train(
    config: RunConfig,
    directory: Path | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> RunResult:
    """Do the run that `config` describes, in `directory` if one is given.

    on_progress: called about four times a second, and at the end.
    Raises ArgumentError if the directory holds a run already, DataError for what is wrong with the data,
    NonFiniteError if the loss becomes NaN or infinite.
    """
    run = Run(config, directory)
    try:
        while not run.done:
            run.advance(_PROGRESS_SECONDS)
            on_progress(run.progress)
        result = run.finish()
    finally:
        run.close()
    on_progress(run.progress)
    return result
