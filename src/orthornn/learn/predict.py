"""A trained network in use: `orthornn.load(RUN).predict(sequences)`.

What was done to the training data (scaling, order of the steps, vocabulary) is done to new data too, from
description.json; the training data themselves are not needed.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .._checks import check_integer, check_number
from .._masked import as_array
from .._warnings import warn
from ..errors import ArgumentError, ArgumentTypeError, DataError, MissingPackageError, ShapeError
from .files.columns import Columns
from .files.frames import cells_at, source
from .files.label_types import typed_labels
from .files.optional_packages import import_optional
from .files.same_names import in_known_spelling
from .raw_sequences import is_whole, numbers, prepared, tokens
from .systems import SequenceModel
from .systems.streaming import Stream
from .tasks.channels import Channel
from .tasks.characters import UNKNOWN_SYMBOL, UNKNOWN_WORD
from .tasks.classification_metrics import classification_scores
from .tasks.decision_threshold import decided, decided_of, read_threshold
from .tasks.forecast import Forecast
from .tasks.forecast_metrics import uncrossed
from .tasks.regression_metrics import own_scores
from .tasks.table_options import modes_of
from .tasks.table_series import Series
from .tasks.table_task import TableTask
from .tasks.target_transform import check_domain, in_units, transformed
from .tasks.time_grid import told_grid
from .training import RunConfig, RunResult, load_model, read_description
from .training.directory import run_in
from .training.weights import read_result

_MANY = 20  # names that a message lists
_LONG = 200  # characters of a label
_UNSCALED = (("target_scale", 1.0), ("target_offset", 0.0))


class Prediction(NamedTuple):
    """scores: (B, O) or (B, T, O): probabilities in float32, or values in float64. labels: (B,) or (B, T), the winners,
    or None where the network predicts values."""

    scores: np.ndarray
    labels: np.ndarray | None


class Loaded:
    """A trained network with all that is needed to use it; made by `load`."""

    def __init__(
        self,
        config: RunConfig,
        model: SequenceModel,
        description: dict[str, Any],
        directory: Path | None = None,
        threshold: float | None = None,
    ) -> None:
        self.config, self.model, self.description, self.directory = config, model, description, directory
        self.threshold = threshold
        """The probability of the second of two classes from which on it is predicted; None for the likelier class."""
        self.result: RunResult | None = None
        """The result of the training, if that was in this process."""

    def __repr__(self) -> str:
        where = "" if self.directory is None else f", {str(self.directory)!r}"
        return f"{type(self).__name__}({self.config.task.name}, {self.config.model.name}{where})"

    def _repr_html_(self) -> str:
        shown = "" if self.result is None else self.result._repr_html_()
        return shown + self.model._repr_html_()

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
        task: TableTask = dataclasses.replace(self._own(), **marks)
        other = copy.copy(self)
        other.config = dataclasses.replace(self.config, task=task)
        return other

    @property
    def labels(self) -> list[str]:
        """The names of the outputs."""
        d = self.description
        names = d.get("labels") or (d.get("vocabulary") if d["says"] == "classes" else None)
        if names is None or len(names) != d["output_size"]:
            names = range(d["output_size"])
        return [str(name) for name in names]

    @torch.no_grad()
    def predict(self, sequences: Any, batch_size: int = 250) -> Prediction:
        """Return the predictions of the network for raw sequences: (B, T) or (B, T, I) numbers, (B, T) tokens, or
        strings.
        """
        outputs = self._outputs(sequences, batch_size)
        scores = self._scores(outputs).numpy()
        if self.description["says"] != "classes":
            return Prediction(scores, None)
        # An array of text takes four bytes per character of the longest label for every prediction.
        kind = object if max(map(len, self.labels), default=0) > _LONG else None
        return Prediction(scores, np.array(self.labels, kind)[decided(outputs, self.threshold).numpy()])

    @torch.no_grad()
    def evaluate(self, sequences: Any, targets: Any, batch_size: int = 250) -> dict[str, float]:
        """Return metrics, by the kind of output.

        Classes: "loss" in nats, "accuracy". Values: "loss", the mean squared error of standardized targets, and of those
        given "mse", "mae" and, where the targets differ, "r2", the coefficient of determination. Probabilities: "loss", the
        nats of all outputs of a step together.
        """
        outputs = self._outputs(sequences, batch_size)
        if self.description["says"] != "classes":
            values = numbers("targets", targets)
            values = values[..., None] if values.ndim == outputs.dim() - 1 else values
            _check_targets(values.shape, tuple(outputs.shape))
            wanted = torch.from_numpy(values)
            if self.description["says"] == "probabilities":
                if not bool(((wanted >= 0) & (wanted <= 1)).all()):
                    raise DataError(
                        "Expected the targets to be probabilities, in most cases 0 or 1; some are not between them."
                    )
                nats = F.binary_cross_entropy_with_logits(outputs.double(), wanted, reduction="sum")
                return {"loss": float(nats) / wanted[..., 0].numel()}
            scale, offset = (self._target(name, value) for name, value in _UNSCALED)
            check_domain(values.ravel(), self._transform, lambda place: f"as target {place}")
            return {
                "loss": float(F.mse_loss(outputs.double(), (transformed(wanted, self._transform) - offset) / scale)),
                "mse": float(F.mse_loss(self._scores(outputs), wanted)),
                **own_scores(*(part.flatten(0, -2).numpy() for part in (self._scores(outputs), wanted))),
            }
        classes = self._classes(targets)
        _check_targets(classes.shape, tuple(outputs.shape[:-1]))
        flat, wanted = outputs.flatten(0, -2), torch.from_numpy(classes).flatten()
        right = (decided(flat, self.threshold) == wanted).double().mean()
        return {"loss": float(F.cross_entropy(flat, wanted)), "accuracy": float(right)}

    def _outputs(self, sequences: Any, batch_size: int) -> Tensor:
        """Return the outputs of the network, (B, O) or (B, T, O)."""
        check_integer("batch_size", batch_size, 1)
        return torch.cat([self._batch_first(part) for part in self.prepare(sequences).split(batch_size, 1)])

    def _scores(self, outputs: Tensor) -> Tensor:
        """Return outputs (..., O) as probabilities, or as values in their own units."""
        if self.description["says"] == "classes":
            return outputs.softmax(-1)
        if self.description["says"] == "probabilities":
            return outputs.sigmoid()
        scale, offset = (self._target(name, value) for name, value in _UNSCALED)
        return uncrossed(in_units(outputs.double() * scale + offset, self._transform), self._quantiles)

    @property
    def _quantiles(self) -> int:
        """How many quantiles of each forecast there are; 0 for none."""
        return len(self.description.get("quantiles") or ())

    @property
    def _transform(self) -> str | None:
        """The transform of the targets."""
        return self.description.get("target_transform")

    def _classes(self, targets: Any) -> np.ndarray:
        """Return the class numbers, int64, of labels. Numbers are class numbers, unless a label is itself a number."""
        found, names = as_array(targets), self.labels
        number = {name: index for index, name in enumerate(names)}
        named = any(_reads_as_number(name) for name in self.description.get("labels", ()))
        if found.dtype.kind in "iuf" and not named:
            number = {str(index): index for index in range(len(names))}
        wanted = [
            str(int(target)) if is_whole(target) and str(target) not in number else str(target)
            for target in found.ravel().tolist()
        ]
        wanted = in_known_spelling(np.array(wanted, object), number).tolist()
        unknown = sorted(set(wanted) - number.keys())
        if unknown:
            raise DataError(
                f"Expected classes that the network knows, {', '.join(list(number)[:_MANY])}"
                f"{', ...' if len(number) > _MANY else ''}, but got {', '.join(map(repr, unknown[:5]))}. "
                f"Correct them, or leave "
                f"such sequences out."
            )
        return np.array([number[target] for target in wanted], np.int64).reshape(found.shape)

    def read_table(self, path: Any) -> Columns:
        """Return a table as the training data were read: `predict_table`, `evaluate_table`, `anomalies` and `told_times` take
        it in place of its path, so that it is read once.

        Args:
            path: As for `predict_table`.
        """
        if isinstance(path, Columns):
            return path
        name = source(path)  # a table in memory is known as long as its name lives
        return self._own().read_new(Path(name), self.description)

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
        return self._on_series(self._series(path, False))

    def predict_frame(self, frame: Any) -> Any:
        """Predict the sequences of a DataFrame, or of a file; return a DataFrame.

        Args:
            frame: A DataFrame with the columns that the network learned from, or the path of such a file.

        Returns:
            A DataFrame of the same library (of pandas or polars for a file): the column that tells sequences apart (as the
            table has it), in the order in which they come, where there is a prediction at every step the step and its time
            (as the table has it, if the network learned from a column of times), the label for classes (of the type of
            the column that named them in training), and the score of every output. Where the name of the first column or of
            the times is that of a predicted one, such as `label`, they are called `sequence` and `time`.
        """
        narwhals = import_optional("narwhals", "data", "DataFrames")
        name = source(frame)
        file, library = self.read_table(name), _library_of(narwhals, frame)
        found = self.predict_table(file)
        every_step = self.description["output"] == "all"
        timed, rows_of = self._own().time if every_step and found[0][0].times is not None else None, []
        labeled = found[0][1].labels is not None
        names = [f"score {label}" for label in self.labels]
        made = [*(["label"] if labeled else []), *names]
        sequence, own = self.description.get("sequence"), {}
        if sequence is not None and sequence in file.columns:
            own[sequence] = "sequence" if sequence in (*made, *(["step"] if every_step else [])) else sequence
        if timed is not None and timed in file.columns:
            own[timed] = "time" if timed in made else timed
        first = own.get(sequence, "sequence")
        columns: dict[str, list[Any]] = {name: [] for name in [first, *(["step"] if every_step else []), *made]}
        for one, said in found:
            rows = len(said.scores)
            columns[first] += [one.name] * rows
            if every_step:
                columns["step"] += one.steps[:rows].tolist()
            rows_of.append(one.rows[one.steps[:rows]])
            if said.labels is not None:
                columns["label"] += said.labels.tolist()
            for place, score in enumerate(names):
                columns[score] += said.scores[:, place].tolist()
        shown, kind = narwhals.from_dict(columns, backend=library), self.description.get("label_type")
        if kind is not None:
            typed = typed_labels(narwhals, columns["label"], kind, library)
            shown = shown.with_columns(label=typed)
        for column, its in own.items():
            cells = cells_at(narwhals, name, file, column, np.concatenate(rows_of), library)
            shown = shown.with_columns(cells.alias(its))
        # a column of times that is called step replaces the number of the step
        in_order = [first, *(["step"] if every_step else []), *own.values(), *columns]
        return shown.select(*dict.fromkeys(in_order)).to_native()

    def evaluate_table(self, path: Any) -> dict[str, float]:
        """Compute the metrics of `evaluate` on such a file with its targets; classes are not weighed."""
        task, file = self._own(), self.read_table(path)
        series = self._series(file, True)
        scores, wanted = [], []
        for one, said in self._on_series(series):
            assert one.targets is not None
            if task.output == "last":
                scores.append(said.scores)
                wanted.append(one.targets[-1:])
                continue
            counted = (one.steps >= task.skipped) & (one.steps + task.leads[-1] < len(one.targets))
            scores.append(said.scores[counted])
            wanted.append(task.answers(one.targets, one.steps[counted]))
        found, targets = np.concatenate(scores).astype(np.float64), np.concatenate(wanted)
        if targets.dtype == object:
            there = np.array([target is not None for target in targets], bool)
        else:
            there = np.isfinite(targets).all(1)
        if not there.any():
            raise DataError(
                f"Expected a target that enters the loss, but {file.path} has none. Add targets, or "
                f"predict without evaluating."
            )
        if not there.all() and task._strict_targets.any() and getattr(task, "ignore", None) is None:
            warn(
                f"{file.path}: {int((~there).sum())} of {len(there)} targets are missing, and are not evaluated. To silence "
                f"this, fill them in, or leave their rows out."
            )
        found, targets = found[there], targets[there]
        if isinstance(task, Forecast):
            return task.table_metrics(found, targets, self.description)
        if self.description["says"] == "values":
            squares, scale = np.square(found - targets), np.asarray(self.description["target_scale"])
            learned = squares
            if self._transform is not None:
                learned = np.square(transformed(found, self._transform) - transformed(targets, self._transform))
            errors = {"loss": float((learned / scale**2).mean()), "mse": float(squares.mean())}
            return errors | own_scores(found, targets)
        names = np.array([str(target) for target in targets.tolist()], object)
        classes = self._classes(self._numbered(names) if _is_array(file.path) else names)
        winners = decided_of(found, self.threshold)
        nats = -np.log(np.maximum(found[np.arange(len(found)), classes], np.finfo(np.float32).tiny))
        more = classification_scores(found, classes, self.threshold)
        named = {name: value for name, value in more.items() if isinstance(value, float)}
        return {"loss": float(nats.mean()), "accuracy": float((winners == classes).mean()), **named}

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
        task = self._own()
        if not isinstance(task, Forecast):
            raise ArgumentError(
                f"Expected a network that forecasts, but got one that learned {task.name}. Train one with ahead=1, --ahead 1."
            )
        lead, columns, count = task.leads[0], len(task.target_columns), max(1, len(task.levels))
        place = int(np.argmin(np.abs(np.array(task.levels) - 0.5))) if task.levels else 0
        chosen = np.arange(columns) * count + place
        deviation = np.asarray(self.description["target_scale"])[chosen]
        found = []
        for one, said in self._on_series(self._series(path, True)):
            assert one.targets is not None
            scores = np.full(len(one.targets), np.nan)
            known = (one.steps >= task.skipped) & (one.steps + lead < len(scores))
            at = one.steps[known] + lead
            wanted, forecasts = (
                transformed(values, self._transform) for values in (one.targets[at], said.scores[known][:, chosen])
            )
            errors = np.abs(wanted - forecasts) / deviation
            there = ~np.isnan(errors).all(1)
            scores[at[there]] = np.nanmax(errors[there], 1)
            found.append((one, scores))
        return found

    def told_times(self, path: Any) -> str:
        """Return what there is to say about the column of times of such a file: its step and its gaps; or nothing.

        Raises:
            DataError, ArgumentError: As `predict_table`.
        """
        task = self._own()
        if task.time is None:
            return ""
        file = self.read_table(path)
        order, _, lengths = task._together(file, None)
        told = told_grid(file, task.time, order, lengths)
        return f"{task.time}: {told}" if told else ""

    def _own(self) -> TableTask:
        task = self.config.task
        if not isinstance(task, TableTask):
            raise ArgumentError(
                f"Expected a network that learned from a table, but got one that learned {task.name}. Pass its "
                f"sequences as an array."
            )
        return task

    def _series(self, path: Any, targets: bool) -> list[Series]:
        return self._own().series(self.read_table(path), self.description, targets)

    def _numbered(self, targets: np.ndarray) -> np.ndarray:
        """Return targets of an array file as class numbers, where they are such and the classes have other names."""
        if set(targets) <= set(self.labels) or not all(target.isdecimal() for target in targets):
            return targets
        return targets.astype(np.int64)

    def _on_series(self, series: list[Series]) -> list[tuple[Series, Prediction]]:
        """Return each sequence with its prediction; those of one length are predicted together."""
        found: dict[int, Prediction] = {}
        task = self.config.task
        if isinstance(task, Forecast):
            short = [one.name for one in series if len(one.steps) <= task.skipped]
            if short:
                warn(
                    f"Expected sequences of more than {task.skipped} steps, which the network read in training before it "
                    f"forecast, but got {len(short)} of {len(series)} that are shorter. Put earlier steps in front of them."
                )
        last = self.description["output"] == "last"
        for length in sorted({len(one.steps) for one in series}):
            places = [place for place, one in enumerate(series) if len(one.steps) == length]
            scores, labels = self.predict(np.stack([series[place].values for place in places]))
            for row, place in enumerate(places):
                at = slice(row, row + 1) if last else row
                found[place] = Prediction(scores[at], None if labels is None else labels[at])
        return [(one, found[place]) for place, one in enumerate(series)]

    def _holds(self) -> np.ndarray | None:
        """Return at which inputs a missing value holds the state: bool (I,); None for a network of another kind."""
        if not isinstance(self.config.task, TableTask):
            return None
        modes = modes_of(self.config.task.missing)
        channels = Channel.of(self.description)
        return np.array([one.kind == "number" and modes.get(one.column, modes[""]) == "hold" for one in channels])

    def _target(self, name: str, otherwise: float) -> Tensor:
        return torch.tensor(self.description.get(name, otherwise), dtype=torch.float64)

    def stream(self, tokens_or_values: Iterator[Any] | Sequence[Any]) -> Iterator[np.ndarray]:
        """Yield the output of the network after each step of one sequence, as it comes: raw steps in, scores (O,) out.

        A step in which a value is missing, NaN, holds the state where it does so in training (missing="hold"): the scores
        are those of the step before, at the beginning NaN. Any other wrong value raises an error, which ends the stream.

        Raises:
            ArgumentError: If the network reads sequences in both directions, or in another order than they come.
            DataError: For a wrong value.
        """
        if self.description.get("order") is not None:
            raise ArgumentError(
                "Expected a network that reads steps as they come to stream, but got one that reads them in another order. "
                "Pass whole sequences to predict."
            )
        self._check_one_direction("to stream")
        stream, holds = Stream(self.model), self._holds()
        scores = np.full(self.description["output_size"], np.nan, np.float32)
        for value in tokens_or_values:
            if holds is None or not _is_held(value, holds):
                scores = self._scores(stream(self.prepare([[value]], ordered=False)[0])[0]).numpy()
            yield scores

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
        d, names = self.description, self.labels
        if d["input"] != "tokens" or d["output"] != "all" or d["says"] != "classes" or not d.get("vocabulary"):
            raise ArgumentError(
                f"Expected a network that predicts the next symbol of a text, but got one of {self.config.task.name}. Train "
                f"one with orthornn train characters."
            )
        if getattr(self.config.task, "ahead", 1) != 1:
            raise ArgumentError(
                f"Expected a network that predicts one symbol ahead, but got {self.config.task.ahead} ahead."  # type: ignore[attr-defined]
            )
        self._check_one_direction("to generate text")
        check_number("temperature", temperature, 0)
        check_integer("seed", seed, 0, 2**63 - 1)
        stream, random = Stream(self.model), torch.Generator().manual_seed(seed)
        begin = prompt or ("\n" if "\n" in names else names[0])
        logits = torch.zeros(1, 1)
        for token in tokens([list(begin)], self.description):
            logits = stream(token)
        while True:
            if temperature < np.finfo(np.float64).tiny:  # 0, or what some processors count as 0
                token = logits.argmax(-1)
            else:
                below = logits.double() - logits.double().amax(-1, keepdim=True)  # so that no quotient is above 0
                token = torch.multinomial((below / temperature).softmax(-1), 1, generator=random)[:, 0]
            yield _spelled(names[int(token)])
            logits = stream(token)

    def _check_one_direction(self, purpose: str) -> None:
        if getattr(self.model.core, "bidirectional", False):
            raise ArgumentError(
                f"Expected a network of one direction {purpose}, but got a bidirectional {type(self.model.core).__name__}. "
                f"Train one without --bidirectional."
            )

    def prepare(self, sequences: Any, ordered: bool = True) -> Tensor:
        """Return raw sequences as the network reads them: (T, B, I) float32, or (T, B) int64 tokens."""
        if hasattr(sequences, "columns") and isinstance(self.config.task, TableTask):
            raise ArgumentTypeError(
                f"Expected an array of sequences, but got a {type(sequences).__name__}. Call predict_frame, or "
                f"evaluate_table, which read it by the names of its columns."
            )
        return prepared(sequences, self.description, ordered)

    def _batch_first(self, inputs: Tensor) -> Tensor:
        outputs = self.model(inputs)
        return outputs if self.description["output"] == "last" else outputs.transpose(0, 1)


def load(run: str | Path, checkpoint: str = "chosen") -> Loaded:
    """Return the trained network of a run directory.

    Args:
        run: The run directory, or that of a search by ``model="auto"``, whose result is loaded.
        checkpoint: ``"chosen"``, the weights of the best validation where there are some; ``"last"``, ``"best"`` or a
            step. Default: ``"chosen"``.
    """
    path = run_in(Path(run))
    config, model = load_model(path, checkpoint)
    description = read_description(path)
    if isinstance(config.task, Forecast) and config.task.levels:  # runs from before it was stored
        description.setdefault("quantiles", config.task.levels)
    return Loaded(config, model, description, path, _threshold(config, path, checkpoint))


def _threshold(config: RunConfig, path: Path, checkpoint: str) -> float | None:
    """Return the threshold of a run. A warning if validation chose it for other weights: then the likelier class counts."""
    asked = getattr(config.task, "threshold", None)
    if asked is None:
        return None
    fixed = read_threshold(asked)
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


def _spelled(symbol: str) -> str:
    """Return a symbol as text: the one that stands for an unknown word as <unk>."""
    return UNKNOWN_WORD if symbol == UNKNOWN_SYMBOL else symbol


def _is_held(step: Any, holds: np.ndarray) -> bool:
    """Return whether a step lacks a value, and only of inputs that hold the state then."""
    try:
        gone = np.isnan(as_array(step).astype(np.float64))
    except (TypeError, ValueError):  # `prepare` says what is wrong
        return False
    return gone.shape == holds.shape and bool(gone.any() and holds[gone].all())


def _library_of(narwhals: Any, frame: Any) -> Any:
    """The library of a DataFrame; for a path pandas or polars, whichever is there."""
    if not isinstance(frame, (str, os.PathLike)):
        return narwhals.from_native(frame).implementation
    for name in ("pandas", "polars"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise MissingPackageError(
        "Expected pandas or polars for a DataFrame, but got neither. Install one: pip install pandas"
    )


def _is_array(path: str | Path) -> bool:
    return Path(path).suffix.lower() in (".npz", ".npy")


def _check_targets(got: tuple[int, ...], needed: tuple[int, ...]) -> None:
    if got != needed:
        raise ShapeError(f"Expected targets to have shape {needed}, but got {got}.")


def _reads_as_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
