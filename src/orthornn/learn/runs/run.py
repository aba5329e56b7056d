"""A run: a fit with its observers, to be advanced in parts, stored in a directory and resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..._files import system_errors
from ..._warnings import warn
from ...errors import ArgumentError, CheckpointError, DataError, NonFiniteError
from ...saved.checkpoint import MAKE_ROOM
from ...saved.run_files import CONFIG, RESULT, read_description
from ..fit import Fit, Observer, tested
from ..tasks import Batch, Classify
from ..tasks.abilities import stored, whole_series
from ..training import guards
from ..training.config import RunConfig, read_config
from ..training.learner import outputs_of
from ..training.penalized import check_smoothing
from ..training.processes import Processes
from ..training.schedule import check_warmup
from ..training.trainer import Trainer
from .checkpointing import Checkpointing, Logging
from .directory import RunDirectory, writing_new
from .fingerprint import check_same_description, check_same_files, fingerprint
from .recording import Recorder
from .result import Progress, RunResult
from .resuming import Found, begin_log, restore
from .selection import BestWeights, Selection

TURN_SECONDS = 0.25
"""How long a run is advanced where several take turns."""
_Made = TypeVar("_Made")
_FAR_WORSE = 1.25  # a test loss of whole series, over that in windows, from which on the user is warned


class _Calls(Observer):
    """Hands every record to functions."""

    def __init__(self, functions: Sequence[Callable[[dict[str, Any]], None]]) -> None:
        self._functions = functions

    def recorded(self, record: dict[str, Any]) -> None:
        for call in self._functions:
            call(record)


class _Orthogonality(Observer):
    """Warns, with a record, of a recurrent matrix that is not orthogonal any more."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def validated(self, fit: Fit) -> None:
        bound, error = fit.learner.config.orthogonality_bound, guards.orthogonality_error(fit.learner.model)
        if error is not None and error > bound:
            self._run._warn(
                f"after update {fit.learner.step}, ||W'W - I|| of a recurrent matrix is {error:.2g}; its bound is "
                f"{bound:.2g} (orthogonality_bound)."
            )


