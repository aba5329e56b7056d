"""Figures of what a trained network predicts on the test part: confusion of classes, calibration, forecasts next to
targets.

The network comes from the run with the best validation among runs on the same data, with the weights of that
validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ...errors import OrthornnError
from ..runs.fingerprint import check_data
from ..systems import SequenceModel
from ..tasks import Batch, Task
from ..tasks.decision_threshold import decided
from ..tasks.table_task import TableTask
from ..tasks.target_transform import in_units
from ..training import load_model
from .figures import COLORS, canvas, plain_style, words
from .runs import SavedRun, best_of

_BATCH = 100  # sequences
_MOST_STEPS = 200_000  # of all test sequences that are predicted for a figure
_MOST_PIECES = 300  # of which there is a prediction at every step
_NUMBERED = 15  # classes of a confusion matrix whose cells have numbers
_NAMED = 40  # classes whose names are written
_BINS = 10
_UNITS = ("scale", "offset")
_SHOWN_STEPS = 300  # of a forecast
_POINTS = 2000  # of a scatter plot


class Predictions(NamedTuple):
    """Network outputs (rows, O) and targets, classes (rows,) or numbers (rows, O), of test sequences as they come."""

    outputs: np.ndarray
    targets: np.ndarray


def prediction_figures(runs: Sequence[SavedRun]) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of the best run by a short title, and lines about what could not be drawn."""
    best = best_of(runs)
    if best is None or not isinstance(best.config.task, TableTask):  # others take long to make or to read
        return {}, []
    try:
        task, model = best.config.task, load_model(best.path, "chosen")[1]
        task.problem()  # first, as an error of the task itself tells more
        check_data(best.path, task)
        found = predictions(model, task)
    except (OrthornnError, OSError) as error:
        return {}, [f"{best.path.name}: no pictures of its predictions: {error}"]
    if found is None:
        return {}, []
    name, labels = best.path.name, [str(label) for label in best.description.get("labels") or ()]
    if found.targets.dtype.kind == "i":
        classes = found.outputs.shape[1]
        labels = labels if len(labels) == classes else [str(label) for label in range(classes)]
        return {
            f"confusion on the test part, {name}": confusion(found, labels, (best.result or {}).get("threshold")),
            f"calibration on the test part, {name}": calibration(found),
        }, []
    scale, offset = (np.asarray(best.description.get(f"target_{word}", 1 - k)) for k, word in enumerate(_UNITS))
    how = best.description.get("target_transform")
    units = Predictions(*(in_units(values * scale + offset, how) for values in found))
    labels = labels if len(labels) == units.targets.shape[1] else [f"output {k}" for k in range(units.targets.shape[1])]
    if task.output == "all":
        return {f"predictions on the test part, {name}": over_time(units, labels)}, []
    return {f"predictions on the test part, {name}": scatter(units, labels)}, []


@torch.no_grad()
def predictions(model: SequenceModel, task: Task) -> Predictions | None:
    """Return a network's predictions on the test part, as far as they are cheap; None for other kinds of targets."""
    outputs, targets, steps = [], [], 0
    for pieces, batch in enumerate(task.problem().test(1 if task.output == "all" else _BATCH), start=1):
        prediction = model(batch.inputs)
        rows, wanted = _rows(prediction, batch, task.output)
        if wanted.is_floating_point() != (wanted.dim() == 2) or (wanted.dim() == 2 and wanted.shape != rows.shape):
            return None
        there = ~wanted[:, 0].isnan() if wanted.dim() == 2 else (wanted >= 0) & (wanted < rows.shape[1])
        outputs.append(rows[there].double().numpy())
        targets.append(wanted[there].numpy())
        steps += _steps(batch)
        if steps >= _MOST_STEPS or pieces >= _MOST_PIECES:
            break
    if not sum(map(len, targets)):
        return None
    return Predictions(np.concatenate(outputs), np.concatenate(targets))


