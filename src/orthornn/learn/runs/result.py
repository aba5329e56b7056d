"""The progress of a run, and its result."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..._html import table_html
from ..systems import SequenceModel, count_parameters
from ..training.config import RunConfig


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
        config: Config of the run.
        steps: Number of updates.
        seconds: Seconds of the whole run.
        update_seconds: Seconds without validation, test and records.
        trivial_loss: Loss of the task's trivial baseline.
        validation: Metrics of `model` on the validation data after the last update.
        best: Those of the best validation by the task's metric, with "step"; empty, like validation, for a task without
            validation data.
        test: Metrics of `model` on the test data.
        best_test: Those of the weights of the best validation; empty if there are none, or if their checkpoint cannot be
            read.
        whole_test: Those of the weights of the best validation with each series processed as a whole, as in `predict` and
            streams, from its first step on, but at most 32768 steps before the test; empty if the test already does so, or
            if they are not finite.
        last_test: Those after the last update.
        records: Content of metrics.jsonl.
        model: Model after the last update.
        orthogonality_error: The largest ||W^H W - I||_F of the recurrent matrices at the end; None if the model has
            none.
        weights_sha256: Checksum of model.safetensors, if the run has a directory.
        threshold: Probability from which the weights of the best validation predict the second class, if the
            task asks for one; `best` and `best_test` are with it.
    """

    config: RunConfig
    steps: int
    seconds: float
    update_seconds: float
    trivial_loss: float
    validation: dict[str, float]
    best: dict[str, float]
    test: dict[str, float]
    best_test: dict[str, float]
    whole_test: dict[str, float]
    last_test: dict[str, float]
    records: list[dict[str, Any]]
    model: SequenceModel
    orthogonality_error: float | None = None
    weights_sha256: str | None = None
    threshold: float | None = None

    @property
    def parameters(self) -> int:
        """The number of trained numbers."""
        return count_parameters(self.model)

    @property
    def hidden_size(self) -> int:
        """The width of the network."""
        return self.model.core.hidden_size

    @property
    def finished(self) -> bool:
        """Whether all updates were made: False if max_seconds or patience ended the run before."""
        return self.steps >= self.config.steps

    def summary(self) -> dict[str, Any]:
        """Return the content of result.json, in which `test` belongs to the last weights."""
        of_run = ["steps", "seconds", "update_seconds", "parameters", "hidden_size", "trivial_loss", "finished"]
        metrics = ["validation", "last_test", "best", "best_test", "whole_test", "threshold", "orthogonality_error"]
        names = [*of_run, *metrics, "weights_sha256"]
        return {{"last_test": "test"}.get(name, name): getattr(self, name) for name in names}

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