class Run:
    """A trainer with its log and its checkpoints, advanced in parts, which lets several runs take turns.

    observers: called with every record.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: str | Path | None = None,
        *,
        processes: Processes | None = None,
        observers: Sequence[Callable[[dict[str, Any]], None]] = (),
    ) -> None:
        config.optimizer.check_learns()
        check_warmup(config)
        self.config = config
        self.trainer = Trainer(config, processes)
        self._trivial_loss = _trivial_loss(config)
        selection = Selection(config.task.metric, higher_is_better=config.task.higher_is_better)
        self._best_weights = BestWeights(selection, config.patience)
        calls = _Calls(observers if self.trainer.processes.first else ())
        self._recorder = Recorder(self.trainer.model, self.trainer.problem, self.trainer.objective, config.record)
        self._observers: list[Observer] = [calls, self._recorder, self._best_weights, _Orthogonality(self)]
        self.fit = Fit(self.trainer, self._observers, validate_first=self.trainer.warm)
        self.directory: RunDirectory | None = None
        self._checkpointing: Checkpointing | None = None
        if directory is not None:
            self.create_directory(Path(directory))

    def create_directory(self, path: Path) -> None:
        """Make the directory of a new run, with the tables that its task has in memory; of several processes the first.

        Raises ArgumentError if there is a run in it, DataError if it cannot be written.
        """
        if not self.trainer.processes.first:
            return
        if not (path / CONFIG).exists():  # else it says so below, and nothing is written into it
            with writing_new(path):
                task = stored(self.config.task, path)
            if task is not self.config.task:
                self.config = dataclasses.replace(self.config, task=task)
        task = self.config.task
        self._store(RunDirectory.create(path, self.config, task.problem().schema, fingerprint(task)))

    def _store(self, directory: RunDirectory, saved_step: int | None = None) -> None:
        """Write records and checkpoints into a directory. saved_step: That of the checkpoint that it is resumed
        from.
        """
        self.directory = directory
        self._checkpointing = Checkpointing(directory, self.config, self._best_weights.selection)
        self._checkpointing.saved_step = saved_step
        self._observers[:0] = [Logging(directory)]
        self._observers.append(self._checkpointing)

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
            found = Found.newest(path, changed)
            processes.wait()
            if processes.first:
                check_same_files(fingerprint(config.task), path)
                check_same_description(read_description(path), config.task.problem().schema, path)
            run = cls(changed, processes=processes, observers=observers)
            restore(found, run.fit, run._best_weights.selection, path)
            run._recorder.skip(run.fit.records, run.trainer.step)
            longer = changed.steps > config.steps or (changed.max_seconds or 0.0) > (config.max_seconds or math.inf)
            if longer and run._best_weights.wants_end():
                raise ArgumentError(
                    f"Expected a run that more updates continue, but got {path}, which patience={config.patience} ended "
                    f"after update {run.trainer.step}. Leave out steps and seconds, or begin a run with a larger patience."
                )
            if directory is not None:
                run._store(directory, found.step)
                begin_log(found, directory, changed.device, len(run.fit.records))
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
        return self._best_weights.selection.best

    @property
    def done(self) -> bool:
        """No update is left to do: by number, by time, by patience, or because somebody wants a stop."""
        return self.fit.done

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self.fit.clock.seconds

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        fit, clock = self.fit, self.fit.clock
        steps = (self.trainer.step, self.config.steps)
        return Progress(*steps, fit.loss, clock.seconds, clock.update_seconds, fit.validation)

    def advance(self, seconds: float) -> None:
        """Make updates, at least one, for about this long."""
        with self._naming_last_good():
            self.fit.advance(lambda elapsed: elapsed >= seconds)

    def advance_to(self, step: int) -> None:
        """Make updates until this many are done in all."""
        if self.trainer.step < step:
            with self._naming_last_good():
                self.fit.advance(lambda elapsed: self.trainer.step >= step)

    def checkpoint(self) -> None:
        """Save the state, unless it is saved already. CheckpointError, naming the last good one, if that fails, or if
        an update was interrupted.
        """
        if self._checkpointing is not None:
            with self._naming_last_good():
                self._checkpointing.write(self.fit)

    def finish(self) -> RunResult:
        """Save the state; validate, if the last update was not followed by a validation; test; write what is left."""
        self.checkpoint()
        with self._naming_last_good():
            result = self._ended()
        self.close()
        return result

    def close(self) -> None:
        """Close the log and let others write."""
        if self.directory is not None:
            self.directory.close()

    def _ended(self) -> RunResult:
        fit, trainer, clock = self.fit, self.trainer, self.fit.clock
        before, start = clock.seconds, time.perf_counter()
        end = fit.finish()
        best_test, threshold = self._best_tested(end.test), None
        if self.best is not None and getattr(self.config.task, "threshold", None) is not None:
            decided = self._with_best_weights(self._decided)
            if decided is not None:
                threshold, seen, best_test = decided
                self._best_weights.selection.best = {**self.best, **seen}
        whole_test = self._whole_tested(best_test, threshold)
        clock.seconds = before + time.perf_counter() - start
        result = RunResult(
            config=self.config,
            steps=end.steps,
            seconds=clock.seconds,
            update_seconds=clock.update_seconds,
            trivial_loss=self._trivial_loss,
            validation=end.validation,
            best=self.best or {},
            test=end.test,
            best_test=best_test,
            whole_test=whole_test,
            last_test=end.test,
            records=end.records,
            model=end.model,
            orthogonality_error=guards.largest_error(trainer.model),
            threshold=threshold,
        )
        if self.directory is None:
            return result
        with system_errors(f"to write the results to {self.directory.path}", MAKE_ROOM, CheckpointError):
            sha256 = self.directory.write_weights(trainer.model.state_dict())
            result = dataclasses.replace(result, weights_sha256=sha256)
            self.directory.write_json(RESULT, result.summary())
        return result

    def _best_tested(self, last: dict[str, float]) -> dict[str, float]:
        """Return the test metrics of the weights of the best validation, restoring the model. last: Test metrics of the
        last.
        """
        if self.best is None:
            return {}
        step = int(self.best["step"])
        if step == self.trainer.step:
            return last
        recorded = tested(self.fit.records, step)
        if recorded is not None:
            return recorded
        return (
            self._with_best_weights(lambda: self._tested(self.trainer.problem.test(self.config.evaluation_batch))) or {}
        )

    def _whole_tested(self, in_windows: dict[str, float], threshold: float | None) -> dict[str, float]:
        """Return the test metrics of whole series, if the test cuts them; warn if they are far worse than in
        windows.
        """
        batches = whole_series(self.config.task, self.config.evaluation_batch)
        first = next(batches, None)
        if first is None or not in_windows:
            return {}
        found = self._with_best_weights(lambda: self._tested(itertools.chain([first], batches), threshold))
        if found is None:
            return {}
        loss = found.get("loss", math.nan)
        if not loss <= _FAR_WORSE * in_windows["loss"]:
            self._warn(
                f"the test loss is {in_windows['loss']:.4g} in windows, but {loss:.4g} if a series is processed as a "
                f"whole, as predict and a stream do: the network carries too much from step to step. Train with a longer "
                f"window, --window, or a model that forgets, or predict from the last steps alone."
            )
        return found if math.isfinite(loss) else {}

    def _decided(self) -> tuple[float | None, dict[str, float], dict[str, float]]:
        """Return the threshold of the weights as they are, and the metrics of validation and test with it."""
        problem, size, task = self.trainer.problem, self.config.evaluation_batch, self.config.task
        assert isinstance(task, Classify)
        assert task.threshold is not None
        outputs = outputs_of(self.trainer, problem.validation(size))
        threshold = task.objective().chosen_threshold(task.threshold, outputs)
        parts = (problem.validation(size), problem.test(size))
        return threshold, *(self._tested(part, threshold) for part in parts)

    def _tested(self, batches: Iterator[Batch], threshold: float | None = None) -> dict[str, float]:
        with self.fit.clock.evaluating():
            return self.trainer.evaluate(batches, threshold)

    def _with_best_weights(self, make: Callable[[], _Made]) -> _Made | None:
        """Return the result of `make` with the weights of the best validation in the model; None if they are lost."""
        return self._best_weights.use(self.fit, self._read_weights, make)

    def _read_weights(self, step: int) -> dict[str, Any] | None:
        if self.directory is None:
            return None
        try:
            return self.directory.checkpoints.read(step)[0]
        except CheckpointError as error:
            self._warn(f"the weights of the best validation, after update {step}, are not tested: {error}")
            return None

    def _warn(self, text: str) -> None:
        self.fit.record("warning", {"text": text})
        if self.trainer.processes.first:
            warn(text)

    @contextlib.contextmanager
    def _naming_last_good(self) -> Iterator[None]:
        """Inside, errors of numbers and of the disk name the last good checkpoint."""
        try:
            yield
        except (NonFiniteError, CheckpointError) as error:
            if self.directory is None:
                raise
            saved = self.directory.checkpoints
            steps = saved.steps()
            last = f"The last good checkpoint is {saved.path(steps[-1])}." if steps else "There is no checkpoint yet."
            raise type(error)(f"{error} {last}") from error.__cause__


def _trivial_loss(config: RunConfig) -> float:
    """Return the loss of the trivial baseline; what is wrong with the data shows here, before the run.

    Raises:
        DataError: If all targets are the same.
        ArgumentError: If a batch has more sequences than the data, or labels are smoothed that are not classes.
    """
    task = config.task
    problem, objective = task.problem(), task.objective()
    loss = objective.trivial_loss
    if not loss > 0:
        raise DataError(
            f"Expected training targets that differ, but got the same ones in {task.name}, whose trivial baseline has the "
            f"loss {loss:g}. Give it other data, or divide them by another split_seed."
        )
    if task.steps_per_epoch(config.batch_size) == 0:
        problem.train(0, config.batch_size, config.seed)  # raises: a batch has more than all there are
    if config.penalties.label_smoothing:
        check_smoothing(objective, problem.train(0, config.batch_size, config.seed).targets)
    return loss
