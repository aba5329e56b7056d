"""The observers of a run with a directory: they write its records and its checkpoints."""

from __future__ import annotations

import time
from typing import Any

from ...errors import CheckpointError, NonFiniteError
from ..fit import Fit, Observer
from ..training import guards
from ..training.config import RunConfig
from .directory import RunDirectory
from .selection import Selection


class Logging(Observer):
    """Appends every record to metrics.jsonl."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def recorded(self, record: dict[str, Any]) -> None:
        """Append a record."""
        self._directory.log.append(record)


class Checkpointing(Observer):
    """Writes a checkpoint at every best validation, and as often as the configuration says.

    config: Config as in config.json, with the tables of its task in files. saved_step: The step of the last checkpoint.
    """

    def __init__(self, directory: RunDirectory, config: RunConfig, selection: Selection) -> None:
        self._directory, self._config, self._selection = directory, config, selection
        self.saved_step: int | None = None
        self._saved_at = time.perf_counter()

    def started_well(self, fit: Fit) -> None:
        """Write the state before the first update."""
        self.write(fit)

    def updated(self, fit: Fit) -> None:
        """Write a checkpoint that is due."""
        best, step, config = self._selection.best, fit.learner.step, self._config
        every, seconds = config.checkpoint_every, config.checkpoint_seconds
        is_best = best is not None and best["step"] == step
        late = seconds is not None and time.perf_counter() - self._saved_at >= seconds
        if is_best or (every is not None and step % every == 0) or late:
            self.write(fit)

    def write(self, fit: Fit) -> None:
        """Write the state, unless it is written already.

        Raises:
            CheckpointError: If that fails, or an update was interrupted.
            NonFiniteError: If a parameter is not finite.
        """
        learner, directory = fit.learner, self._directory
        if fit.torn:
            raise CheckpointError(
                f"Expected complete updates to save, but got one interrupted after update {learner.step}. Resume the "
                f"run from its directory."
            )
        if self.saved_step == learner.step:
            return
        bad = guards.not_finite(learner.model.named_parameters())
        if bad is not None:
            raise NonFiniteError(
                f"{bad} is not finite after update {learner.step}: the update was too large. {guards.SMALLER_UPDATES}"
            )
        state = learner.state_dict()
        weights = state.pop("model")
        own = {**fit.state_dict(), "best": self._selection.best, "stale": self._selection.stale}
        directory.log.sync()
        directory.remove_result()
        directory.checkpoints.write(
            learner.step, weights, {"trainer": state, "run": own, "config": self._config.to_dict()}
        )
        best = None if self._selection.best is None else int(self._selection.best["step"])
        directory.checkpoints.prune(self._config.keep_checkpoints, best)
        self.saved_step, self._saved_at = learner.step, time.perf_counter()
