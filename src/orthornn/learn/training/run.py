"""A run: a trainer with its records, its validations and its checkpoints, to be advanced and resumed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ..._html import table_html
from ..._warnings import warn
from ...errors import (
    ArgumentError,
    CheckpointError,
    ConfigError,
    DataError,
    NonFiniteError,
    OrthornnError,
)
from ...kernels import denormals_as_zero
from ..systems import SequenceModel, count_parameters
from ..tasks import Batch
from . import guards
from .changes import check_same_run, environment_changes
from .checkpoint import FOLDER as CHECKPOINTS
from .checkpoint import WEIGHTS, Checkpoints, Damaged, read_plain
from .config import RunConfig, read_config
from .description import describe
from .directory import CONFIG, ENVIRONMENT, METRICS, RESULT, RunDirectory, not_written
from .fingerprint import check_same_description, check_same_files, fingerprint
from .json_files import shortened
from .log import read_metrics
from .penalized import check_smoothing
from .processes import Processes
from .recording import Recorder
from .schedule import check_warmup
from .selection import Selection
from .sizes import check_memory
from .trainer import Trainer
from .weights import expected_weights, read_description
from .weights_file import check_finite

_Made = TypeVar("_Made")

_FAR_WORSE = 1.25  # a test loss of whole series, over that in windows, from which on the user is warned


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        loss: The mean over the last updates.
        seconds: Since the run began.
        update_seconds: Without validation.
    """

    step: int
    steps: int
    loss: float
    seconds: float
    update_seconds: float
    validation: dict[str, float] | None


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Args:
        config: Of the run.
        steps: Updates done.
        seconds: Of the whole run.
        update_seconds: Without validation, test and records.
        parameters: Number of trained numbers.
        hidden_size: Of the network.
        trivial_loss: Of the task's trivial baseline.
        validation: The metrics of `model` on the validation data, those after the last update.
        test: Those on the test data.
        best: Those of the best validation by the task's metric, with "step"; empty, like validation, for a task without
            validation data.
        records: What metrics.jsonl holds.
        model: As the last update left it.
        finished: False if max_seconds or patience ended it before `steps`.
        orthogonality_error: The largest ||W^H W - I||_F of the recurrent matrices at the end; None if the model has none.
        best_test: The test metrics of the weights of the best validation; empty where there are none, or where their
            checkpoint cannot be read.
        weights_sha256: Of model.safetensors, if the run has a directory.
        threshold: The probability of the second class from which on the weights of the best validation predict it, if the
            task asks for one; `best` and `best_test` are with it.
        whole_test: The test metrics of the weights of the best validation where each series is processed as a whole, as
            `predict` and a stream do, from its first step on, but at most 32768 steps before the test; empty where the test
            does so, or where they are not finite.
        last_test: The test metrics after the last update, also where `of_best` has put those of the best validation into
            `test`.
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
    best_test: dict[str, float] = dataclasses.field(default_factory=dict)
    weights_sha256: str | None = None
    threshold: float | None = None
    whole_test: dict[str, float] = dataclasses.field(default_factory=dict)
    last_test: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.last_test:
            object.__setattr__(self, "last_test", self.test)

    def summary(self) -> dict[str, Any]:
        """Return what result.json holds, where `test` is that of the last weights: all but the config, the records and the
        model.
        """
        left = ("config", "records", "model", "last_test")
        names = (entry.name for entry in dataclasses.fields(self))
        return {**{name: getattr(self, name) for name in names if name not in left}, "test": self.last_test}

    def of_best(self, model: SequenceModel) -> RunResult:
        """Return the result with the model of the best validation, whose metrics `validation` and `test` then are.

        Where nothing was validated, the best weights are the last ones.
        """
        if not self.best_test:
            return dataclasses.replace(self, model=model)
        seen = {name: value for name, value in self.best.items() if name in self.validation}
        return dataclasses.replace(self, model=model, validation=seen, test=self.best_test)

    def __repr__(self) -> str:
        found = self.best_test or self.test
        metrics = ", ".join(f"test {name} {value:.4g}" for name, value in found.items())
        return f"RunResult({self.config.task.name}, {self.config.model.name}, {self.steps} updates, {metrics})"

    def _repr_html_(self) -> str:
        task, parts = (
            self.config.task,
            {"validation": self.best or self.validation, "test": self.best_test or self.test},
        )
        metrics = list(dict.fromkeys(["loss", task.metric]))
        rows = [
            [part, *(f"{found[name]:.4g}" if name in found else "" for name in metrics)]
            for part, found in parts.items()
        ]
        ended = f"{self.steps:,} updates" if self.finished else f"{self.steps:,} of {self.config.steps:,} updates"
        error = self.orthogonality_error
        notes = [
            f"{self.parameters:,} parameters, {ended}, {self.seconds:.1f} s; trivial baseline {self.trivial_loss:.4g}"
            + ("" if error is None else f"; ||W'W - I|| {error:.1e}{' with decay' * self.config.model.forgets}")
        ]
        return table_html(f"{task.name}, {self.config.model.name}", ["", *metrics], rows, notes)


