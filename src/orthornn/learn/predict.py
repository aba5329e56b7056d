"""A trained network in use: `orthornn.load(RUN).predict(sequences)`; the training data themselves are not needed.

What reads data is imported when there are some.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._warnings import warn
from ..errors import ArgumentTypeError
from ..saved.config_file import naming
from ..saved.network import load_network
from ..saved.run_files import CONFIG, read_result, run_in
from .systems import SequenceModel

if TYPE_CHECKING:
    import numpy as np

    from .predict_arrays import Prediction, Predictor
    from .predict_tables import Forecasts, TablePredictor
    from .runs.run import RunResult
    from .tasks.table_series import Series
    from .training.config import RunConfig


_FORMER = {
    "prepare": "Use orthornn.learn.raw_sequences.prepared.",
    "read_table": "Pass the file itself to predict_table and evaluate_table.",
    "told_times": "Use orthornn.learn.predict_tables.told_times.",
}


class Loaded:
    """A trained network with all that is needed to use it; made by `load`."""

    def __init__(
        self,
        config: RunConfig | dict[str, Any],
        model: SequenceModel,
        description: dict[str, Any],
        directory: Path | None = None,
        threshold: float | None = None,
    ) -> None:
        self._config, self.model, self.description, self.directory = config, model, description, directory
        self.threshold = threshold
        """The probability of the second of two classes from which on it is predicted; None for the likelier class."""
        self.result: RunResult | None = None
        """The result of the training, if that was in this process."""

    def __getattr__(self, name: str) -> Any:
        """Return what former versions had under a name."""
        if name not in _FORMER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warn(f"Loaded.{name} is no longer public. {_FORMER[name]}", DeprecationWarning)
        from .predict_tables import read_table, told_times
        from .raw_sequences import prepared

        task, description = self.config.task, self.description
        return {
            "prepare": lambda sequences, ordered=True: prepared(self._checked(sequences), description, ordered),
            "read_table": lambda path: read_table(task, description, path),
            "told_times": lambda path: told_times(task, read_table(task, description, path)),
        }[name]

    def __repr__(self) -> str:
        where = "" if self.directory is None else f", {str(self.directory)!r}"
        return f"{type(self).__name__}({self.config.task.name}, {self.config.model.name}{where})"

    def _repr_html_(self) -> str:
        shown = "" if self.result is None else self.result._repr_html_()
        return shown + self.model._repr_html_()

    @property
    def config(self) -> RunConfig:
        """The configuration of its run. ConfigError if what the network was not built from is wrong."""
        if isinstance(self._config, dict):
            from .training.config import RunConfig

            with naming(CONFIG if self.directory is None else self.directory / CONFIG):
                self._config = RunConfig.read(self._config)
        return self._config

    def reading(
        self,
        *,
        separator: str | None = None,
        decimal: Literal[".", ","] | None = None,
        thousands: str | None = None,
        na: str | None = None,
        default_na: Literal["usual", "empty"] | None = None,
        encoding: str | None = None,
    ) -> Loaded:
        """Return the same network for text files that are written otherwise than its training data: with these marks,
        spellings of missing values and encoding, and where one is None as in training.

        Raises:
            ArgumentError: If two marks are the same, the encoding is none, or the network did not learn from a table.
        """
        given = {"separator": separator, "decimal": decimal, "thousands": thousands}
        given |= {"na": na, "default_na": default_na, "encoding": encoding}
        marks: dict[str, Any] = {name: mark for name, mark in given.items() if mark is not None}
        if not marks:
            return self
        from .predict_tables import table_task

        other = copy.copy(self)
        other._config = dataclasses.replace(
            self.config, task=dataclasses.replace(table_task(self.config.task), **marks)
        )
        return other

    @property
    def labels(self) -> list[str]:
        """The names of the outputs."""
        return self._arrays.labels

    def predict(self, sequences: Any, batch_size: int = 250) -> Prediction:
        """Return the predictions of the network for raw sequences: (B, T) or (B, T, I) numbers, (B, T) tokens, or
        strings.
        """
        return self._arrays.predict(self._checked(sequences), batch_size)

    def evaluate(self, sequences: Any, targets: Any, batch_size: int = 250) -> dict[str, float]:
        """Return metrics, by the kind of output.

        Classes: "loss" in nats, "accuracy". Values: "loss", the mean squared error of standardized targets, and of those
        given "mse", "mae" and, where the targets differ, "r2", the coefficient of determination. Probabilities: "loss", the
        nats of all outputs of a step together.
        """
        return self._arrays.evaluate(self._checked(sequences), targets, batch_size)

    def predict_table(self, path: Any) -> list[tuple[Series, Prediction]]:
        """Predict the sequences of a file of any format that the network could have learned from.

        The file is read as the training data were: `lengths`, `mask` and the columns `sequence` and `mask` mean the
        same. Every sequence is processed as a whole, from the first state on; steps that are missing hold the state,
        and nothing is predicted at them.

        Args:
            path: A .csv or .parquet with the columns that the network learned from, or a .npz or .npy with as many
                features; or a DataFrame.

        Returns:
            One pair for each sequence, in the order in which the file has them; sequences without a step that the network
            can see are left out, with a warning. scores: (1, O), or (T, O) for the T observed steps; labels likewise.

        Raises:
            DataError: If the file does not fit.
            ArgumentError: If the network did not learn from such a file.
        """
        return self._tables.predict_table(path)

    def forecasts(self, path: Any) -> list[Forecasts]:
        """Forecast the steps after the end of each series of a file that `predict_table` takes.

        Returns:
            One of them for each sequence, in the order in which the file has them: name, steps (H,), times (H,) or None,
            values (H, C) for C targets, or (H, C Q) with Q quantiles.

        Raises:
            ArgumentError: If the network makes no forecasts.
            DataError: If the file does not fit.
        """
        return self._tables.forecasts(path)

    def predict_frame(self, frame: Any) -> Any:
        """Predict the sequences of a DataFrame, or of a file; return a DataFrame.

        Args:
            frame: A DataFrame with the columns that the network learned from, or the path of such a file.

        Returns:
            A DataFrame of the same library (of pandas or polars for a file): the column that tells sequences apart (as the
            table has it), in the order in which they come, where there is a prediction at every step the step and its time
            (as the table has it, if the network learned from a column of times), the label for classes (of the type of
            the column that named them in training), and the score of every output. Where the name of the first column or of
            the times is that of a predicted one, such as `label`, they are called `sequence` and `time`. Of a network that
            forecasts, the row of a step has what was forecast there; for the steps after the end see `forecast_frame`.
        """
        return self._tables.predict_frame(frame)

    def forecast_frame(self, frame: Any) -> Any:
        """Forecast the steps after the end of each series of a DataFrame, or of a file; return a DataFrame.

        Args:
            frame: A DataFrame with the columns that the network learned from, or the path of such a file.

        Returns:
            A DataFrame of the same library (of pandas or polars for a file) with a row for each series and step that the
            network forecasts: "sequence", "step", counted from the first of the series, "time", spelled as in the table, if
            the network learned from a column of times and these are on a grid, and "forecast COLUMN" for each target, or one
            for each quantile, "forecast COLUMN q0.9".

        Raises:
            ArgumentError: If the network makes no forecasts.
            DataError: If the table does not fit.
        """
        return self._tables.forecast_frame(frame)

    def evaluate_table(self, path: Any) -> dict[str, float]:
        """Compute the metrics of `evaluate` on such a file with its targets; classes are not weighed."""
        return self._tables.evaluate_table(path)

    def anomalies(self, path: Any) -> list[tuple[Series, np.ndarray]]:
        """Return how far the values of a file are from their forecasts, by sequence.

        The score of a step is the largest error of its targets in the forecast made `ahead` steps before (one step, for a
        forecast of several), in standard deviations of the training targets; with quantiles, the error of the one nearest to
        the median. Where training had a transform of the targets, all are transformed. The score is NaN where there was no
        forecast yet: at the first steps, and where a value is missing.

        Returns:
            One pair for each sequence: (its name and steps, scores (S,) for all of its S steps).

        Raises:
            ArgumentError: If the network makes no forecasts.
            DataError: If the file does not fit.
        """
        return self._tables.anomalies(path)

    def stream(self, tokens_or_values: Iterator[Any] | Sequence[Any]) -> Iterator[np.ndarray]:
        """Yield the output of the network after each step of one sequence, as it comes: raw steps in, scores (O,) out.

        A step in which a value is missing, NaN, holds the state where it does so in training (missing="hold"): the scores
        are those of the step before, at the beginning NaN. Any other wrong value raises an error, which ends the stream.

        Raises:
            ArgumentError: If the network reads sequences in both directions, or in another order than they come.
            DataError: For a wrong value.
        """
        from .predict_tables import held_inputs

        return self._arrays.stream(tokens_or_values, held_inputs(self.config.task, self.description))

    def generate(self, prompt: str = "", *, temperature: float = 1.0, seed: int = 0) -> Iterator[str]:
        """Yield symbols that continue a prompt, drawn one after the other from what the network predicts; without end.

        Args:
            prompt: What the text begins with; without one the first symbol is drawn from the network's own start: its
                answer to a line break, or to the first symbol that it knows.
            temperature: Divides the logits; 0 takes the likeliest symbol.
            seed: Of the draws.

        Raises:
            ArgumentError: If the network does not predict the next symbol of a text, or reads in both directions.
            DataError: If the prompt has symbols that it does not know.
        """
        task = self.config.task
        return self._arrays.generate(prompt, temperature, seed, getattr(task, "ahead", 1), task.name)

    @property
    def _arrays(self) -> Predictor:
        from .predict_arrays import Predictor

        return Predictor(self.model, self.description, self.threshold)

    @property
    def _tables(self) -> TablePredictor:
        from .predict_tables import TablePredictor, table_task

        return TablePredictor(self._arrays, table_task(self.config.task))

    def _checked(self, sequences: Any) -> Any:
        """Return sequences that are no DataFrame, whose columns a network of tables reads by their names."""
        from .predict_tables import TableTask

        if hasattr(sequences, "columns") and isinstance(self.config.task, TableTask):
            raise ArgumentTypeError(
                f"Expected an array of sequences, but got a {type(sequences).__name__}. Call predict_frame, or "
                f"evaluate_table, which read it by the names of its columns."
            )
        return sequences


def load(run: str | Path, checkpoint: str = "chosen") -> Loaded:
    """Return the trained network of a run directory.

    Args:
        run: The run directory, or that of a search by ``model="auto"``, whose result is loaded.
        checkpoint: ``"chosen"``, the weights of the best validation where there are some; ``"last"``, ``"best"`` or a
            step. Default: ``"chosen"``.
    """
    path = run_in(Path(run))
    model, config, description = load_network(path, checkpoint)
    loaded = Loaded(config, model, description, path)
    found = config.get("task")
    task = found if isinstance(found, dict) else {}
    if task.get("name") == "forecast" and task.get("quantiles") and "quantiles" not in description:
        description["quantiles"] = loaded.config.task.levels  # type: ignore[attr-defined]  # of a run from before it was stored
    if task.get("threshold") is not None:
        loaded.threshold = _threshold(loaded.config, path, checkpoint)
    return loaded


def _threshold(config: RunConfig, path: Path, checkpoint: str) -> float | None:
    """Return the threshold of a run. A warning if validation chose it for other weights: then the likelier class counts."""
    from .tasks.decision_threshold import read_threshold

    fixed = read_threshold(config.task.threshold)  # type: ignore[attr-defined]
    if isinstance(fixed, float):
        return fixed
    result = read_result(path) or {}
    best = str(result.get("best", {}).get("step"))
    end = str(result.get("steps"))
    if result.get("threshold") is not None and (
        checkpoint in ("chosen", "best", best) or (checkpoint, end) == ("last", best)
    ):
        return float(result["threshold"])
    warn(
        f"{path}: no threshold was chosen for these weights, so the likelier class is predicted. To silence this, finish the "
        f"run and use the weights of the best validation: checkpoint='chosen'."
    )
    return None
