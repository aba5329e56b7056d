"""Use a trained network: `orthornn.load(RUN).predict(sequences)`, without its training data.

Code that reads data is imported only when needed.
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
    from .predict_tables import TablePredictor
    from .runs.run import RunResult
    from .training.config import RunConfig


_FORMER = {
    "prepare": "Use orthornn.learn.raw_sequences.prepared.",
    "read_table": "Pass the file itself to tables.predict and tables.evaluate.",
    "told_times": "Use orthornn.learn.predict_tables.times_summary.",
    "predict_table": "Call tables.predict.",
    "evaluate_table": "Call tables.evaluate.",
    "forecasts": "Call tables.forecasts.",
    "anomalies": "Call tables.anomalies.",
}


class Loaded:
    """A trained network with everything needed to use it; `load` returns it."""

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
        """Probability from which the second of two classes is predicted; None to predict the likelier class."""
        self.result: RunResult | None = None
        """The result of the training, if it took place in this process."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that former versions had, with a warning."""
        if name not in _FORMER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warn(f"Loaded.{name} is a former name. {_FORMER[name]}", DeprecationWarning)
        from .predict_tables import read_table, times_summary
        from .raw_sequences import prepared

        task, description = self.config.task, self.description
        return {
            "prepare": lambda sequences, ordered=True: prepared(self._checked(sequences), description, ordered),
            "read_table": lambda path: read_table(task, description, path),
            "told_times": lambda path: times_summary(task, read_table(task, description, path)),
            "predict_table": lambda path: self.tables.predict(path),
            "evaluate_table": lambda path: self.tables.evaluate(path),
            "forecasts": lambda path: self.tables.forecasts(path),
            "anomalies": lambda path: self.tables.anomalies(path),
        }[name]

    def __repr__(self) -> str:
        where = "" if self.directory is None else f", {str(self.directory)!r}"
        return f"{type(self).__name__}({self.config.task.name}, {self.config.model.name}{where})"

    def _repr_html_(self) -> str:
        shown = "" if self.result is None else self.result._repr_html_()
        return shown + self.model._repr_html_()

    @property
    def config(self) -> RunConfig:
        """The configuration of its run. Raise ConfigError if parts that the network was not built from are invalid."""
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
        """Return the same network for text files in another format than its training data: with these marks, spellings
        of missing values and encoding. Arguments that are None stay as in training.

        Raises:
            ArgumentError: If two marks are equal, the encoding is unknown, or the network was not trained on a table.
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
        """Names of the outputs."""
        return self._arrays.labels

    def predict(self, sequences: Any, batch_size: int = 250) -> Prediction:
        """Return the network's predictions for raw sequences: (B, T) or (B, T, I) numbers, (B, T) tokens, or
        strings.
        """
        return self._arrays.predict(self._checked(sequences), batch_size)

    def evaluate(self, sequences: Any, targets: Any, batch_size: int = 250) -> dict[str, float]:
        """Return metrics that depend on the kind of output.

        Classes: "loss" in nats, "accuracy". Values: "loss", the mean squared error of standardized targets, and in the
        units of the targets "mse", "mae" and, if the targets differ, "r2", the coefficient of determination.
        Probabilities: "loss", the total nats of all outputs of a step.
        """
        return self._arrays.evaluate(self._checked(sequences), targets, batch_size)

    @property
    def tables(self) -> TablePredictor:
        """The network for files and DataFrames, sequence by sequence: `tables.predict`, evaluate, forecasts and anomalies.

        Raise ArgumentError if the network was not trained on a table.
        """
        from .predict_tables import TablePredictor, table_task

        return TablePredictor(self._arrays, table_task(self.config.task))

    def predict_frame(self, frame: Any) -> Any:
        """Predict the sequences of a DataFrame or a file, and return a DataFrame.

        Args:
            frame: A DataFrame with the columns that the network was trained on, or the path of such a file.

        Returns:
            A DataFrame of the same library (pandas or polars for a file), in the order of the sequences. Its columns
            are the sequence column of the table, the step and its time if there is a prediction at every step (the time
            as in the table, if the network was trained with a time column), the label for classes (with the type of the
            class column in training), and the score of every output. If the first column or the time column has the
            name of a predicted one, such as `label`, they are called `sequence` and `time`. For a forecasting network,
            the row of a step contains the forecast made at that step; for the steps after the end see `forecast_frame`.
        """
        return self.tables.predict_frame(frame)

    def forecast_frame(self, frame: Any) -> Any:
        """Forecast the steps after the end of each series of a DataFrame or a file, and return a DataFrame.

        Args:
            frame: A DataFrame with the columns that the network was trained on, or the path of such a file.

        Returns:
            A DataFrame of the same library (pandas or polars for a file) with a row for each series and forecast step.
            Its columns are "sequence", "step", counted from the start of the series, "time", spelled as in the table,
            if the network was trained with a time column and the times are on a grid, and "forecast COLUMN" for each
            target, or for each quantile such as "forecast COLUMN q0.9".

        Raises:
            ArgumentError: If the network is not a forecaster.
            DataError: If the table does not match the network.
        """
        return self.tables.forecast_frame(frame)

    def stream(self, tokens_or_values: Iterator[Any] | Sequence[Any]) -> Iterator[np.ndarray]:
        """Yield the output of the network after each step of one sequence as it arrives: raw steps in, scores (O,) out.

        A step with a missing value, NaN, holds the state if it does so in training (missing="hold"). Its scores repeat
        the previous step, or are NaN at the beginning. Any other invalid value raises an error, which ends the stream.

        Raises:
            ArgumentError: If the network reads sequences in both directions, or in another order than they arrive.
            DataError: If a value is invalid.
        """
        from .predict_tables import held_inputs

        return self._arrays.stream(tokens_or_values, held_inputs(self.config.task, self.description))

    def generate(self, prompt: str = "", *, temperature: float = 1.0, seed: int = 0) -> Iterator[str]:
        """Yield symbols that continue a prompt without end, each drawn from the network's predictions.

        Args:
            prompt: Beginning of the text. Without a prompt the first symbol is drawn from the network's response to a
                line break, or to the first symbol that it knows.
            temperature: Divisor of the logits; 0 always selects the likeliest symbol.
            seed: Seed of the draws.

        Raises:
            ArgumentError: If the network does not predict the next symbol of a text, or reads in both directions.
            DataError: If the prompt contains symbols that the network does not know.
        """
        task = self.config.task
        return self._arrays.generate(prompt, temperature, seed, getattr(task, "ahead", 1), task.name)

    @property
    def _arrays(self) -> Predictor:
        from .predict_arrays import Predictor

        return Predictor(self.model, self.description, self.threshold)

    def _checked(self, sequences: Any) -> Any:
        """Return sequences, unless they are a DataFrame, whose columns must be read by name."""
        from .predict_tables import TableTask

        if hasattr(sequences, "columns") and isinstance(self.config.task, TableTask):
            raise ArgumentTypeError(
                f"Expected an array of sequences, but got a {type(sequences).__name__}. Call predict_frame, or "
                f"tables.evaluate, which read it by the names of its columns."
            )
        return sequences


def load(run: str | Path, checkpoint: str = "chosen") -> Loaded:
    """Return the trained network of a run directory.

    Args:
        run: The run directory, or the directory of a search with ``model="auto"``, whose result is loaded.
        checkpoint: ``"chosen"``, the weights of the best validation, or the last ones without validations; ``"last"``,
            ``"best"`` or a step. Default: ``"chosen"``.
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
    """Return the threshold of a run. Warn if validation chose it for other weights: the likelier class is then
    predicted.
    """
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