class Run:
    """A trainer with its log and its checkpoints, advanced in parts so that several runs can take turns.

    observers: called with every record.
    torn: whether an update, or its records, came to no end: an error or a signal interrupted them.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: str | Path | None = None,
        *,
        processes: Processes | None = None,
        observers: Sequence[Callable[[dict[str, Any]], None]] = (),
        _opened: RunDirectory | None = None,
    ) -> None:
        config.optimizer.check_learns()
        check_warmup(config)
        self.config = config
        self.trainer = Trainer(config, processes)
        self.trivial_loss = config.task.trivial_loss  # reads the data: what is wrong with them shows before the run
        if not self.trivial_loss > 0:
            raise DataError(
                f"Expected training targets that differ, but got the same ones in {config.task.name}, whose "
                f"trivial baseline has "
                f"the loss {self.trivial_loss:g}. Give it other data, or divide them by another split_seed."
            )
        if config.task.steps_per_epoch(config.batch_size) == 0:
            config.task.train_batch(0, config.batch_size, config.seed)  # raises: a batch has more than all there are
        if config.penalties.label_smoothing:
            check_smoothing(config.task, config.task.train_batch(0, config.batch_size, config.seed).targets)
        self.directory = _opened
        self.writes = self.trainer.processes.first
        if directory is not None:
            self.create_directory(Path(directory))
        self.observers = observers
        self.recorder = Recorder(self.trainer.model, config.task, config.record)
        self.records: list[dict[str, Any]] = []
        self.seconds = 0.0
        self._cpu_seconds_before = -time.process_time()  # of earlier processes, less what this one had used by then
        self.loss = math.nan
        self.validation: dict[str, float] | None = None
        self.selection = Selection(config.task.metric, higher_is_better=config.task.higher_is_better)
        self._best_weights: dict[str, Any] | None = None  # a resumed run reads them from their checkpoint
        self.stop_wanted = False
        self.interrupted = False
        self.torn = False
        self._out_of_time = False
        self._recent: list[float] = []
        self._evaluation_seconds = 0.0
        self._uncounted = 0.0
        self._saved_step: int | None = None
        self._saved_at = time.perf_counter()

    def create_directory(self, path: Path) -> None:
        """Make the directory of a new run, with the tables that its task has in memory; of several processes the first.

        Raises ArgumentError if there is a run in it, DataError if it cannot be written.
        """
        if not self.writes:
            return
        if not (path / CONFIG).exists():  # else it says so below, and nothing is written into it
            try:
                task = self.config.task.stored(path)
            except OSError as error:
                if isinstance(error, OrthornnError):
                    raise
                raise not_written(path, error) from error
            if task is not self.config.task:
                self.config = dataclasses.replace(self.config, task=task)
        task = self.config.task
        self.directory = RunDirectory.create(path, self.config, describe(task), fingerprint(task))

    @classmethod
    def resume(
        cls,
        path: str | Path,
        *,
        steps: int | None = None,
        max_seconds: float | None = None,
        device: str | None = None,
        processes: Processes | None = None,
        observers: Sequence[Callable[[dict[str, Any]], None]] = (),
    ) -> Run:
        """Resume the run in this directory, from its newest sound checkpoint.

        It makes the same updates bit for bit as one that was never stopped, with the same versions on the same kind of
        processor and with the same number of threads: a sum divided among threads is rounded in another order.

        steps, max_seconds, device: used instead of those that the run began with.
        Nothing is written before all of it has been checked. Checkpoints that are damaged are set aside, with a
        warning; CheckpointError if there are only damaged ones. DataError if the data are not those that the run began
        with. What may change the last bits of its numbers (torch, instruction set, threads, GPU) is a warning.
        """
        path = Path(path)
        processes = processes or Processes()
        directory = RunDirectory.open(path) if processes.first else None
        try:
            config = read_config(path / CONFIG)
            changes = {"steps": steps, "max_seconds": max_seconds, "device": device}
            changed = dataclasses.replace(config, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
            processes.wait()
            found = _Found.newest(path, changed)
            processes.wait()
            if processes.first:
                check_same_files(fingerprint(config.task), path)
                check_same_description(read_description(path), describe(config.task), path)
            run = cls(changed, processes=processes, observers=observers, _opened=directory)
            run._restore(path, found)
            longer = changed.steps > config.steps or (changed.max_seconds or 0.0) > (config.max_seconds or math.inf)
            if longer and run.patience_is_out:
                raise ArgumentError(
                    f"Expected a run that more updates continue, but got {path}, which patience={config.patience} ended "
                    f"after update {run.trainer.step}. Leave out steps and seconds, or begin a run with a larger patience."
                )
            if directory is not None:
                run._go_on(directory, found)
                if changed != config:
                    directory.write_json(CONFIG, changed.to_dict())
        except BaseException:
            if directory is not None:
                directory.close()
            raise
        return run

    @property
    def best(self) -> dict[str, float] | None:
        """The best validation, with "step"; None before the first."""
        return self.selection.best

    @property
    def done(self) -> bool:
        """No update is left to do: by number, by time, by patience, or because somebody wants a stop."""
        if self.interrupted or self.trainer.step >= self.config.steps:
            return True
        late = self._out_of_time if self.trainer.processes.count > 1 else self._late
        return late or self.patience_is_out

    @property
    def patience_is_out(self) -> bool:
        """Whether so many validations were no better that the run ends."""
        return self.config.patience is not None and self.selection.stale >= self.config.patience

    @property
    def _late(self) -> bool:
        return self.config.max_seconds is not None and self.seconds >= self.config.max_seconds

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
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

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, of all threads of this process and of those before it."""
        return self._cpu_seconds_before + time.process_time()

    def advance(self, seconds: float) -> None:
        """Make updates, at least one, for about this long."""
        self._advance(lambda elapsed: elapsed >= seconds)

    def advance_to(self, step: int) -> None:
        """Make updates until this many are done in all."""
        if self.trainer.step < step:
            self._advance(lambda elapsed: self.trainer.step >= step)

    def checkpoint(self) -> None:
        """Save the state, unless it is saved already. CheckpointError, naming the last good one, if that fails, or if an
        update was interrupted.
        """
        trainer = self.trainer
        if self.torn and self.directory is not None:
            raise CheckpointError(
                f"Expected whole updates to save, but got one that was interrupted after update {trainer.step}. Resume the "
                f"run from its directory.{self._last_good()}"
            )
        if self.directory is None or self._saved_step == trainer.step:
            return
        bad = guards.not_finite(trainer.model.named_parameters())
        if bad is not None:
            raise NonFiniteError(
                f"{bad} is not finite after update {trainer.step}: the update was too large. "
                f"{guards.SMALLER_UPDATES}{self._last_good()}"
            )
        state = trainer.state_dict()
        weights = state.pop("model")
        own = {
            "seconds": self.seconds,
            "evaluation_seconds": self._evaluation_seconds,
            "cpu_seconds": self.cpu_seconds,
            "loss": self.loss,
            "recent": self._recent,
            "validation": self.validation,
            "best": self.best,
            "stale": self.selection.stale,
            "records": len(self.records),
        }
        try:
            self.directory.log.sync()
            self.directory.remove_result()
            self.directory.checkpoints.write(
                trainer.step, weights, {"trainer": state, "run": own, "config": self.config.to_dict()}
            )
        except CheckpointError as error:
            raise CheckpointError(f"{error}{self._last_good()}") from error
        best = None if self.best is None else int(self.best["step"])
        self.directory.checkpoints.prune(self.config.keep_checkpoints, best)
        self._saved_step, self._saved_at = trainer.step, time.perf_counter()

    def finish(self) -> RunResult:
        """Save the state; validate, if the last update was not followed by a validation; test; write what is left."""
        trainer, config = self.trainer, self.config
        self.checkpoint()
        before, start = self.seconds, time.perf_counter()
        if self._recent:
            self._record_training()
        if not any(r["kind"] == "validation" and r["step"] == trainer.step for r in reversed(self.records)):
            self._validate()
        self._look()
        test = self._tested(trainer.step)
        recorded = test is not None
        if test is None:
            test = self._evaluate(config.task.test(config.evaluation_batch))
        self.seconds = before + time.perf_counter() - start
        if not recorded:
            self._record("test", test)
        assert self.validation is not None
        best_test, threshold = self._best_tested(test), None
        if self.best is not None and getattr(config.task, "threshold", None) is not None:
            decided = self._with_best_weights(self._decided)
            if decided is not None:
                threshold, seen, best_test = decided
                self.selection.best = {**self.best, **seen}
        whole_test = self._whole_tested(best_test, threshold)
        self.seconds = before + time.perf_counter() - start
        result = RunResult(
            config=config,
            steps=trainer.step,
            seconds=self.seconds,
            update_seconds=self.update_seconds,
            parameters=count_parameters(trainer.model),
            hidden_size=trainer.model.core.hidden_size,
            trivial_loss=self.trivial_loss,
            validation=self.validation,
            test=test,
            best=self.best or {},
            records=self.records,
            model=trainer.model,
            finished=trainer.step >= config.steps,
            orthogonality_error=trainer.orthogonality_error(),
            best_test=best_test,
            threshold=threshold,
            whole_test=whole_test,
        )
        if self.directory is not None:
            try:
                result = dataclasses.replace(
                    result, weights_sha256=self.directory.write_weights(trainer.model.state_dict())
                )
                self.directory.write_json(RESULT, result.summary())
            except OSError as error:
                reason = error.strerror or error
                raise CheckpointError(
                    f"Expected to write the results to {self.directory.path}, but got: "
                    f"{reason}. Make room there, or allow "
                    f"writing, and resume the run.{self._last_good()}"
                ) from error
        self.close()
        return result

    def close(self) -> None:
        """Close the log and let others write."""
        if self.directory is not None:
            self.directory.close()

    def _advance(self, enough: Callable[[float], bool]) -> None:
        start = time.perf_counter() - self._uncounted
        before = self.seconds
        with self.trainer.own_random(), denormals_as_zero():
            while not self.done:
                self._update()
                elapsed = time.perf_counter() - start
                self.seconds = before + elapsed
                is_best = self.best is not None and self.best["step"] == self.trainer.step
                if is_best or self._checkpoint_is_due():
                    self.checkpoint()
                self._uncounted = time.perf_counter() - start - elapsed  # of the checkpoint, for the next call
                if enough(elapsed):
                    return

    def _update(self) -> None:
        trainer, config = self.trainer, self.config
        self._look()
        if trainer.warm and trainer.step == 0 and self.validation is None:
            self._validate()  # initial values from the data may be the best ones
            self.checkpoint()
        self.torn = True
        try:
            self._recent.append(trainer.update(2 if self.stop_wanted else int(self._late)))
        except NonFiniteError as error:
            raise NonFiniteError(f"{error}{self._last_good()}") from None
        self.interrupted = self.stop_wanted if trainer.processes.count == 1 else trainer.stop == 2
        self._out_of_time = trainer.stop == 1
        if trainer.step % config.log_every == 0:
            self._record_training()
        if trainer.step % config.validate_every == 0:
            self._validate()
            if config.record.test:
                self._record("test", self._evaluate(config.task.test(config.evaluation_batch)))
        self.torn = False

    def _checkpoint_is_due(self) -> bool:
        every, seconds = self.config.checkpoint_every, self.config.checkpoint_seconds
        if every is not None and self.trainer.step % every == 0:
            return True
        return self.directory is not None and seconds is not None and time.perf_counter() - self._saved_at >= seconds

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
        task, step = self.config.task, self.trainer.step
        self.validation = self._evaluate(task.validation(self.config.evaluation_batch))
        if not self.validation:  # some tasks hold nothing back for it
            return
        if not math.isfinite(self.validation["loss"]):
            bad = guards.not_finite(self.trainer.model.named_parameters())
            raise NonFiniteError(
                f"Expected a finite validation loss, but got {self.validation['loss']} after update {step}. "
                f"{'The outputs overflow' if bad is None else f'{bad} is not finite'}: the updates were too large. "
                f"{guards.SMALLER_UPDATES}{self._last_good()}"
            )
        self._record("validation", self.validation)
        if self.selection.see({key: value for key, value in self.records[-1].items() if key != "kind"}):
            self._best_weights = {name: _copied(value) for name, value in self.trainer.model.state_dict().items()}
        self.trainer.validated(self.validation[task.metric])
        error = guards.orthogonality_error(self.trainer.transitions)
        if error is not None and error > self.config.orthogonality_bound:
            self._warn(
                f"after update {step}, ||W'W - I|| of a recurrent matrix is {error:.2g}; its bound is "
                f"{self.config.orthogonality_bound:.2g} (orthogonality_bound).",
            )

    def _tested(self, step: int) -> dict[str, float] | None:
        """Return the test metrics after this update, if they are recorded already."""
        for record in reversed(self.records):
            if record["kind"] == "test" and record["step"] == step:
                return {
                    key: value for key, value in record.items() if key not in ("kind", "step", "seconds", "cpu_seconds")
                }
        return None

    def _best_tested(self, last: dict[str, float]) -> dict[str, float]:
        """Return the test metrics of the weights of the best validation, and the model as it was. last: those of the
        last.
        """
        if self.best is None:
            return {}
        step = int(self.best["step"])
        if step == self.trainer.step:
            return last
        recorded = self._tested(step)
        if recorded is not None:
            return recorded
        return (
            self._with_best_weights(lambda: self._evaluate(self.config.task.test(self.config.evaluation_batch))) or {}
        )

    def _whole_tested(self, in_windows: dict[str, float], threshold: float | None) -> dict[str, float]:
        """Return the test metrics of whole series, if the test cuts them; warn if they are far worse than in windows."""
        batches = self.config.task.test_of_whole_series(self.config.evaluation_batch)
        first = next(batches, None)
        if first is None or not in_windows:
            return {}
        found = self._with_best_weights(lambda: self._evaluate(itertools.chain([first], batches), threshold))
        if found is None:
            return {}
        loss = found.get("loss", math.nan)
        if not loss <= _FAR_WORSE * in_windows["loss"]:
            self._warn(
                f"the test loss is {in_windows['loss']:.4g} in windows, but {loss:.4g} where a series is processed as a "
                f"whole, as predict and a stream do: the network carries too much from step to step. Train with a longer "
                f"window, --window, or a model that forgets, or predict from the last steps alone."
            )
        return found if math.isfinite(loss) else {}

    def _decided(self) -> tuple[float | None, dict[str, float], dict[str, float]]:
        """Return the threshold of the weights as they are, and the metrics of validation and test with it."""
        task, size, threshold = self.config.task, self.config.evaluation_batch, self.trainer.choose_threshold()
        return threshold, self._evaluate(task.validation(size), threshold), self._evaluate(task.test(size), threshold)

    def _with_best_weights(self, make: Callable[[], _Made]) -> _Made | None:
        """Return what `make` returns while the model has the weights of the best validation; None if they are gone."""
        assert self.best is not None
        step, model = int(self.best["step"]), self.trainer.model
        if step == self.trainer.step:
            return make()
        weights = self._best_weights
        if weights is None and self.directory is None:
            return None
        if weights is None:
            try:
                weights = self.directory.checkpoints.read(step)[0]  # type: ignore[union-attr]
            except CheckpointError as error:
                self._warn(f"the weights of the best validation, after update {step}, are not tested: {error}")
                return None
        current = {name: _copied(value) for name, value in model.state_dict().items()}
        model.load_state_dict(weights)
        try:
            return make()
        finally:
            model.load_state_dict(current)

    def _evaluate(self, batches: Iterator[Batch], threshold: float | None = None) -> dict[str, float]:
        start = time.perf_counter()
        metrics = self.trainer.evaluate(batches, threshold)
        self._evaluation_seconds += time.perf_counter() - start
        return metrics

    def _record(self, kind: str, numbers: dict[str, Any]) -> None:
        spent = {"seconds": round(self.seconds, 3), "cpu_seconds": round(self.cpu_seconds, 3)}
        record = {"kind": kind, "step": self.trainer.step, **spent, **numbers}
        self.records.append(record)
        if self.directory is not None:
            self.directory.log.append(record)
        if self.writes:
            for observe in self.observers:
                observe(record)

    def _warn(self, text: str) -> None:
        self._record("warning", {"text": text})
        if self.writes:
            warn(text)

    def _last_good(self) -> str:
        if self.directory is None:
            return ""
        saved = self.directory.checkpoints
        if not saved.steps():
            return " There is no checkpoint yet."
        return f" The last good checkpoint is {saved.path(saved.steps()[-1])}."

    def _restore(self, path: Path, found: _Found) -> None:
        """Take over the checkpoint that was found; begin from the start if there is none yet. Nothing is written."""
        if found.step is None:
            return
        weights, state = found.weights, found.state
        if self.config.steps < found.step:
            raise ArgumentError(
                f"Expected steps to be at least {found.step}, the updates that {path} has made, but got "
                f"{self.config.steps}. The weights of earlier updates are in {path / CHECKPOINTS}, where they are "
                f"stored."
            )
        own = state["run"]
        try:
            self.trainer.load_state_dict({**state["trainer"], "model": weights}, state["config"]["steps"])
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            raise CheckpointError(
                f"the state in {found.place} does not fit the run: {shortened(str(error))}."
            ) from error
        self.records = read_metrics(path / METRICS, own["records"])
        if len(self.records) < own["records"]:
            raise CheckpointError(
                f"{path / METRICS} holds {len(self.records)} records; {found.place} was made after "
                f"{own['records']}. Restore the file, or begin a new run."
            )
        self.seconds, self._evaluation_seconds = own["seconds"], own["evaluation_seconds"]
        self._cpu_seconds_before += own["cpu_seconds"]
        self.loss, self._recent = own["loss"], own["recent"]
        self.validation = own["validation"]
        validations = (record for record in self.records if record["kind"] == "validation")
        self.selection.go_on(own["best"], own["stale"], validations)
        self._saved_step = found.step
        self.recorder.skip(self.records, found.step)

    def _go_on(self, directory: RunDirectory, found: _Found) -> None:
        """Compare the machine with the one that the run began on; then write that it is resumed."""
        path = directory.path
        if found.step is None and (path / METRICS).exists() and (path / METRICS).stat().st_size > 0:
            self._notice(f"{path} has no checkpoint: it is trained from the start, and its records are written again.")
        if not (path / ENVIRONMENT).exists():
            self._notice(
                f"{path} has no {ENVIRONMENT}: whether torch, the instruction set, the number of threads or the GPU has "
                f"changed since the run began cannot be seen. Restore the file; without it, its numbers may differ in their "
                f"last bits from those of a run that was never stopped."
            )
        changes = environment_changes(path, self.config.device)
        if changes:
            self._notice(
                f"{path} is resumed where {' and '.join(changes)}: from here on its numbers may differ in their last "
                f"bits from those of a run that was never stopped."
            )
        directory.begin_log()
        record = {"kind": "resume", "step": self.trainer.step, "keep": len(self.records)}
        directory.log.append({**record, "changes": changes} if changes else record)
        for (_, reason), aside in zip(found.damaged, directory.checkpoints.set_aside(found.damaged)):
            self._notice(f"{reason} The damaged one is renamed to {aside}; training resumes from step {found.step}.")

    def _notice(self, text: str) -> None:
        warn(text)