@plain_style()
def confusion(found: Predictions, labels: Sequence[str], threshold: float | None = None) -> Any:
    """Return a figure: one row per true class, one column per prediction; the share of the row as color, counts as
    text.

    threshold: Probability from which the second of two classes is predicted. Default: the likelier class.
    """
    count = len(labels)
    table = np.zeros((count, count), np.int64)
    np.add.at(table, (found.targets, decided(torch.from_numpy(found.outputs), threshold).numpy()), 1)
    share = table / table.sum(1, keepdims=True).clip(1)
    size = float(np.clip(1.8 + 0.42 * count, 3.6, 8.0))
    figure = canvas((size + 0.8, size))
    axes = figure.add_subplot()
    image = axes.imshow(share, vmin=0, vmax=1, cmap="Blues")
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("share of the true class")
    if count <= _NUMBERED:
        for row, column in np.ndindex(table.shape):
            if table[row, column]:
                shade = "white" if share[row, column] > 0.5 else "black"
                axes.text(column, row, str(table[row, column]), ha="center", va="center", color=shade, fontsize="small")
    if count <= _NAMED:
        names = [words(label if len(label) <= 16 else f"{label[:15]}\u2026") for label in labels]
        axes.set_xticks(range(count), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(count), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    return figure


@plain_style()
def calibration(found: Predictions) -> Any:
    """Return a figure: how often predictions of a confidence are right, and how many there are of each."""
    confidence, right, place = _confidence(found)
    number = np.bincount(place, minlength=_BINS)
    there = number > 0
    mean, accuracy = (np.bincount(place, value, _BINS)[there] / number[there] for value in (confidence, right))
    error = calibration_error(found)
    figure = canvas((5.2, 4.6))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1, label="calibrated")
    axes.plot(mean, accuracy, color=COLORS[0], marker="o", label="network")
    axes.bar(
        (np.arange(_BINS) + 0.5) / _BINS,
        number / number.sum(),
        0.9 / _BINS,
        color="0.8",
        label="share of all",
        zorder=0,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    axes.set_title(f"expected calibration error {error:.3f}", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    return figure


def calibration_error(found: Predictions) -> float:
    """Return the mean distance of confidence and accuracy over ten bins of confidence, weighed by their predictions."""
    confidence, right, place = _confidence(found)
    return float(np.abs(np.bincount(place, confidence - right, _BINS)).sum() / len(right))


@plain_style()
def over_time(found: Predictions, labels: Sequence[str]) -> Any:
    """Return a figure of predictions next to targets over the first test steps, one panel per output."""
    shown = min(len(labels), 4)
    figure = canvas((8.4, 1.0 + 2.0 * shown))
    panels = figure.subplots(shown, 1, sharex=True, squeeze=False)[:, 0]
    for place, axes in enumerate(panels):
        axes.plot(found.targets[:_SHOWN_STEPS, place], color="0.55", linewidth=2.2, label="target")
        axes.plot(found.outputs[:_SHOWN_STEPS, place], color=COLORS[3], linewidth=1.1, label="prediction")
        axes.set_ylabel(words(labels[place]))
    panels[-1].set_xlabel("test steps, in order")
    panels[0].legend(frameon=False, fontsize="small", ncols=2)
    return figure


@plain_style()
def scatter(found: Predictions, labels: Sequence[str]) -> Any:
    """Return a figure of predictions against targets, one panel per output."""
    shown = min(len(labels), 4)
    figure = canvas((4.2 * shown, 4.0))
    for place, axes in enumerate(figure.subplots(1, shown, squeeze=False)[0]):
        target, output = found.targets[:_POINTS, place], found.outputs[:_POINTS, place]
        ends = [min(target.min(), output.min()), max(target.max(), output.max())]
        axes.plot(ends, ends, color="0.5", linestyle="--", linewidth=1)
        axes.scatter(target, output, s=9, color=COLORS[0], alpha=0.6, linewidths=0)
        axes.set(xlabel="target", ylabel="prediction")
        axes.set_title(words(labels[place]), fontsize="medium")
    return figure


def _confidence(found: Predictions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the largest probability of each prediction, whether it is right, and the bin of its confidence."""
    exponentials = np.exp(found.outputs - found.outputs.max(1, keepdims=True))
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == found.targets
    return confidence, right, np.minimum((confidence * _BINS).astype(int), _BINS - 1)


def _rows(prediction: Tensor, batch: Batch, output: str) -> tuple[Tensor, Tensor]:
    """Predictions (rows, O) and targets (rows, ...), from a single sequence if there is a prediction at every step."""
    wanted = batch.targets.data if isinstance(batch.targets, PackedSequence) else batch.targets
    if output == "all" and not isinstance(batch.targets, PackedSequence):
        return prediction.flatten(0, 1), wanted.flatten(0, 1)
    return prediction, wanted


def _steps(batch: Batch) -> int:
    if isinstance(batch.inputs, PackedSequence):
        return len(batch.inputs.data)
    return batch.inputs.shape[0] * batch.inputs.shape[1]