def _copied(value: Any) -> Any:
    """Return a tensor of a state_dict that later updates do not change."""
    return value.clone() if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class _Found:
    """The newest sound checkpoint of a run, and the damaged ones that are newer; step None if there is none yet."""

    step: int | None
    place: Path | None
    weights: dict[str, Any]
    state: dict[str, Any]
    damaged: list[Damaged]

    @classmethod
    def newest(cls, path: Path, config: RunConfig) -> _Found:
        """Look for it in a run that `config` describes. ConfigError if it was made with another, CheckpointError if
        none is sound."""
        description = read_description(path)
        checkpoints = Checkpoints(path / CHECKPOINTS)

        def check(place: Path) -> None:
            # what names an option that this version does not know is damage; another value is for the user to mend
            plain = read_plain(place)["state"]["config"]
            try:
                before = RunConfig.read(plain)
            except ConfigError as error:
                raise CheckpointError(f"{place} has no configuration that can be read: {error}") from error
            check_same_run(before, config, path / CONFIG, place)
            expected_weights(config.model, description, place / WEIGHTS)

        step, damaged = checkpoints.newest(check)
        if step is None:
            if damaged:
                listed = "".join(f"\n  {reason}" for _, reason in damaged)
                raise CheckpointError(f"{path} has no sound checkpoint to resume from:{listed}")
            if (path / RESULT).exists():
                raise CheckpointError(
                    f"Expected {checkpoints.folder} to have a checkpoint of the run, which has a result, but got none: it "
                    f"would be trained again from the start, and its result lost. Restore the checkpoints, or begin a new "
                    f"run."
                )
            check_memory(config.model, description)
            return cls(None, None, {}, {}, [])
        place = checkpoints.path(step)
        weights, state = checkpoints.read(step)
        check_finite(weights, place)
        return cls(step, place, weights, state, damaged)
